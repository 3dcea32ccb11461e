//! Points in functions of the processes themselves. Every message is found between the broker's own clocks, in a file that moved and in a
//! process with another root. It is found only in the processes that are traced.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Relay, Trip, relay_program};
use trieline_testbed::needs_root;
use trieline_trace::{Backend, By, Counts, Filter, Joiner, Message, Options, Probe, Seen, Tracer, Transport};

const MESSAGES: usize = 200;

fn function(text: String) -> Probe {
    Probe::function(&text).unwrap()
}

fn usdt(text: String) -> Probe {
    Probe::usdt(&text).unwrap()
}

/// A broker whose file is mapped: that is a moment after it was started.
fn mapped(relay: Relay) -> Relay {
    let maps = format!("/proc/{}/maps", relay.pid());
    while !fs::read_to_string(&maps).unwrap().contains("/relay") {
        std::thread::yield_now();
    }
    relay
}

/// The functions by which a message comes and goes in the broker, by the file's path or name.
fn functions(file: &str) -> Vec<Probe> {
    vec![
        function(format!("received={file}:relay_receive%return")),
        function(format!("sent={file}:relay_send")),
    ]
}

fn options(relays: &[&Relay], probes: Vec<Probe>) -> Options {
    let filter = Filter { processes: relays.iter().map(|relay| relay.pid()).collect(), ..Filter::default() };
    Options { probes, slots: 1 << 12, ..Options::new(filter) }
}

/// Passes messages through the broker, and traces them until it has ended: its last receive brings nothing.
fn trace(mut relay: Relay, probes: Vec<Probe>, bytes: [u32; 2]) -> Tracer {
    let mut tracer = Tracer::start(&options(&[&relay], probes)).unwrap();
    assert_eq!((tracer.backend(), tracer.at_queue(), tracer.refused().len()), (Backend::User, false, 0));
    // It may wait in a function already, whose return is then not seen.
    relay.pass(u64::MAX);
    std::thread::sleep(std::time::Duration::from_millis(5));
    tracer.poll(|_| ());
    let trips: Vec<Trip> = (0..MESSAGES).map(|id| relay.pass(id as u64)).collect();
    let clocks = relay.end().split_off(1);

    let mut joiner = Joiner::new(By::Thread, tracer.at_queue());
    let mut messages: Vec<Message> = Vec::new();
    tracer.stop(|record| joiner.take(record, |message| messages.push(message)));
    joiner.finish(|message| messages.push(message));
    let counts = joiner.counts();
    let all = MESSAGES as u64;
    assert_eq!(counts, Counts { received: all, sent: all, matched: all, ..Counts::default() });
    assert_eq!(tracer.seen(), Seen::default());
    for ((message, trip), (after, before)) in messages.iter().zip(&trips).zip(clocks) {
        let (b, c) = (message.received.time_ns, message.sent.time_ns);
        let what = format!("{message:?} {trip:?} {after} {before}");
        assert!(trip.sent_ns <= b && b <= after && before <= c && c <= trip.received_ns, "{what}");
        assert_eq!([message.received.bytes, message.sent.bytes], bytes, "{what}");
        let transports = [message.received.transport, message.sent.transport];
        assert!(transports == [Transport::Function; 2] && !message.is_reply(), "{what}");
    }
    tracer
}

/// A broker that was linked to a fixed address, in a root of its own.
fn elsewhere(root: &Path) -> Relay {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/relay.c");
    let program = root.join("relay");
    let done = Command::new("cc").args(["-O2", "-static", "-no-pie", source, "-o"]).arg(&program).status();
    assert!(done.unwrap().success());
    let mut relay = Command::new("chroot");
    relay.arg(root).arg("/relay");
    mapped(Relay::start_by(relay, "unix-stream", "read"))
}

