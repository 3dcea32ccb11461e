//! Shared by tests of the tracer: sockets of every transport, and a broker between them that is a process of its own.

// Not every suite uses all of it.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use trieline_trace::{Backend, Tracer};

/// Every transport, as the table of coverage names it.
pub const TRANSPORTS: [&str; 7] =
    ["udp4", "udp6", "tcp4", "tcp6", "unix-stream", "unix-datagram", "unix-seqpacket"];

/// `CLOCK_MONOTONIC`.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Two connected sockets: who sends, who receives.
pub fn connected(transport: &str) -> (OwnedFd, OwnedFd) {
    let address: IpAddr =
        if transport.ends_with('6') { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
    match transport {
        "udp4" | "udp6" => {
            let [from, to] = [(); 2].map(|()| UdpSocket::bind((address, 0)).unwrap());
            from.connect(to.local_addr().unwrap()).unwrap();
            to.connect(from.local_addr().unwrap()).unwrap();
            (from.into(), to.into())
        }
        "tcp4" | "tcp6" => {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            from.set_nodelay(true).unwrap();
            (from.into(), listener.accept().unwrap().0.into())
        }
        "unix-stream" => UnixStream::pair().map(|(from, to)| (from.into(), to.into())).unwrap(),
        "unix-datagram" => UnixDatagram::pair().map(|(from, to)| (from.into(), to.into())).unwrap(),
        _ => socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap(),
    }
}

/// The broker of relay.c: `TRIELINE_RELAY`, or compiled once.
pub fn relay_program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(program) = std::env::var_os("TRIELINE_RELAY") {
            return program.into();
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("relay-{}", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/relay.c");
        let done = Command::new("cc")
            .args(["-O2", "-Wall", "-Wextra", "-Werror", source, "-o"])
            .arg(&program)
            .status();
        assert!(done.expect("cc starts").success(), "{source} does not compile");
        program
    })
}

/// A running broker, its sender and its receiver.
pub struct Relay {
    child: Child,
    from: Option<File>,
    to: File,
}

impl Drop for Relay {
    /// Not every socket tells it when the test has failed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One message on the client's own clock.
#[derive(Clone, Copy, Debug)]
pub struct Trip {
    /// Point A: before it is sent.
    pub sent_ns: u64,
    /// Point D: after it is received.
    pub received_ns: u64,
}

impl Relay {
    /// Starts one between two pairs of sockets.
    pub fn start(transport: &str, style: &str) -> Relay {
        Relay::start_by(Command::new(relay_program()), transport, style)
    }

    /// The same by a command of one's own.
    pub fn start_by(mut relay: Command, transport: &str, style: &str) -> Relay {
        let (from, input) = connected(transport);
        let (output, to) = connected(transport);
        relay.arg(style).stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::piped());
        // A message that is lost fails the test, instead of keeping it for ever.
        let waits = Some(std::time::Duration::from_secs(20));
        rustix::net::sockopt::set_socket_timeout(&to, rustix::net::sockopt::Timeout::Recv, waits).unwrap();
        Relay { child: relay.spawn().expect("the relay starts"), from: Some(from.into()), to: to.into() }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Restarts the receive that the broker waits in, if the hooks are at functions. Those do not see a receive that was entered before
    /// they were attached. A process that was stopped and goes on enters it again.
    pub fn seen_by(&self, tracer: &Tracer) {
        if tracer.backend() != Backend::Functions {
            return;
        }
        let stat = format!("/proc/{}/stat", self.pid());
        for (signal, state) in [(Signal::STOP, ") T "), (Signal::CONT, ") S ")] {
            kill_process(Pid::from_child(&self.child), signal).unwrap();
            loop {
                let now = fs::read_to_string(&stat).unwrap();
                assert!(!now.contains(") Z "), "the broker has ended: {now}");
                if now.contains(state) {
                    break;
                }
                std::thread::yield_now();
            }
        }
    }

    /// Sends a message with this id through the broker and waits for it.
    pub fn pass(&mut self, id: u64) -> Trip {
        let mut message = [0u8; 64];
        message[8..16].copy_from_slice(&id.to_ne_bytes());
        let sent_ns = now();
        self.from.as_ref().unwrap().write_all(&message).unwrap();
        let mut back = [0u8; 64];
        self.to.read_exact(&mut back).unwrap();
        assert_eq!(back, message, "message {id}");
        Trip { sent_ns, received_ns: now() }
    }

    /// Sends messages with these ids, and then waits for all of them.
    pub fn pass_many(&mut self, ids: std::ops::Range<u64>) {
        let mut message = [0u8; 64];
        for id in ids.clone() {
            message[8..16].copy_from_slice(&id.to_ne_bytes());
            self.from.as_ref().unwrap().write_all(&message).unwrap();
        }
        for id in ids {
            let bytes = self.to.read(&mut message).unwrap();
            assert_eq!((bytes, &message[8..16]), (64, &id.to_ne_bytes()[..]), "message {id}");
        }
    }

    /// Ends the broker: its own clock after each receive and before each send.
    pub fn end(mut self) -> Vec<(u64, u64)> {
        // A message of no bytes, and the end of a stream.
        let from = self.from.take().unwrap();
        let _ = rustix::net::send(&from, &[], rustix::net::SendFlags::empty());
        drop(from);
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        let number = |word: Option<&str>| word.unwrap().parse().unwrap();
        text.lines()
            .map(|line| line.split(' '))
            .map(|mut words| (number(words.next()), number(words.next())))
            .collect()
    }
}
