//! Finds a message's way from one process to the next. It goes by where it lies in its stream, which sender and receiver count alike; over
//! UDP by its id.
//!
//! Of each stream sends come in their order, and receives in theirs. The notes of the two ends may come in any order, so it works for two
//! hosts whose clocks differ, too.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::ops::AddAssign;

use super::part::{Part, Place};
use crate::record::{Ends, Event, Point, Record, Socket, Transport};

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Point A, or C.
    pub sent: Record,
    /// Point B, or D: the read that brought the message's last byte.
    pub received: Record,
    /// On which hosts: numbers that [`Hops::take`] was given.
    pub hosts: (u8, u8),
}

impl Hop {
    /// Nanoseconds; 0 where the receiver was quicker than the end of the send (Unix sockets).
    pub fn ns(&self) -> u64 {
        self.received.time_ns.saturating_sub(self.sent.time_ns)
    }

    /// The part of the way.
    pub fn part(&self) -> Part {
        let from = match self.sent.point {
            Point::Arrived => Place::R,
            Point::Forwarded => Place::Q,
            _ if self.sent.flags.is_client() => Place::A,
            _ => Place::C,
        };
        let to = match self.received.point {
            Point::Arrived => Place::R,
            Point::Forwarded => Place::Q,
            // A client does not receive its own sends.
            _ if self.received.flags.is_client() && from != Place::A => Place::D,
            _ => Place::B,
        };
        Part { from, to }
    }
}

/// Counts of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopCounts {
    /// Ways found.
    pub matched: u64,
    /// Sends by a stream that its traced receiver was not seen to receive; over UDP, records without another end.
    pub unmatched: u64,
    /// Sends and receives by streams with one end traced: the process at the other end is not.
    pub one_ended: u64,
    /// Of unknown sockets: their first record was lost, they are not connected, or the kernel had no memory to count their streams.
    pub unknown: u64,
    /// Over UDP: an id on its way twice at once.
    pub ambiguous: u64,
    /// Over UDP: messages without an id.
    pub without_id: u64,
}

impl AddAssign for HopCounts {
    fn add_assign(&mut self, more: HopCounts) {
        self.matched += more.matched;
        self.unmatched += more.unmatched;
        self.one_ended += more.one_ended;
        self.unknown += more.unknown;
        self.ambiguous += more.ambiguous;
        self.without_id += more.without_id;
    }
}

/// A stream by its ends, from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// Loopback addresses are those of one host: which.
    Internet(SocketAddr, SocketAddr, Option<u8>),
    Unix(u64, u64),
}

/// A socket of a host.
type At = (u8, u64);

/// A record whose other end has not come.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Which of all.
    number: u64,
    host: u8,
    record: Record,
    /// Its position, not modulo 2^32.
    at: u64,
}

/// Where it waits.
#[derive(Clone, Copy, Debug)]
enum Key {
    Stream(Stream),
    Id(u64),
}

/// An end of a stream.
#[derive(Clone, Copy, Debug)]
struct End {
    socket: At,
    /// Its last position.
    at: u64,
}

/// Messages of a stream with one end seen.
#[derive(Debug, Default)]
struct Unmatched {
    sends: VecDeque<Waiting>,
    receives: VecDeque<Waiting>,
    /// Of sockets at both ends: others of the same addresses start again.
    ends: [Option<End>; 2],
}

/// Positions are counted from here on, so that one before the first is none below zero.
const FIRST: u64 = 1 << 32;

/// Joins what was sent and what was received.
#[derive(Debug)]
pub struct Hops {
    sockets: HashMap<At, Socket>,
    streams: HashMap<Stream, Unmatched>,
    /// Of UDP, by id.
    ids: HashMap<u64, Vec<Waiting>>,
    counts: HopCounts,
    /// The last records, the oldest first, with where each waits if it still does.
    order: VecDeque<(Key, u64)>,
    most: Option<usize>,
    next: u64,
}

impl Hops {
    /// Of the last `most` records, all streams' together, those are kept that wait for their other end; without a number, all.
    pub fn new(most: impl Into<Option<usize>>) -> Hops {
        Hops {
            sockets: HashMap::new(),
            streams: HashMap::new(),
            ids: HashMap::new(),
            counts: HopCounts::default(),
            order: VecDeque::new(),
            most: most.into(),
            next: 0,
        }
    }

