//! A process that begins another program has another runtime: what moves messages between threads there is not joined by thread.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::{Relay, relay_program};
use trieline_testbed::{command::copy_program, needs_root};
use trieline_trace::{By, Filter, Joiner, Options, Tracer};

const MESSAGES: u64 = 50;

#[test]
fn a_runtime_that_comes_by_exec_is_seen() {
    needs_root!();
    // By its name it is Erlang's virtual machine.
    let folder = tempfile::tempdir().unwrap();
    let next = folder.path().join("beam.smp");
    copy_program(relay_program(), &next);
    let mut command = Command::new(relay_program());
    command.env("RELAY_NEXT", &next);
    let mut relay = Relay::start_by(command, "unix-stream", "read");
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let mut tracer = Tracer::start(&Options::new(filter)).unwrap();
    relay.seen_by(&tracer);
    let mut joiner = Joiner::new(By::Thread, tracer.at_queue());
    let mut found = 0;
    relay.pass(0);
    let start = Instant::now();
    while joiner.counts().sent == 0 {
        assert!(start.elapsed() < Duration::from_secs(10), "the first program is not known");
        std::thread::sleep(Duration::from_millis(2));
        tracer.poll_events(|event| joiner.event(&event, |_| found += 1));
    }
    (1..=MESSAGES).for_each(|id| _ = relay.pass(id));
    std::thread::sleep(Duration::from_millis(5));
    tracer.stop_events(|event| joiner.event(&event, |_| found += 1));
    joiner.finish(|_| found += 1);
    relay.end();
    let counts = joiner.counts();
    assert_eq!((found, counts.matched, counts.shared), (2, 2, MESSAGES - 1), "{counts:?}");
}
