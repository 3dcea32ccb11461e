//! A message's ways from process to process: every one is found, in every transport, where the client's own clock says that it must be.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::Duration;

use common::{Relay, TRANSPORTS, Trip};
use trieline_testbed::needs_root;
use trieline_trace::{Client, Filter, Hop, HopCounts, Hops, Joiner, Message, Options, Part, Point, Tracer};
use trieline_trace::{Event, Summary};

const MESSAGES: usize = 200;

fn follow(transport: &str, style: &str) {
    let mut relay = Relay::start(transport, style);
    // Bytes in a socket before the first record are not known there.
    let filter = Filter { processes: vec![relay.pid()], ..Filter::default() };
    let id = transport.starts_with("udp").then(|| "8:8".parse().unwrap());
    let clients = vec![Client::Process(std::process::id())];
    let options = Options { id, clients, stages: true, slots: 1 << 12, ..Options::new(filter) };
    let mut tracer = Tracer::start(&options).unwrap();
    relay.seen_by(&tracer);
    let mut joiner = Joiner::new(options.by(), tracer.at_queue());
    let mut hops = Hops::new(1 << 10);
    let trips: Vec<Trip> = (0..MESSAGES).map(|id| relay.pass(id as u64)).collect();
    std::thread::sleep(Duration::from_millis(5));
    let (mut messages, mut ways): (Vec<Message>, Vec<Hop>) = Default::default();
    tracer.stop_events(|event| {
        hops.take(0, &event, |hop| ways.push(hop));
        if let Event::Record(record) = event {
            joiner.take(record, |message| messages.push(message));
        }
    });
    joiner.finish(|message| messages.push(message));
    hops.finish();
    relay.end();

    let what = format!("{transport} {style}: {:?} {:?} {:?}", hops.counts(), joiner.counts(), tracer.seen());
    assert_eq!(messages.len(), MESSAGES, "{what}");
    assert_eq!(hops.counts(), HopCounts { matched: 2 * MESSAGES as u64, ..HopCounts::default() }, "{what}");
    let mut summary = Summary::default();
    ways.iter().for_each(|hop| summary.add_hop(hop));
    let parts: Vec<_> = summary.stages().map(|(stage, times)| (stage.part, times.len() as usize)).collect();
    assert_eq!(parts, [(Part::IN, MESSAGES), (Part::OUT, MESSAGES)], "{what}");
    let of = |part| ways.iter().filter(move |hop| hop.part() == part);
    for (((trip, message), to), from) in trips.iter().zip(&messages).zip(of(Part::IN)).zip(of(Part::OUT)) {
        let what = format!("{what}: {trip:?} {message:?} {to:?} {from:?}");
        // The way's ends are the message's own.
        assert_eq!((to.received, from.sent), (message.received, message.sent), "{what}");
        let (a, d) = (to.sent.time_ns, from.received.time_ns);
        assert!(trip.sent_ns <= a && d <= trip.received_ns, "{what}");
        if to.sent.point == Point::Queued {
            assert!(a <= message.received.time_ns && message.sent.time_ns <= d, "{what}");
        }
    }
}

#[test]
fn every_way_is_found() {
    needs_root!();
    for transport in TRANSPORTS {
        for style in ["read", "recvmsg", "recvmmsg"] {
            follow(transport, style);
        }
    }
}
