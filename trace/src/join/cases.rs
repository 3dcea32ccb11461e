//! Brokers whose messages were once joined wrongly, or not at all, with nothing said: what each did, and the time that it took.

use super::tests::join;
use super::{By, Counts, Joiner, Message};
use crate::decode::ANSWER;
use crate::record::Point::{Queued, Received, Sent};
use crate::record::Transport::{Tcp, UnixDatagram};
use crate::record::tests::record;
use crate::record::{Ends, Event, Kind, Point, Record, Socket, Transport};
use crate::runtime::Runtime;

const MS: u64 = 1_000_000;

fn at(time: u64, point: Point, transport: Transport, socket: u64, thread: u32) -> Record {
    record(point, transport, thread, socket, time)
}

fn id(id: u64, kind: Kind, record: Record) -> Record {
    Record { id: Some(id), kind, ..record }
}

/// T2 in microseconds, each once, and the counts.
fn times(by: By, records: impl Iterator<Item = Record>) -> (Vec<u64>, Counts) {
    let (messages, counts) = join(by, true, &records.collect::<Vec<_>>());
    (different(&messages), counts)
}

fn different(messages: &[Message]) -> Vec<u64> {
    let mut times: Vec<u64> = messages.iter().map(|message| message.inside_ns() / 1000).collect();
    times.sort();
    times.dedup();
    times
}

#[test]
fn a_line_of_a_log_is_no_answer() {
    let round = |n: u64| {
        let t = MS + n * 10 * MS;
        [
            at(t, Received, Tcp, 1, 7),
            at(t + 10_000, Sent, UnixDatagram, 9, 7),
            at(t + 5 * MS, Queued, Tcp, 1, 7),
        ]
    };
    let (found, counts) = times(By::Thread, (0..100).flat_map(round));
    assert_eq!((found, counts.matched, counts.aside), (vec![5000], 100, 100));
    // It may as well follow the answer.
    let round = |n: u64| {
        let [received, log, sent] = round(n);
        [received, Record { time_ns: sent.time_ns - 10_000, ..sent }, Record { time_ns: sent.time_ns, ..log }]
    };
    let (found, counts) = times(By::Thread, (0..100).flat_map(round));
    assert_eq!((found, counts.matched, counts.aside, counts.copies), (vec![4990], 100, 100, 0));
}

#[test]
fn an_id_passes_two_processes() {
    let round = |n: u64| {
        let t = MS + n * MS;
        let of = |process, record| Record { process, ..id(n, Kind::Message, record) };
        [
            of(7, at(t, Received, UnixDatagram, 1, 7)),
            // On its way before the end of the send is seen.
            of(8, at(t + 20_000, Received, UnixDatagram, 3, 8)),
            of(7, at(t + 21_000, Sent, UnixDatagram, 2, 7)),
            of(8, at(t + 60_000, Sent, UnixDatagram, 4, 8)),
        ]
    };
    let (found, counts) = times(By::Id, (0..100).flat_map(round));
    assert_eq!((found, counts.matched, counts.ambiguous), (vec![21, 40], 200, 0));
}

#[test]
fn messages_sent_by_another_process_have_no_time_inside() {
    let round = |n: u64| {
        let t = MS + n * MS;
        let of = |process, record| Record { process, ..id(n, Kind::Message, record) };
        [of(7, at(t, Received, Tcp, 1, 7)), of(4242, at(t + 500_000, Queued, Tcp, 9, 4242))]
    };
    let (found, counts) = times(By::Id, (0..100).flat_map(round));
    assert_eq!((found, counts.unmatched_received, counts.unmatched_sent), (vec![], 100, 100));
}

#[test]
fn equal_requests_in_flight_are_matched() {
    let round = |n: u64| {
        let t = MS + n * MS;
        let ask = |record| id(0x1234, Kind::Request, record);
        let say = |record| id(0x1234 ^ ANSWER, Kind::Response, record);
        [
            ask(at(t, Received, Tcp, 1, 7)),
            ask(at(t + 1000, Received, Tcp, 2, 8)),
            say(at(t + 100_000, Queued, Tcp, 1, 7)),
            say(at(t + 101_000, Queued, Tcp, 2, 8)),
        ]
    };
    let (found, counts) = times(By::Id, (0..100).flat_map(round));
    assert_eq!((found, counts.matched, counts.ambiguous, counts.unmatched_sent), (vec![100], 200, 0, 0));
}

#[test]
fn two_clients_count_alike() {
    let round = |n: u64| {
        let t = MS + n * MS;
        let of = |record| id(n, Kind::Message, record);
        [
            of(at(t, Received, Tcp, 1, 7)),
            of(at(t + 1000, Received, Tcp, 2, 8)),
            of(at(t + 50_000, Queued, Tcp, 1, 7)),
            of(at(t + 51_000, Queued, Tcp, 2, 8)),
        ]
    };
    let (found, counts) = times(By::Id, (0..100).flat_map(round));
    assert_eq!((found, counts.matched, counts.ambiguous), (vec![50], 200, 0));
}

