//! Finds a message's way from one process to the next: by where it lies in its stream, which sender and receiver count alike; over UDP by
//! its id.
//!
//! It needs no order in time between the two ends: of each stream sends come in their order, and receives in theirs. So it works
//! for two hosts whose clocks differ, too.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use crate::record::{Ends, Event, Point, Record, Socket, Transport};
use crate::summary::{Part, Place};

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

    /// Which way it is.
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
            // What a client has sent it does not receive itself.
            _ if self.received.flags.is_client() && from != Place::A => Place::D,
            _ => Place::B,
        };
        Part { from, to }
    }
}

/// What became of the records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopCounts {
    /// Ways found.
    pub matched: u64,
    /// Sends by a stream whose receiver was seen, and receives by one whose sender was, without the other end.
    pub unmatched: u64,
    /// Of sockets that nobody knows: their first record was lost, or they are not connected.
    pub unknown: u64,
    /// Over UDP: an id on its way twice at once.
    pub ambiguous: u64,
    /// Over UDP: messages without an id.
    pub without_id: u64,
}

/// A stream by its ends, from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// Loopback addresses are those of one host: which.
    Internet(SocketAddr, SocketAddr, Option<u8>),
    Unix(u64, u64),
}

/// A socket of a host.
type End = (u8, u64);

/// Messages of a stream of which one end was seen.
#[derive(Debug, Default)]
struct Ways {
    sends: VecDeque<(u8, Record)>,
    receives: VecDeque<(u8, Record)>,
    /// Sockets at both ends: others of the same addresses begin anew.
    ends: [Option<End>; 2],
}

/// Joins what was sent and what was received.
#[derive(Debug)]
pub struct Hops {
    sockets: HashMap<End, Socket>,
    streams: HashMap<Stream, Ways>,
    /// Of UDP, by id and whether to the traced: sends and receives.
    ids: HashMap<(u64, bool), Ways>,
    counts: HopCounts,
    waiting_max: usize,
}

impl Hops {
    /// For each stream up to `waiting_max` sends or receives are kept that wait for their other end.
    pub fn new(waiting_max: usize) -> Hops {
        Hops {
            sockets: HashMap::new(),
            streams: HashMap::new(),
            ids: HashMap::new(),
            counts: HopCounts::default(),
            waiting_max,
        }
    }

    /// The next event of a host; ways go to `each`.
    pub fn take(&mut self, host: u8, event: &Event, each: impl FnMut(Hop)) {
        match event {
            Event::Socket(socket) => {
                if let Some(old) = self.sockets.insert((host, socket.number), *socket) {
                    for is_sent in [false, true] {
                        let gone =
                            stream(host, &old, is_sent).and_then(|stream| self.streams.remove(&stream));
                        self.counts.unmatched += gone.map_or(0, |ways| ways.left());
                    }
                }
            }
            Event::Passed(_) => {}
            Event::Record(record) if record.transport == Transport::Udp => self.by_id(host, *record, each),
            Event::Record(record) => self.by_position(host, *record, each),
        }
    }

    fn by_position(&mut self, host: u8, record: Record, mut each: impl FnMut(Hop)) {
        let is_sent = record.point != Point::Received;
        let place = (host, record.socket);
        let known = self.sockets.get(&place).and_then(|socket| stream(host, socket, is_sent));
        let Some(stream) = known else {
            self.counts.unknown += 1;
            return;
        };
        let ways = self.streams.entry(stream).or_default();
        let end = &mut ways.ends[usize::from(is_sent)];
        if end.is_some_and(|known| known != place) {
            self.counts.unmatched += ways.left();
            *ways = Ways::default();
        }
        ways.ends[usize::from(is_sent)] = Some(place);
        let queue = if is_sent { &mut ways.sends } else { &mut ways.receives };
        queue.push_back((host, record));
        if queue.len() > self.waiting_max {
            queue.pop_front();
            self.counts.unmatched += u64::from(ways.ends.iter().all(Option::is_some));
        }
        while let (Some((from, sent)), Some((to, received))) = (ways.sends.front(), ways.receives.front()) {
            // Numbers come round: which is before the other is told by the sign of the difference.
            if received.position.wrapping_sub(sent.position) as i32 >= 0 {
                each(Hop { sent: *sent, received: *received, hosts: (*from, *to) });
                self.counts.matched += 1;
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
        let is_sent = record.point != Point::Received;
        if self.ids.len() > self.waiting_max {
            self.counts.unmatched += self.ids.len() as u64;
            self.ids.clear();
        }
        let is_in = record.flags.is_client() == is_sent;
        let ways = self.ids.entry((id, is_in)).or_default();
        let queue = if is_sent { &mut ways.sends } else { &mut ways.receives };
        queue.push_back((host, record));
        match (ways.sends.make_contiguous(), ways.receives.make_contiguous()) {
            ([_], []) | ([], [_]) => {}
            ([(from, sent)], [(to, received)]) => {
                each(Hop { sent: *sent, received: *received, hosts: (*from, *to) });
                self.counts.matched += 1;
                self.ids.remove(&(id, is_in));
            }
            // Which of them it is cannot be told.
            _ => {
                self.counts.ambiguous += 1;
                self.ids.remove(&(id, is_in));
            }
        }
    }

    /// There are no more events.
    pub fn finish(&mut self) {
        let streams = self.streams.drain().map(|(_, ways)| ways.left());
        let ids = self.ids.drain().map(|(_, ways)| (ways.sends.len() + ways.receives.len()) as u64);
        self.counts.unmatched += streams.chain(ids).sum::<u64>();
    }

    /// What became of the records so far.
    pub fn counts(&self) -> HopCounts {
        self.counts
    }
}

impl Ways {
    /// Sends that were not received, of a stream whose both ends were seen. A receive that waits may have been joined already.
    fn left(&self) -> u64 {
        if self.ends.iter().all(Option::is_some) { self.sends.len() as u64 } else { 0 }
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
    use crate::join::tests::record;
    use crate::record::Flags;

    fn socket(number: u64, local: u16, remote: u16) -> Event {
        let end = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let ends = Ends::Internet { local: end(local), remote: end(remote) };
        Event::Socket(Socket { number, transport: Transport::Tcp, ends })
    }

    fn at(point: Point, socket: u64, position: u32, time: u64) -> Event {
        Event::Record(Record { position, ..record(point, Transport::Tcp, 1, socket, time) })
    }

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
    fn datagrams_are_joined_by_their_ids() {
        let udp = |point, id, client: bool, time| {
            let flags = Flags(if client { Flags::CLIENT } else { 0 });
            Event::Record(Record { id, flags, ..record(point, Transport::Udp, 1, time, time) })
        };
        let mut all = Hops::new(100);
        let found = hops(
            &mut all,
            &[
                (0, udp(Point::Queued, Some(7), true, 1)),
                (0, udp(Point::Received, Some(7), false, 2)),
                (0, udp(Point::Queued, Some(7), false, 3)),
                (0, udp(Point::Received, Some(7), true, 4)),
                (0, udp(Point::Queued, Some(8), false, 5)),
                (0, udp(Point::Queued, Some(8), false, 6)),
                (0, udp(Point::Queued, None, false, 7)),
            ],
        );
        assert_eq!(found, [(1, 2), (3, 4)]);
        let counts = all.counts();
        assert_eq!((counts.matched, counts.ambiguous, counts.without_id), (2, 1, 1));
    }
}
