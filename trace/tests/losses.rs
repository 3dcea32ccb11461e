//! Nothing is lost unsaid. At the highest rate that a broker reaches every message is matched, and what a ring that is too small overwrites
//! is counted exactly.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::time::{Duration, Instant};

use common::Relay;
use trieline_testbed::needs_root;
use trieline_trace::{By, Event, Filter, IdAt, Joiner, Live, Options, Seen, Tracer};

/// Messages at full speed: `TRIELINE_TRACE_MESSAGES`, for emulated processors.
fn messages() -> usize {
    let reported = std::env::var("TRIELINE_TRACE_MESSAGES");
    reported.map_or(100_000, |messages| messages.parse().expect("TRIELINE_TRACE_MESSAGES is a number"))
}

fn options(relay: &Relay) -> Options {
    Options::new(Filter { processes: vec![relay.pid()], ..Filter::default() })
}

#[test]
fn every_message_is_matched_at_full_speed() {
    needs_root!();
    let messages = messages();
    // With several under way the broker is never idle; a stream would make one message of them.
    for (transport, under_way, by) in
        [("udp4", 32, By::Id), ("tcp4", 1, By::Thread), ("unix-seqpacket", 8, By::Thread)]
    {
        let mut relay = Relay::start(transport, "recv");
        let mut options = options(&relay);
        if by == By::Id {
            options.id = Some(IdAt { received: 8, sent: 8, bytes: 8 });
        }
        let mut tracer = Tracer::start(&options).unwrap();
        relay.seen_by(&tracer);
        let mut joiner = Joiner::new(by, tracer.at_queue());
        let mut matched = 0;
        for first in (0..messages as u64).step_by(under_way) {
            relay.pass_many(first..(first + under_way as u64).min(messages as u64));
            // As often as the command reads: a ring holds 65,536 records.
            if first.is_multiple_of(6400) {
                tracer.poll(|record| joiner.take(record, |_| matched += 1));
            }
        }
        std::thread::sleep(Duration::from_millis(5));
        tracer.stop(|record| joiner.take(record, |_| matched += 1));
        joiner.finish(|_| matched += 1);
        let (seen, counts) = (tracer.seen(), joiner.counts());
        // Late ones are no losses: a virtual CPU may stand still in a hook.
        assert_eq!((matched, seen.lost, seen.missed), (messages, 0, 0), "{transport} {by:?}: {counts:?}");
        relay.end();
    }
}

#[test]
fn every_record_is_passed_on_or_counted_as_lost() {
    needs_root!();
    let mut relay = Relay::start("unix-seqpacket", "recv");
    let mut tracer = Tracer::start(&Options { slots: 64, ..options(&relay) }).unwrap();
    relay.seen_by(&tracer);
    let sent: u64 = 5000;
    let mut passed = 0u64;
    for id in 0..sent {
        relay.pass(id);
        if id % 500 == 250 {
            tracer.poll(|_| passed += 1);
        }
    }
    std::thread::sleep(Duration::from_millis(5));
    tracer.stop(|_| passed += 1);
    let Seen { lost, missed, discarded, .. } = tracer.seen();
    assert_eq!((passed + lost + discarded, missed), (2 * sent, 0));
    assert!(lost > sent, "{lost}");
    relay.end();
}

#[test]
fn windows_without_hooks_are_paused_and_not_lost() {
    needs_root!();
    let mut relay = Relay::start("udp4", "recv");
    let mut tracer = Tracer::start(&options(&relay)).unwrap();
    let mut joiner = Joiner::new(By::Thread, tracer.at_queue());
    let mut live = Live::new(&[relay.pid()]);
    let (mut matched, mut pauses, mut id) = (0u64, 0, 0);
    let started = Instant::now();
    while live.cost().pairs < 2 && started.elapsed() < Duration::from_secs(20) {
        relay.pass_many(id..id + 32);
        id += 32;
        let mut take = |event: Event| {
            pauses += u64::from(matches!(event, Event::Gap { .. }));
            joiner.event(&event, |_| matched += 1);
        };
        tracer.poll_events(&mut take);
        live.turn(&mut tracer, take).unwrap();
    }
    let cost = live.cost();
    tracer.stop_events(|event| {
        pauses += u64::from(matches!(event, Event::Gap { .. }));
        joiner.event(&event, |_| matched += 1);
    });
    joiner.finish(|_| matched += 1);
    assert!(cost.pairs == 2 && pauses >= 2, "{cost:?}");
    assert!(cost.paused >= Duration::from_millis(200) && cost.paused < started.elapsed(), "{cost:?}");
    assert!(
        cost.packets.value.is_finite() && cost.cpu.value.is_finite() && cost.cpu_per_packet.value.is_finite(),
        "{cost:?}"
    );
    assert!(cost.packets.interval().is_none() && cost.cpu.interval().is_none(), "of two pairs: {cost:?}");
    assert!(matched > 0 && matched < id && tracer.seen().lost == 0, "{matched} of {id}");
    relay.end();
}
