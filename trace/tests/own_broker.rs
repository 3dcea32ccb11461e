//! A broker of our own under live hooks, which knows when each message came and left. Threads take a message each and write logs and
//! counters by sockets that come and go. A pool answers in any order, several answers in a write; a server answers early.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::{HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::now;
use trieline_testbed::needs_root;
use trieline_trace::{
    Counts, Decode, Filter, IdAt, Joiner, Length, Message, MessageId, Options, Tracer, Transport,
};

/// The broker's task, for its own process.
const STYLE: &str = "TRIELINE_TEST_BROKER";
const THREADS: usize = 4;
const ROUNDS: u64 = 250;

/// A message on the broker's clock: after its last read, and before its first write.
#[derive(Clone, Copy, Debug)]
struct Truth {
    id: u64,
    thread: u32,
    after_ns: u64,
    before_ns: u64,
}

fn thread_number() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

type Log = Arc<Mutex<Vec<Truth>>>;

fn reported(log: &Log, id: u64, after_ns: u64, before_ns: u64) {
    log.lock().unwrap().push(Truth { id, thread: thread_number(), after_ns, before_ns });
}

// --- the broker ---------------------------------------------------------------------------------------------------------------------

/// The broker's process; it ends with its input.
#[test]
#[ignore = "it is the broker that the other tests start"]
fn broker() {
    let Ok(style) = std::env::var(STYLE) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = Log::default();
    eprintln!("listens {}", listener.local_addr().unwrap());
    for _ in 0..THREADS {
        let (listener, log) = (listener.try_clone().unwrap(), log.clone());
        let style = style.clone();
        thread::spawn(move || {
            // Each thread has one connection.
            let (stream, _) = listener.accept().unwrap();
            stream.set_nodelay(true).unwrap();
            match &*style {
                "threads" => serve_and_log(stream, &log),
                "pool" => serve_by_pool(stream, &log),
                _ => serve_early(stream, &log),
            }
        });
    }
    let _ = std::io::stdin().read(&mut [0]);
    for Truth { id, thread, after_ns, before_ns } in log.lock().unwrap().iter() {
        eprintln!("truth {id} {thread} {after_ns} {before_ns}");
    }
}

/// A name is looked up by a socket of its own. Then a request comes. A line of a log and a counter leave by sockets that may lie where that
/// socket lay, and the answer leaves.
fn serve_and_log(mut stream: TcpStream, log: &Log) {
    let (names, logs) = UnixDatagram::pair().unwrap();
    let counters = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (counters_at, mut message) = (counters.local_addr().unwrap(), [0; 16]);
    let names_at = UdpSocket::bind("127.0.0.1:0").unwrap();
    loop {
        for _ in 0..2 {
            let (question, answer) = UnixDatagram::pair().unwrap();
            answer.send(b"is").unwrap();
            assert_eq!(question.recv(&mut [0; 8]).unwrap(), 2);
            question.send(b"thanks").unwrap();
        }
        let name = UdpSocket::bind("127.0.0.1:0").unwrap();
        names_at.send_to(b"is", name.local_addr().unwrap()).unwrap();
        assert_eq!(name.recv(&mut [0; 8]).unwrap(), 2);
        name.send_to(b"thanks", names_at.local_addr().unwrap()).unwrap();
        drop(name);
        if stream.read_exact(&mut message).is_err() {
            return;
        }
        let after_ns = now();
        let (line, journal) = UnixDatagram::pair().unwrap();
        line.send(b"a request has come").unwrap();
        let counter = UdpSocket::bind("127.0.0.1:0").unwrap();
        counter.send_to(b"requests:1|c", counters_at).unwrap();
        drop((line, journal, counter));
        let before_ns = now();
        stream.write_all(&message).unwrap();
        reported(log, u64::from_le_bytes(message[8..].try_into().unwrap()), after_ns, before_ns);
        let _ = (&names, &logs);
    }
}