    /// The next event of a host; ways go to `each`. The events of a clock come in the order of time, those of hosts nearly so. None may be
    /// more than 2 GiB of its stream behind the other end's.
    pub fn take(&mut self, host: u8, event: &Event, each: impl FnMut(Hop)) {
        match event {
            Event::Socket(socket) => {
                if let Some(old) = self.sockets.insert((host, socket.number), *socket) {
                    for is_sent in [false, true] {
                        let gone =
                            stream(host, &old, is_sent).and_then(|stream| self.streams.remove(&stream));
                        self.counts += gone.map_or_else(HopCounts::default, |ways| ways.left());
                    }
                }
            }
            Event::Passed(_) => {}
            Event::Record(record) if record.transport == Transport::Udp => self.by_id(host, *record, each),
            Event::Record(record) => self.by_position(host, *record, each),
            // Positions tell what is missing.
            Event::Ended { .. } | Event::Gap { .. } | Event::Process { .. } => {}
        }
    }

    fn by_position(&mut self, host: u8, record: Record, mut each: impl FnMut(Hop)) {
        let is_sent = record.point != Point::Received;
        let socket = (host, record.socket);
        let known = self.sockets.get(&socket).and_then(|socket| stream(host, socket, is_sent));
        let Some(stream) = known.filter(|_| !record.flags.has_no_position()) else {
            self.counts.unknown += 1;
            return;
        };
        let number = self.number(Key::Stream(stream));
        let ways = self.streams.entry(stream).or_default();
        let own = usize::from(is_sent);
        if ways.ends[own].is_some_and(|known| known.socket != socket) {
            self.counts += ways.left();
            *ways = Unmatched::default();
        }
        // Bytes on their way are less than half of the range of the numbers.
        let near = ways.ends[own].or(ways.ends[1 - own]).map_or(FIRST, |end| end.at);
        let step = record.position.wrapping_sub(near as u32) as i32;
        let at = near.wrapping_add_signed(step.into());
        ways.ends[own] = Some(End { socket, at });
        let queue = if is_sent { &mut ways.sends } else { &mut ways.receives };
        queue.push_back(Waiting { number, host, record, at });
        while let (Some(sent), Some(received)) = (ways.sends.front(), ways.receives.front()) {
            if received.at >= sent.at {
                let datagram = received.record.transport == Transport::UnixDatagram;
                let read = if datagram { 1 } else { u64::from(received.record.bytes) };
                if received.at - sent.at < read {
                    each(way(sent, received));
                    self.counts.matched += 1;
                } else {
                    // By a read that was not seen.
                    self.counts.unmatched += 1;
                }
                ways.sends.pop_front();
            } else {
                // Every send that ends in it is joined, or was not seen.
                ways.receives.pop_front();
            }
        }
    }

    fn by_id(&mut self, host: u8, record: Record, mut each: impl FnMut(Hop)) {
        let Some(id) = record.id else {
            self.counts.without_id += 1;
            return;
        };
        let new = Waiting { number: self.number(Key::Id(id)), host, record, at: 0 };
        let waiting = self.ids.entry(id).or_default();
        let others: Vec<Waiting> = waiting.iter().filter(|other| new.may_be(other)).copied().collect();
        match others[..] {
            // The same again from the same process: a receive may be of either.
            [] if waiting.iter().any(|other| new.is_end_of(other)) => {
                self.counts.ambiguous += 1;
                waiting.retain(|other| !new.is_end_of(other));
            }
            [] => waiting.push(new),
            [other] => {
                each(if new.is_sent() { way(&new, &other) } else { way(&other, &new) });
                self.counts.matched += 1;
                waiting.retain(|one| one.number != other.number);
            }
            _ => {
                self.counts.ambiguous += 1;
                waiting.retain(|one| !new.may_be(one));
            }
        }
        if waiting.is_empty() {
            self.ids.remove(&id);
        }
    }

    /// Numbers a record, and lets go of the oldest that is one too many.
    fn number(&mut self, key: Key) -> u64 {
        self.next += 1;
        if let Some(most) = self.most {
            self.order.push_back((key, self.next));
            if self.order.len() > most
                && let Some((key, number)) = self.order.pop_front()
            {
                self.drop_oldest(key, number);
            }
        }
        self.next
    }

