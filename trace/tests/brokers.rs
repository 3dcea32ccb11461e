//! Real brokers, unmodified: every message's time in them is found, and lies where the client's own clock says that it must.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{Trip, now};
use trieline_testbed::{needs_root, root, skip};
use trieline_trace::{By, Counts, Decoded, Filter, IdAt, Joiner, Message, Options, Point, Tracer};

const MESSAGES: usize = 300;
/// Messages sent at once, for a decoder to separate.
const BATCH: usize = 5;

/// A server that ends with the test.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts one on a port of its own; `None` where it is not installed.
    fn start(program: &str, arguments: impl FnOnce(u16) -> Vec<String>) -> Option<Server> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let path = format!("{}:/usr/sbin", std::env::var("PATH").unwrap_or_default());
        let mut command = Command::new(program);
        command.env("PATH", path).args(arguments(port)).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            skip(&format!("{program} is not installed (./dev setup)"));
            return None;
        };
        let server = Server { child, port };
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(20), "{program} does not listen on port {port}");
            thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }
}

/// Reads until `end` has come.
fn read_until(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let (mut text, mut buffer) = (Vec::new(), [0; 4096]);
    while !text.ends_with(end) {
        let bytes = stream.read(&mut buffer).unwrap();
        assert!(bytes > 0, "the server has closed: {}", String::from_utf8_lossy(&text));
        text.extend(&buffer[..bytes]);
    }
    text
}

/// Sixteen bytes that no other message has, eight of them the number.
fn payload(id: u64) -> [u8; 16] {
    let mut payload = [b'-'; 16];
    payload[..8].copy_from_slice(&id.to_ne_bytes());
    payload
}

/// Sends through a server and waits for what comes out.
fn trip(from: &mut TcpStream, message: &[u8], to: &mut TcpStream, end: &[u8]) -> Trip {
    let sent_ns = now();
    from.write_all(message).unwrap();
    read_until(to, end);
    Trip { sent_ns, received_ns: now() }
}