/// Messages come several in a read, are answered by a pool in any order, and leave several in a write; some are sent twice.
fn serve_by_pool(mut stream: TcpStream, log: &Log) {
    let (jobs, taken) = channel::<(Vec<u8>, u64)>();
    let taken = Arc::new(Mutex::new(taken));
    let out = Arc::new(Mutex::new(stream.try_clone().unwrap()));
    for worker in 0..2 {
        let (taken, out, log) = (taken.clone(), out.clone(), log.clone());
        thread::spawn(move || {
            let mut ready: Vec<(Vec<u8>, u64)> = Vec::new();
            loop {
                let job = taken.lock().unwrap().recv_timeout(Duration::from_millis(1));
                let is_idle = job.is_err();
                let is_over = matches!(job, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
                ready.extend(job);
                if ready.len() > worker + 1 || (!ready.is_empty() && is_idle) {
                    // The last one first.
                    let bytes: Vec<u8> =
                        ready.iter().rev().flat_map(|(message, _)| message.clone()).collect();
                    let out = out.lock().unwrap();
                    let before_ns = now();
                    (&*out).write_all(&bytes).unwrap();
                    for (message, after_ns) in ready.drain(..) {
                        reported(&log, id_of(&message), after_ns, before_ns);
                        if id_of(&message).is_multiple_of(16) {
                            (&*out).write_all(&message).unwrap();
                        }
                    }
                }
                if is_over && ready.is_empty() {
                    return;
                }
            }
        });
    }
    let (mut bytes, mut buffer) = (Vec::new(), [0; 256]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        let after_ns = now();
        bytes.extend(&buffer[..count]);
        while bytes.len() >= 2 && bytes.len() >= 2 + usize::from(bytes[1]) {
            let message: Vec<u8> = bytes.drain(..2 + usize::from(bytes[1])).collect();
            jobs.send((message, after_ns)).unwrap();
        }
    }
}

/// The id behind the two bytes of the length.
fn id_of(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[2..10].try_into().unwrap())
}

/// HTTP: every third request is answered as its head has come.
fn serve_early(mut stream: TcpStream, log: &Log) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    for id in 0u64.. {
        let head = loop {
            if let Some(at) = bytes.windows(4).position(|end| end == b"\r\n\r\n") {
                break at + 4;
            }
            let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
            bytes.extend(&buffer[..count]);
        };
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let is_early = bytes.starts_with(b"POST /early");
        if is_early {
            stream.write_all(answer).unwrap();
        }
        let body = if bytes.starts_with(b"POST") { 8 } else { 0 };
        while bytes.len() < head + body {
            let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
            bytes.extend(&buffer[..count]);
        }
        let after_ns = now();
        bytes.drain(..head + body);
        if !is_early {
            let before_ns = now();
            stream.write_all(answer).unwrap();
            reported(log, id, after_ns, before_ns);
        }
    }
}

// --- the tests ----------------------------------------------------------------------------------------------------------------------

struct Broker {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
    address: SocketAddr,
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Broker {
    fn start(style: &str) -> Broker {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "broker", "--ignored", "--nocapture"])
            .env(STYLE, style)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let listens =
            lines.by_ref().find_map(|line| line.unwrap().strip_prefix("listens ").map(str::to_owned));
        Broker { child, lines, address: listens.unwrap().parse().unwrap() }
    }

    /// The broker's own times.
    fn end(mut self) -> Vec<Truth> {
        drop(self.child.stdin.take());
        let truth = |line: String| {
            let numbers: Vec<u64> =
                line.strip_prefix("truth ")?.split(' ').map(|word| word.parse().unwrap()).collect();
            let [id, thread, after_ns, before_ns] = numbers[..] else { panic!("{line}") };
            Some(Truth { id, thread: thread as u32, after_ns, before_ns })
        };
        self.lines.by_ref().filter_map(|line| truth(line.unwrap())).collect()
    }
}

