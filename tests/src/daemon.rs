//! `trielined` as a process: started, waited for, stopped or killed; and `trieline` asked about it.

use crate::command::{Answer, binary, binary_path, run, run_with};
use crate::namespace::Namespace;
use crate::patience;
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running daemon in a namespace. Dropping it kills the process and removes its forwarding.
pub struct Daemon {
    child: Child,
    namespace: String,
    log: PathBuf,
    _directory: tempfile::TempDir,
}

impl Daemon {
    /// Starts `trielined -n NAMESPACE ARGS` and waits until it says (`sd_notify`) that it forwards.
    #[track_caller]
    pub fn start(namespace: &Namespace, args: &str) -> Self {
        let (mut daemon, notify) = Self::spawn(namespace, args);
        let end = Instant::now() + Duration::from_secs_f64(60.0 * patience());
        let mut message = [0u8; 512];
        loop {
            let length = notify.recv(&mut message).unwrap_or(0);
            if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                return daemon;
            }
            if let Ok(Some(status)) = daemon.child.try_wait() {
                panic!("trielined {args} ended with {status} before it was ready:\n{}", daemon.log());
            }
            assert!(Instant::now() < end, "trielined {args} is not ready:\n{}", daemon.log());
        }
    }

    /// Starts it and waits for nothing; what it notifies can be read from the socket.
    pub fn spawn(namespace: &Namespace, args: &str) -> (Self, UnixDatagram) {
        let directory = tempfile::tempdir().expect("a directory for the daemon");
        let notify_path = directory.path().join("notify");
        let notify = UnixDatagram::bind(&notify_path).expect("a notification socket");
        notify.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let log = directory.path().join("log");
        let stderr = std::fs::File::create(&log).expect("a log");
        let child = Command::new(binary("trielined"))
            .args(["-n", namespace.name()])
            .args(args.split_whitespace())
            .env("NOTIFY_SOCKET", &notify_path)
            .env("STATE_DIRECTORY", namespace.state())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("trielined starts");
        (Self { child, namespace: namespace.name().to_owned(), log, _directory: directory }, notify)
    }

    /// Starts a daemon that is expected to refuse: runs it to its end.
    #[track_caller]
    pub fn refused(namespace: &Namespace, args: &str) -> Answer {
        let seconds = (20.0 * crate::patience()).to_string();
        let state = format!("STATE_DIRECTORY={}", namespace.state().display());
        let mut words = vec![state.as_str(), "timeout", "-k", "2", &seconds];
        let program = binary_path("trielined");
        words.extend([program.as_str(), "-n", namespace.name()]);
        words.extend(args.split_whitespace());
        run_with("env", &words, "")
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Kills the process as `kill -9` does; forwarding stays.
    pub fn kill(mut self) {
        self.signal(rustix::process::Signal::KILL);
        let _ = self.child.wait();
        self.namespace.clear();
    }

    /// Asks the process to end (SIGTERM) and returns what it logged; forwarding stays.
    #[track_caller]
    pub fn stop(mut self) -> String {
        self.signal(rustix::process::Signal::TERM);
        let end = Instant::now() + Duration::from_secs_f64(10.0 * patience());
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                assert!(status.success(), "trielined ended with {status}:\n{}", self.log());
                self.namespace.clear();
                return self.log();
            }
            assert!(Instant::now() < end, "trielined does not end:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.namespace.is_empty() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("--- log of trielined\n{}", self.log());
        }
        let _ = run(&format!("{} -n {} node detach", binary_path("trieline"), self.namespace));
    }
}

/// `trieline -n NAMESPACE ARGS`.
#[track_caller]
pub fn trieline(namespace: &Namespace, args: &str) -> Answer {
    trieline_with(namespace, args, "")
}

/// The same with `input` on standard input.
#[track_caller]
pub fn trieline_with(namespace: &Namespace, args: &str, input: &str) -> Answer {
    let program = binary_path("trieline");
    let mut words = vec!["-n", namespace.name()];
    words.extend(args.split_whitespace());
    run_with(&program, &words, input)
}

/// `trieline -j node status` as JSON.
#[track_caller]
pub fn status(namespace: &Namespace) -> Value {
    trieline(namespace, "-j node status").json()
}

/// Removes the leftovers of an ended daemon, when dropped.
pub struct Leftovers<'a>(pub &'a Namespace);

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        let _ = trieline(self.0, "node detach");
    }
}