    fn drop_oldest(&mut self, key: Key, number: u64) {
        match key {
            Key::Stream(stream) => {
                let Some(ways) = self.streams.get_mut(&stream) else { return };
                let is_whole = ways.is_whole();
                let [sent, received] = [&mut ways.sends, &mut ways.receives]
                    .map(|queue| queue.pop_front_if(|oldest| oldest.number == number).is_some());
                self.counts.unmatched += u64::from(sent && is_whole);
                self.counts.one_ended += u64::from((sent || received) && !is_whole);
            }
            Key::Id(id) => {
                let Entry::Occupied(mut waiting) = self.ids.entry(id) else { return };
                let before = waiting.get().len();
                waiting.get_mut().retain(|one| one.number != number);
                self.counts.unmatched += (before - waiting.get().len()) as u64;
                if waiting.get().is_empty() {
                    waiting.remove();
                }
            }
        }
    }

    /// There are no more events.
    pub fn finish(&mut self) {
        for (_, ways) in self.streams.drain() {
            self.counts += ways.left();
        }
        self.counts.unmatched += self.ids.drain().map(|(_, waiting)| waiting.len() as u64).sum::<u64>();
        self.order.clear();
    }

    /// Counts of the records so far.
    pub fn counts(&self) -> HopCounts {
        self.counts
    }
}

fn way(sent: &Waiting, received: &Waiting) -> Hop {
    Hop { sent: sent.record, received: received.record, hosts: (sent.host, received.host) }
}

impl Waiting {
    fn is_sent(&self) -> bool {
        self.record.point != Point::Received
    }

    fn process(&self) -> (u8, u32) {
        (self.host, self.record.process)
    }

    /// Whether it is the same end of a message by the same process.
    fn is_end_of(&self, other: &Waiting) -> bool {
        self.is_sent() == other.is_sent() && self.process() == other.process()
    }

    /// Whether the two may be a message's both ends: of two processes, at least one of them traced, and not received before it was queued.
    fn may_be(&self, other: &Waiting) -> bool {
        let (sent, received) = if self.is_sent() { (self, other) } else { (other, self) };
        let is_backwards = sent.host == received.host
            && sent.record.point == Point::Queued
            && received.record.time_ns < sent.record.time_ns;
        self.is_sent() != other.is_sent()
            && self.process() != other.process()
            && !(self.record.flags.is_client() && other.record.flags.is_client())
            && !is_backwards
    }
}

impl Unmatched {
    fn is_whole(&self) -> bool {
        self.ends.iter().all(Option::is_some)
    }

    /// Counts of records without another end. A receive that waits in a stream whose sender was seen may have been joined already.
    fn left(&self) -> HopCounts {
        let (sends, receives) = (self.sends.len() as u64, self.receives.len() as u64);
        if self.is_whole() {
            HopCounts { unmatched: sends, ..HopCounts::default() }
        } else {
            HopCounts { one_ended: sends + receives, ..HopCounts::default() }
        }
    }
}