/// Traces a broker with a client for each of its threads; what was joined, and what the broker knows.
fn trace(
    style: &str,
    options: impl Fn(Filter) -> Options,
    client: fn(u64, TcpStream),
) -> (Vec<Message>, Counts, Vec<Truth>) {
    let broker = Broker::start(style);
    let filter = Filter { processes: vec![broker.child.id()], ..Filter::default() };
    let options = Options { slots: 1 << 14, ..options(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    let mut joiner = Joiner::new(options.by(), tracer.at_queue());
    let clients: Vec<_> = (0..THREADS as u64)
        .map(|number| {
            let stream = TcpStream::connect(broker.address).unwrap();
            stream.set_nodelay(true).unwrap();
            thread::spawn(move || client(number, stream))
        })
        .collect();
    let mut messages = Vec::new();
    while !clients.iter().all(|client| client.is_finished()) {
        thread::sleep(Duration::from_millis(2));
        tracer.poll_events(|event| joiner.event(&event, |message| messages.push(message)));
    }
    clients.into_iter().for_each(|client| client.join().unwrap());
    thread::sleep(Duration::from_millis(5));
    tracer.stop_events(|event| joiner.event(&event, |message| messages.push(message)));
    joiner.finish(|message| messages.push(message));
    let seen = tracer.seen();
    assert_eq!((seen.lost, seen.missed, seen.late), (0, 0, 0));
    (messages, joiner.counts(), broker.end())
}

#[test]
fn threads_that_write_logs() {
    needs_root!();
    let (messages, counts, truth) = trace("threads", Options::new, |number, mut stream| {
        for round in 0..ROUNDS {
            let id = (round << 8 | number).to_le_bytes();
            stream.write_all(&[[0; 8], id].concat()).unwrap();
            stream.read_exact(&mut [0; 16]).unwrap();
        }
    });
    assert_eq!(truth.len() as u64, THREADS as u64 * ROUNDS);
    let mut by_thread: HashMap<u32, Vec<Message>> = HashMap::new();
    for message in messages.into_iter().filter(|message| message.received.transport == Transport::Tcp) {
        // A log and a counter end no T2.
        assert!(message.is_reply() && message.sent.transport == Transport::Tcp, "{message:?}");
        by_thread.entry(message.received.thread).or_default().push(message);
    }
    let mut next: HashMap<u32, usize> = HashMap::new();
    for Truth { thread, after_ns, before_ns, .. } in truth {
        let at = next.entry(thread).or_default();
        let message = by_thread[&thread][*at];
        *at += 1;
        assert!(message.received.time_ns <= after_ns && before_ns <= message.sent.time_ns, "{message:?}");
        assert!(message.inside_ns() >= before_ns - after_ns, "{message:?}");
    }
    assert_eq!(next, by_thread.iter().map(|(thread, found)| (*thread, found.len())).collect());
    // Those two, and what is sent to the next round's lookup while the last request is in hand.
    assert_eq!(counts.aside, 3 * THREADS as u64 * ROUNDS, "{counts:?}");
}

#[test]
fn a_pool_that_answers_in_any_order() {
    needs_root!();
    let at = IdAt { received: 2, sent: 2, bytes: 8 };
    let length: Length = "0:2".parse().unwrap();
    let decode = move |filter| Options {
        decode: Some(Decode::Length(length, Some(MessageId::At(at)))),
        capture: 256,
        ..Options::new(filter)
    };
    let (messages, counts, truth) = trace("pool", decode, |number, mut stream| {
        for round in 0..ROUNDS / 4 {
            // Four messages in two writes; the first write's end cuts a message.
            let ids = (0..4u64).map(|part| (round * 4 + part) << 8 | number);
            let bytes: Vec<u8> =
                ids.flat_map(|id| [&[0, 30][..], &id.to_le_bytes(), &[7; 22]].concat()).collect();
            stream.write_all(&bytes[..70]).unwrap();
            stream.write_all(&bytes[70..]).unwrap();
            let again = (0..4).filter(|part| ((round * 4 + part) << 8 | number).is_multiple_of(16)).count();
            stream.read_exact(&mut vec![0; bytes.len() + 32 * again]).unwrap();
        }
    });
    let all = THREADS as u64 * (ROUNDS / 4) * 4;
    assert_eq!((counts.matched, messages.len() as u64, truth.len() as u64), (all, all, all), "{counts:?}");
    let truth: HashMap<u64, Truth> = truth.into_iter().map(|truth| (truth.id, truth)).collect();
    for message in messages {
        let Truth { after_ns, before_ns, .. } = truth[&message.received.id.unwrap()];
        assert!(message.received.time_ns <= after_ns && before_ns <= message.sent.time_ns, "{message:?}");
        assert!(message.is_reply() && message.inside_ns() >= before_ns - after_ns, "{message:?}");
    }
}

#[test]
fn a_server_that_answers_early() {
    needs_root!();
    let decode =
        |filter| Options { decode: Some("http".parse().unwrap()), capture: 1024, ..Options::new(filter) };
    let (messages, counts, truth) = trace("early", decode, |_, mut stream| {
        for round in 0..ROUNDS {
            let early = round % 3 == 1;
            let name = if early { "early" } else { "late" };
            let head = format!("POST /{name} HTTP/1.1\r\nContent-Length: 8\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut answer = [0; 40];
            if early {
                stream.read_exact(&mut answer).unwrap();
            }
            stream.write_all(&round.to_le_bytes()).unwrap();
            if !early {
                stream.read_exact(&mut answer).unwrap();
            }
        }
    });
    let times: HashSet<(u64, u64)> = truth.iter().map(|truth| (truth.after_ns, truth.before_ns)).collect();
    assert_eq!((counts.matched as usize, messages.len()), (times.len(), times.len()), "{counts:?}");
    assert_eq!(counts.early, 2 * (0..ROUNDS).filter(|round| round % 3 == 1).count() as u64 * THREADS as u64);
    for message in messages {
        let (b, c) = (message.received.time_ns, message.sent.time_ns);
        assert!(
            truth
                .iter()
                .any(|of| b <= of.after_ns && of.before_ns <= c && c - b >= of.before_ns - of.after_ns),
            "{message:?}"
        );
    }
}