#[test]
fn every_message_is_found_in_functions() {
    needs_root!();
    let file = relay_program().to_str().unwrap();
    let start = || mapped(Relay::start("udp4", "epoll"));
    trace(start(), functions(file), [64, 0]);

    // By the name of a file that the process has mapped; both ends at static probes.
    let name = relay_program().file_name().unwrap().to_str().unwrap();
    let probes = ["received", "sending"].map(|probe| format!("{name}:relay:{probe}"));
    let [received, sent] = probes;
    let statics = vec![usdt(format!("received={received}")), usdt(format!("sent={sent}"))];
    trace(start(), statics, [0, 0]);

    let mixed = vec![
        function(format!("received={name}:relay_receive%return")),
        usdt(format!("sent={name}:relay:sending")),
    ];
    trace(start(), mixed, [64, 0]);
}

#[test]
fn files_are_the_processs_own() {
    needs_root!();
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("root-{}", std::process::id()));
    fs::create_dir_all(&root).unwrap();
    let relay = elsewhere(&root);
    trace(relay, functions("/relay"), [64, 0]);

    // The file that was started has no name any more, and another one has it.
    let relay = elsewhere(&root);
    fs::rename(root.join("relay"), root.join("old")).unwrap();
    fs::copy(root.join("old"), root.join("relay")).unwrap();
    fs::remove_file(root.join("old")).unwrap();
    let refused = Tracer::start(&options(&[&relay], functions("/relay"))).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("/relay: process {} has", relay.pid())), "{refused}");
    fs::remove_dir_all(&root).unwrap();
    trace(relay, functions("old"), [64, 0]);
}

/// The code of a running broker, and the same in its file.
fn code(relay: &Relay) -> (Vec<u8>, Vec<u8>) {
    let maps = fs::read_to_string(format!("/proc/{}/maps", relay.pid())).unwrap();
    let program = relay_program().to_str().unwrap();
    let line = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(program)).unwrap();
    let mut words = line.split([' ', '-']).map(|word| u64::from_str_radix(word, 16));
    let (from, to) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
    let offset = u64::from_str_radix(line.split(' ').nth(2).unwrap(), 16).unwrap();
    let read = |path: &str, at: u64| {
        let mut bytes = vec![0; (to - from) as usize];
        let read = fs::File::open(path).unwrap().read_at(&mut bytes, at).unwrap();
        bytes.truncate(read);
        bytes
    };
    let memory = read(&format!("/proc/{}/mem", relay.pid()), from);
    (memory, read(program, offset))
}

#[test]
fn only_processes_that_are_traced_pay() {
    needs_root!();
    let start = || mapped(Relay::start("unix-seqpacket", "recv"));
    let (mut one, mut other, mut bystander) = (start(), start(), start());
    let is_untouched = |relay: &Relay| {
        let (memory, file) = code(relay);
        assert!(!file.is_empty());
        memory[..file.len().min(memory.len())] == file[..memory.len().min(file.len())]
    };
    let pass = |relays: [&mut Relay; 3]| relays.into_iter().for_each(|relay| relay.pass_many(0..10));
    pass([&mut one, &mut other, &mut bystander]);
    let mut tracer =
        Tracer::start(&options(&[&one, &other], functions(relay_program().to_str().unwrap()))).unwrap();
    let touched = [&one, &other, &bystander].map(|relay| !is_untouched(relay));
    assert_eq!(touched, [true, true, false]);
    // The receives that were waited in are not seen to return.
    pass([&mut one, &mut other, &mut bystander]);
    let count = |tracer: &mut Tracer| {
        let mut joiner = Joiner::new(By::Thread, tracer.at_queue());
        tracer.stop(|record| joiner.take(record, |_| ()));
        joiner.finish(|_| ());
        (joiner.counts().received, joiner.counts().sent, joiner.counts().matched)
    };
    assert_eq!(count(&mut tracer), (18, 20, 18));
    // And as long as they are: nothing is left behind, and it can begin again.
    assert!([&one, &other].into_iter().all(is_untouched));
    pass([&mut one, &mut other, &mut bystander]);
    tracer.resume().unwrap();
    pass([&mut one, &mut other, &mut bystander]);
    assert_eq!(count(&mut tracer), (18, 20, 18));
    for relay in [one, other, bystander] {
        relay.end();
    }
}