#[test]
fn a_late_copy_is_not_the_next_messages() {
    let round = |n: u64| {
        let t = MS + n * 100 * MS;
        let of = |record| id(77, Kind::Publish, record);
        [
            of(at(t, Received, Tcp, 1, 7)),
            of(at(t + 10_000, Queued, Tcp, 2, 7)),
            of(at(t + 20 * MS, Received, Tcp, 1, 7)),
            of(at(t + 20 * MS + 1000, Queued, Tcp, 3, 8)), // of the first
            of(at(t + 20 * MS + 10_000, Queued, Tcp, 2, 7)),
            of(at(t + 20 * MS + 11_000, Queued, Tcp, 3, 8)),
        ]
    };
    let (found, counts) = times(By::Id, (0..50).flat_map(round));
    // The late one may be the first's, or a new subscriber's.
    assert_eq!((found, counts.matched, counts.ambiguous), (vec![10], 50, 50));
    // Without such, the same payload again and again is joined.
    let round = |n: u64| {
        let of = |record| id(77, Kind::Publish, record);
        let t = MS + n * MS;
        [
            of(at(t, Received, Tcp, 1, 7)),
            of(at(t + 9000, Queued, Tcp, 2, 7)),
            of(at(t + 9500, Queued, Tcp, 3, 7)),
        ]
    };
    let (found, counts) = times(By::Id, (0..50).flat_map(round));
    assert_eq!((found, counts.matched, counts.copies), (vec![9], 50, 50));
}

#[test]
fn threads_of_some_runtimes_take_turns() {
    let mut joiner = Joiner::new(By::Thread, true);
    let mut found = Vec::new();
    let go = Event::Process { process: 1, runtime: Some(Runtime::Go) };
    let round = |n: u64| {
        let t = MS + n * MS;
        // It reads one message, and sends the one that another thread has read a millisecond ago.
        [at(t, Received, Tcp, 1, 7).into(), at(t + 2000, Queued, Tcp, 2, 7).into()]
    };
    for event in [go].into_iter().chain((0..100).flat_map(round)) {
        joiner.event(&event, |message| found.push(message));
    }
    joiner.finish(|message| found.push(message));
    assert_eq!((different(&found), joiner.counts().shared, joiner.counts().matched), (vec![], 100, 0));
}

#[test]
fn a_second_copy_is_not_the_next_message() {
    for kind in [Kind::Publish, Kind::Message] {
        // To a subscriber, or back to the client.
        let to = if kind == Kind::Publish { 2 } else { 1 };
        let round = |n: u64| {
            let of = |record| id(77, kind, record);
            let t = MS + n * 20 * MS;
            [
                Some(of(at(t, Received, Tcp, 1, 7))),
                // The second copy of the one before leaves when this one is there.
                (n > 0).then_some(of(at(t + 10_000, Queued, Tcp, to, 7))),
                Some(of(at(t + 11_000, Queued, Tcp, to, 7))),
            ]
        };
        let (found, counts) = times(By::Id, (0..100).flat_map(round).flatten());
        assert_eq!((found, counts.matched, counts.ambiguous), (vec![11], 1, 99), "{kind:?}: {counts:?}");
    }
}

#[test]
fn a_request_may_wait_for_long() {
    const S: u64 = 1000 * MS;
    let ask = |record| id(0x1234, Kind::Request, record);
    let say = |record| id(0x1234 ^ ANSWER, Kind::Response, record);
    let records = [
        ask(at(S, Received, Tcp, 1, 7)),
        ask(at(90 * S, Received, Tcp, 2, 7)),
        say(at(91 * S, Queued, Tcp, 2, 7)),
        say(at(101 * S, Queued, Tcp, 1, 7)),
    ];
    let (found, counts) = times(By::Id, records.into_iter());
    assert_eq!(
        (found, counts.unmatched_received, counts.unmatched_sent),
        (vec![1_000_000, 100_000_000], 0, 0)
    );
}

#[test]
fn sends_of_batches_are_counted() {
    let records = [
        at(10, Received, Tcp, 1, 7),
        at(11, Received, Tcp, 2, 7),
        at(20, Queued, Tcp, 1, 7),
        at(21, Queued, Tcp, 2, 7),
    ];
    let (found, counts) = times(By::Thread, records.into_iter());
    assert_eq!((found, counts.ambiguous, counts.undecided), (vec![], 2, 2));
}

#[test]
fn a_socket_at_the_place_of_another_has_received_nothing() {
    let socket = Event::Socket(Socket { number: 9, transport: UnixDatagram, ends: Ends::Unix(None) });
    let round = |n: u64| {
        let t = MS + n * MS;
        let record = |time, point, transport, socket| at(t + time, point, transport, socket, 7).into();
        [
            socket,
            record(1, Received, UnixDatagram, 9), // a name is looked up
            record(2, Sent, UnixDatagram, 9),
            socket,
            record(3, Received, Tcp, 1),
            record(4, Sent, UnixDatagram, 9), // a line of a log
            record(500_000, Queued, Tcp, 1),
        ]
    };
    let mut joiner = Joiner::new(By::Thread, true);
    let mut found = Vec::new();
    (0..100).flat_map(round).for_each(|event| joiner.event(&event, |message| found.push(message)));
    joiner.finish(|message| found.push(message));
    assert_eq!((different(&found), joiner.counts().aside, joiner.counts().ways), (vec![0, 499], 100, 0));
}