/// How messages are joined.
enum With {
    Thread,
    Id(IdAt),
    Decode(&'static str),
}

/// Traces a server while `pass` sends messages through it; each trip must have as many messages inside it as `hops`.
fn trace(server: &Server, with: With, hops: usize, mut pass: impl FnMut(u64) -> Trip) -> Counts {
    let filter = Filter { processes: vec![server.child.id()], descendants: true, ..Filter::default() };
    let plain = Options::new(filter);
    let options = match with {
        With::Thread => plain,
        With::Id(id) => Options { id: Some(id), ..plain },
        With::Decode(decode) => {
            Options { decode: Some(decode.parse().unwrap()), capture: 512, slots: 1 << 15, ..plain }
        }
    };
    let mut tracer = Tracer::start(&options).unwrap();
    let mut joiner = Joiner::new(options.by(), tracer.at_queue());
    let trips: Vec<Trip> = (0..MESSAGES as u64).map(&mut pass).collect();
    thread::sleep(Duration::from_millis(20));
    let mut messages: Vec<Message> = Vec::new();
    tracer.stop(|record| joiner.take(record, |message| messages.push(message)));
    joiner.finish(|message| messages.push(message));
    if options.by() == By::Thread {
        // Redis answers the publisher as well: a T2 of its own.
        let all = messages.len();
        messages.retain(|message| !message.is_reply());
        assert_eq!(joiner.counts().ways, (all - messages.len()) as u64);
    }

    let (counts, seen) = (joiner.counts(), tracer.seen());
    let mut times: Vec<u64> = messages.iter().map(Message::inside_ns).collect();
    times.sort();
    println!(
        "matched {}/{}, T2 median {} ns; {counts:?}; {seen:?}",
        messages.len(),
        MESSAGES * hops,
        times[times.len() / 2]
    );
    assert_eq!((seen.lost, seen.missed, tracer.decoded()), (0, 0, Decoded::default()));
    assert_eq!(messages.len(), MESSAGES * hops, "{counts:?}");
    assert!(messages.iter().all(|message| message.received.time_ns <= message.sent.time_ns));
    for trip in trips {
        let is_inside = |message: &&Message| {
            message.received.time_ns > trip.sent_ns && message.sent.time_ns < trip.received_ns
        };
        assert_eq!(messages.iter().filter(is_inside).count(), hops, "{trip:?}");
    }
    // Of a batch the kernel may send the rest later (Nagle), and now and then one message whose forerunner is not acknowledged yet.
    let late = messages.iter().filter(|message| message.sent.point != Point::Queued).count();
    assert!(late * 20 <= messages.len() || hops == BATCH, "{counts:?}");
    counts
}

/// The same messages, a batch in each write, to two subscribers: each is found, and so is each copy.
fn trace_batches(
    server: &Server,
    decode: &'static str,
    message: impl Fn(u64) -> Vec<u8>,
    from: &mut TcpStream,
    to: [&mut TcpStream; 2],
    end: &str,
) {
    let [first, second] = to;
    let counts = trace(server, With::Decode(decode), BATCH, |round| {
        let ids = round * BATCH as u64 + 1000..;
        let batch: Vec<u64> = ids.take(BATCH).collect();
        let last = [&payload(batch[BATCH - 1])[..], end.as_bytes()].concat();
        let bytes: Vec<u8> = batch.iter().flat_map(|id| message(*id)).collect();
        let mut trip = trip(from, &bytes, first, &last);
        read_until(second, &last);
        trip.received_ns = now();
        trip
    });
    let sent = (MESSAGES * BATCH) as u64;
    let reported = (
        counts.received,
        counts.sent,
        counts.copies,
        counts.ambiguous,
        counts.unmatched_received,
        counts.unmatched_sent,
    );
    assert_eq!(reported, (sent, 2 * sent, sent, 0, 0, 0), "{counts:?}");
}

#[test]
fn mosquitto_publishes() {
    let start = |port: u16| vec!["-p".into(), port.to_string()];
    let Some(server) = root().then(|| Server::start("mosquitto", start)).flatten() else { return };
    let client = |name: u8| {
        let mut stream = server.connect();
        stream.write_all(&[0x10, 13, 0, 4, b'M', b'Q', b'T', b'T', 4, 2, 0, 60, 0, 1, name]).unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
        stream
    };
    let subscriber = |name| {
        let mut to = client(name);
        to.write_all(&[0x82, 6, 0, 1, 0, 1, b't', 0]).unwrap();
        to.read_exact(&mut [0; 5]).unwrap();
        to
    };
    let (mut from, mut to) = (client(b'p'), subscriber(b's'));
    let message = |id| [&[0x30, 19, 0, 1, b't'][..], &payload(id)].concat();
    trace(&server, With::Thread, 1, |id| trip(&mut from, &message(id), &mut to, &payload(id)));
    let mut second = subscriber(b'2');
    trace_batches(&server, "mqtt", message, &mut from, [&mut to, &mut second], "");
}

/// Version 5, in which a number stands for the topic after the first message. The connections are made under the tracer's eyes.
#[test]
fn mosquitto_knows_topics_by_their_numbers() {
    let start = |port: u16| vec!["-p".into(), port.to_string()];
    let Some(server) = root().then(|| Server::start("mosquitto", start)).flatten() else { return };
    let client = |name: u8| {
        let mut stream = server.connect();
        stream.write_all(&[0x10, 14, 0, 4, b'M', b'Q', b'T', b'T', 5, 2, 0, 60, 0, 0, 1, name]).unwrap();
        let mut head = [0; 2];
        stream.read_exact(&mut head).unwrap();
        stream.read_exact(&mut vec![0; head[1].into()]).unwrap();
        stream
    };
    let mut ends = None;
    trace(&server, With::Decode("mqtt"), 1, |id| {
        let (from, to) = ends.get_or_insert_with(|| {
            let mut to = client(b's');
            to.write_all(&[0x82, 7, 0, 1, 0, 0, 1, b't', 0]).unwrap();
            to.read_exact(&mut [0; 6]).unwrap();
            (client(b'p'), to)
        });
        let (length, topic) = if id == 0 { (23, &b"\0\x01t"[..]) } else { (22, &b"\0\0"[..]) };
        let message = [&[0x30, length], topic, &[3, 0x23, 0, 1], &payload(id)].concat();
        trip(from, &message, to, &payload(id))
    });
}

#[test]
fn redis_publishes() {
    let start = |port: u16| ["--port", &port.to_string(), "--save", ""].map(String::from).to_vec();
    let Some(server) = root().then(|| Server::start("redis-server", start)).flatten() else { return };
    let subscriber = || {
        let mut to = server.connect();
        to.write_all(b"SUBSCRIBE t\r\n").unwrap();
        read_until(&mut to, b":1\r\n");
        to
    };
    let (mut from, mut to) = (server.connect(), subscriber());
    let message = |id| [&b"*3\r\n$7\r\nPUBLISH\r\n$1\r\nt\r\n$16\r\n"[..], &payload(id), b"\r\n"].concat();
    trace(&server, With::Thread, 1, |id| {
        let end = [&payload(id)[..], b"\r\n"].concat();
        let trip = trip(&mut from, &message(id), &mut to, &end);
        read_until(&mut from, b":1\r\n");
        trip
    });
    let mut second = subscriber();
    trace_batches(&server, "redis", message, &mut from, [&mut to, &mut second], "\r\n");
}

/// Its threads hand messages to each other: joined by the number in the payload, behind `PUB t 16` and `MSG t 1 16`.
#[test]
fn nats_publishes() {
    let start = |port: u16| ["-a", "127.0.0.1", "-p", &port.to_string()].map(String::from).to_vec();
    let Some(server) = root().then(|| Server::start("nats-server", start)).flatten() else { return };
    let client = |subscribe: &str| {
        let mut stream = server.connect();
        read_until(&mut stream, b"\r\n");
        stream.write_all(format!("CONNECT {{\"verbose\":false}}\r\n{subscribe}PING\r\n").as_bytes()).unwrap();
        read_until(&mut stream, b"PONG\r\n");
        stream
    };
    let (mut from, mut to) = (client(""), client("SUB t 1\r\n"));
    let message = |id| [&b"PUB t 16\r\n"[..], &payload(id), b"\r\n"].concat();
    trace(&server, With::Id(IdAt { received: 10, sent: 12, bytes: 8 }), 1, |id| {
        trip(&mut from, &message(id), &mut to, &[&payload(id)[..], b"\r\n"].concat())
    });
    let mut second = client("SUB t 2\r\n");
    trace_batches(&server, "nats", message, &mut from, [&mut to, &mut second], "\r\n");
}

/// As a proxy: a request and its answer are two messages, both in one worker process below the one that is named.
#[test]
fn nginx_proxies() {
    needs_root!();
    let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let behind = backend.local_addr().unwrap().port();
    let folder =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("nginx-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let configure = |port: u16| {
        let at = folder.display();
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {at}/{name};"))
            .concat();
        let text = format!(
            "daemon off; worker_processes 1; user root; pid {at}/pid; error_log {at}/error.log; events {{}} \
             http {{ access_log off; {temporary} upstream behind {{ server 127.0.0.1:{behind}; keepalive 2; }} \
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://behind; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; }} }} }}"
        );
        fs::write(folder.join("nginx.conf"), text).unwrap();
        vec!["-c".into(), folder.join("nginx.conf").display().to_string(), "-p".into(), at.to_string()]
    };
    let Some(server) = Server::start("nginx", configure) else { return };
    thread::spawn(move || {
        for stream in backend.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                stream.set_nodelay(true).unwrap();
                let mut request = [0; 4096];
                while stream.read(&mut request).is_ok_and(|bytes| bytes > 0) {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
                }
            });
        }
    });
    let mut client = server.connect();
    let mut ask = |id: u64| {
        let request = format!("GET /{id} HTTP/1.1\r\nHost: here\r\n\r\n");
        let sent_ns = now();
        client.write_all(request.as_bytes()).unwrap();
        read_until(&mut client, b"done");
        Trip { sent_ns, received_ns: now() }
    };
    // The first request opens the connection to what is behind.
    ask(0);
    trace(&server, With::Thread, 2, &mut ask);
    trace(&server, With::Decode("http"), 2, |id| ask(MESSAGES as u64 + id));
    drop(server);
    let _ = fs::remove_dir_all(folder);
}
