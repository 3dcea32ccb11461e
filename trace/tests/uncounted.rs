//! A stream for which the kernel has no memory has no positions. Each of its records says so, and its ways are counted as unknown and not
//! guessed. In a process of its own, as it is a client.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::fs;
use std::path::Path;
use std::time::Duration;

use common::Relay;
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;
use trieline_trace::{Client, Event, Filter, HopCounts, Hops, Options, Tracer};

const MESSAGES: u64 = 50;
/// Of each socket: what is attached to it, as the hooks' counts are.
const LIMIT: &str = "/proc/sys/net/core/optmem_max";

/// Without that memory, and then with it again.
fn follow(transport: &str, limit: &str) {
    fs::write(LIMIT, "0").unwrap();
    let mut relay = Relay::start(transport, "recv");
    let clients = vec![Client::Process(std::process::id())];
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let options = Options { clients, stages: true, slots: 1 << 12, ..Options::new(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    relay.seen_by(&tracer);
    let mut hops = Hops::new(None);
    let (mut uncounted, mut counted) = (0, 0);
    let mut take = |event: Event| {
        hops.take(0, &event, |_| ());
        if let Event::Record(record) = event {
            if record.flags.has_no_position() {
                assert_eq!(record.position, 0, "{record:?}");
                uncounted += 1;
            } else {
                counted += 1;
            }
        }
    };
    for id in 0..MESSAGES {
        relay.pass(id);
    }
    std::thread::sleep(Duration::from_millis(5));
    tracer.stop_events(&mut take);
    fs::write(LIMIT, limit).unwrap();
    tracer.resume().unwrap();
    relay.seen_by(&tracer);
    for id in 0..MESSAGES {
        relay.pass(id);
    }
    std::thread::sleep(Duration::from_millis(5));
    tracer.stop_events(take);
    hops.finish();
    relay.end();

    // Each message is sent and received twice.
    assert_eq!((uncounted, counted), (4 * MESSAGES, 4 * MESSAGES), "{transport}");
    let known = HopCounts { matched: 2 * MESSAGES, unknown: 4 * MESSAGES, ..HopCounts::default() };
    assert_eq!((hops.counts(), tracer.seen().lost), (known, 0), "{transport}");
}

#[test]
fn streams_that_the_kernel_cannot_count_are_unknown() {
    needs_root!();
    let host = Namespace::new("uncounted");
    host.enter(|| {
        let Ok(limit) = fs::read_to_string(LIMIT) else {
            // Older kernels have one limit for all of them, which is not a test's to change.
            assert!(Path::new("/proc/sys/net/core").exists());
            return println!("EXPECTED SKIP: network namespaces have no limit of their own here");
        };
        for transport in ["unix-stream", "unix-datagram", "unix-seqpacket", "tcp4"] {
            follow(transport, limit.trim());
        }
    });
}