/// The stream that a host's socket sends into, or receives from.
fn stream(host: u8, socket: &Socket, is_sent: bool) -> Option<Stream> {
    Some(match (socket.ends, is_sent) {
        (Ends::Internet { local, remote }, _) => {
            let host = local.ip().is_loopback().then_some(host);
            let (from, to) = if is_sent { (local, remote) } else { (remote, local) };
            Stream::Internet(from, to, host)
        }
        (Ends::Unix(peer), true) => Stream::Unix(socket.number, peer?),
        (Ends::Unix(peer), false) => Stream::Unix(peer?, socket.number),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Flags;
    use crate::record::tests::record;

    fn socket(number: u64, local: u16, remote: u16) -> Event {
        let end = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let ends = Ends::Internet { local: end(local), remote: end(remote) };
        Event::Socket(Socket { number, transport: Transport::Tcp, ends })
    }

    fn at(point: Point, socket: u64, position: u32, time: u64) -> Event {
        Event::Record(Record { position, ..record(point, Transport::Tcp, 1, socket, time) })
    }

    /// As [`Hops`] hands them on: the times of their ends.
    fn hops(hops: &mut Hops, events: &[(u8, Event)]) -> Vec<(u64, u64)> {
        let mut found = Vec::new();
        for (host, event) in events {
            hops.take(*host, event, |hop| found.push((hop.sent.time_ns, hop.received.time_ns)));
        }
        hops.finish();
        found
    }

    #[test]
    fn positions_join_whatever_calls_there_were() {
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, socket(1, 10, 20)),
                (0, at(Point::Queued, 1, u32::MAX - 9, 100)),
                (0, socket(2, 20, 10)),
                (0, at(Point::Received, 2, u32::MAX - 4, 103)), // one and a half
                (0, at(Point::Queued, 1, 5, 101)),              // over 2^32
                (0, at(Point::Received, 2, 5, 107)),
                (0, at(Point::Received, 2, 25, 120)), // its end is noted before the send's
                (0, at(Point::Queued, 1, 15, 110)),
                (0, at(Point::Queued, 1, 25, 111)),
                (0, at(Point::Queued, 1, 35, 130)),
                (0, at(Point::Received, 9, 35, 131)),
            ],
        );
        assert_eq!(found, [(100, 103), (101, 107), (110, 120), (111, 120)]);
        assert_eq!(all.counts(), HopCounts { matched: 4, unmatched: 1, unknown: 1, ..HopCounts::default() });
    }

    #[test]
    fn hops_without_positions_are_unknown() {
        let uncounted = |event: Event| match event {
            Event::Record(record) => {
                Event::Record(Record { flags: record.flags.with(Flags::NO_POSITION), ..record })
            }
            other => other,
        };
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, socket(1, 10, 20)),
                (0, socket(2, 20, 10)),
                (0, at(Point::Queued, 1, 64, 1)),
                (0, uncounted(at(Point::Queued, 1, 0, 2))),
                (0, uncounted(at(Point::Received, 2, 0, 3))),
                (0, at(Point::Received, 2, 64, 4)),
            ],
        );
        assert_eq!(found, [(1, 4)]);
        assert_eq!(all.counts(), HopCounts { matched: 1, unknown: 2, ..HopCounts::default() });
    }

    #[test]
    fn sends_of_a_read_that_was_lost_are_not_the_next_reads() {
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, socket(1, 10, 20)),
                (0, socket(2, 20, 10)),
                (0, at(Point::Queued, 1, 64, 1)),
                (0, at(Point::Queued, 1, 128, 2)),
                (0, at(Point::Queued, 1, 192, 3)),
                (0, at(Point::Received, 2, 192, 9)), // 64 bytes
            ],
        );
        assert_eq!((found, all.counts().matched, all.counts().unmatched), (vec![(3, 9)], 1, 2));
    }

    #[test]
    fn clocks_of_hosts_do_not_matter_and_neither_does_the_order_of_files() {
        let sender = [(0, socket(1, 10, 20)), (0, at(Point::Queued, 1, 10, 5_000))];
        let receiver = [(1, socket(1, 20, 10)), (1, at(Point::Received, 1, 10, 7))];
        for events in [[sender, receiver].concat(), [receiver, sender].concat()] {
            assert_eq!(hops(&mut Hops::new(100), &events), [(5_000, 7)]);
        }
    }

    #[test]
    fn loopback_addresses_are_a_hosts_own() {
        let end = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let socket = |number, local, remote| {
            let ends = Ends::Internet { local: end(local), remote: end(remote) };
            Event::Socket(Socket { number, transport: Transport::Tcp, ends })
        };
        let events = [
            (0, socket(1, 10, 20)),
            (1, socket(2, 20, 10)),
            (0, at(Point::Queued, 1, 10, 5)),
            (1, at(Point::Received, 2, 10, 7)),
        ];
        assert_eq!(hops(&mut Hops::new(100), &events), []);
    }

    #[test]
    fn addresses_used_again_begin_anew() {
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, socket(1, 10, 20)),
                (0, socket(2, 20, 10)),
                (0, at(Point::Received, 2, 400, 3)),
                (0, at(Point::Queued, 1, 500, 4)), // never received
                (0, socket(3, 10, 20)),
                (0, at(Point::Queued, 3, 50, 10)),
                (0, socket(2, 20, 10)), // at the same place as the old one
                (0, at(Point::Received, 2, 50, 12)),
            ],
        );
        assert_eq!(found, []);
        assert_eq!(all.counts().matched + all.counts().unmatched, 1, "{:?}", all.counts());
    }

    #[test]
    fn a_stream_may_begin_far_before_its_other_end_is_seen() {
        let mut all = Hops::new(None);
        let mut events = vec![(0, socket(1, 10, 20))];
        // Five GiB before the receiver's trace begins, and then in step.
        events.extend((1..=10u64).map(|half| (0, at(Point::Queued, 1, (half << 29) as u32, half))));
        events.push((1, socket(2, 20, 10)));
        for half in 11..=20 {
            events.push((0, at(Point::Queued, 1, (half << 29) as u32, half)));
            events.push((1, at(Point::Received, 2, (half << 29) as u32, half + 100)));
        }
        let found = hops(&mut all, &events);
        // Messages sent before were read before the first read that was seen.
        assert_eq!(found, std::array::from_fn::<_, 10, _>(|half| (half as u64 + 11, half as u64 + 111)));
    }

    #[test]
    fn streams_with_one_end_are_counted_and_bounded() {
        let mut all = Hops::new(1000);
        let mut events = Vec::new();
        for stream in 0..5000u64 {
            events.push((0, socket(stream, 10 + stream as u16, 9)));
            events.push((0, at(Point::Queued, stream, 10, stream)));
            events.push((0, at(Point::Received, stream, 10, stream)));
        }
        for (host, event) in &events {
            all.take(*host, event, |hop| panic!("{hop:?}"));
        }
        let waiting: usize = all.streams.values().map(|ways| ways.sends.len() + ways.receives.len()).sum();
        assert_eq!((waiting, all.order.len()), (1000, 1000));
        all.finish();
        assert_eq!(all.counts(), HopCounts { one_ended: 10_000, ..HopCounts::default() });
    }

    /// A datagram's record, of a process.
    fn udp(point: Point, process: u32, id: u64, time: u64) -> Event {
        let flags = Flags(if process > 100 { Flags::CLIENT } else { 0 });
        let of = record(point, Transport::Udp, process, u64::from(process), time);
        Event::Record(Record { id: Some(id), flags, process, ..of })
    }

    #[test]
    fn datagrams_are_joined_by_their_ids() {
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, udp(Point::Queued, 101, 7, 1)),
                (0, udp(Point::Received, 1, 7, 2)),
                (0, udp(Point::Queued, 1, 7, 3)),
                (0, udp(Point::Received, 101, 7, 4)),
                (0, udp(Point::Queued, 1, 8, 5)),
                (0, udp(Point::Queued, 1, 8, 6)),
                (0, Event::Record(record(Point::Queued, Transport::Udp, 1, 1, 7))),
            ],
        );
        assert_eq!(found, [(1, 2), (3, 4)]);
        let counts = all.counts();
        assert_eq!((counts.matched, counts.ambiguous, counts.without_id), (2, 1, 1));
    }

    #[test]
    fn datagrams_between_two_traced_processes_are_joined() {
        let way = [
            udp(Point::Queued, 101, 7, 1),
            udp(Point::Received, 1, 7, 2),
            udp(Point::Queued, 1, 7, 3),
            udp(Point::Received, 2, 7, 4),
            udp(Point::Queued, 2, 7, 5),
            udp(Point::Received, 102, 7, 6),
        ];
        let way = way.map(|event| (0, event));
        let mut all = Hops::new(100);
        assert_eq!(hops(&mut all, &way), [(1, 2), (3, 4), (5, 6)]);
        // Without the first receive there are two that the second may be of: neither is guessed.
        let mut all = Hops::new(100);
        assert_eq!(hops(&mut all, &[&way[..1], &way[2..]].concat()), [(5, 6)]);
        assert_eq!(all.counts(), HopCounts { matched: 1, ambiguous: 1, ..HopCounts::default() });
    }

    #[test]
    fn a_flood_of_ids_drops_the_oldest_only() {
        let mut all = Hops::new(10);
        let mut events: Vec<_> = (0..100).map(|id| (0, udp(Point::Queued, 101, id, id))).collect();
        events.extend((95..100).map(|id| (0, udp(Point::Received, 1, id, 200 + id))));
        assert_eq!(hops(&mut all, &events).len(), 5);
        assert_eq!(all.counts(), HopCounts { matched: 5, unmatched: 95, ..HopCounts::default() });
    }
}
