//! Splits a message's way at the devices that it passes. They are where it arrives at a host, and where a host that forwards it takes it in
//! and sends it out.
//!
//! The processes there are not known: the message is known by its id, and its direction by its port.

use std::collections::HashMap;

use super::hops::Hop;
use super::part::Part;
use crate::record::Record;

/// Devices that messages have passed and whose way is not known yet.
#[derive(Debug)]
pub struct Passes {
    /// By id and whether towards the traced port, with the host of each.
    waiting: HashMap<(u64, bool), Vec<(u8, Record)>>,
    waiting_max: usize,
    found: u64,
    unmatched: u64,
}

impl Passes {
    /// Up to `waiting_max` messages are kept that wait for their way.
    pub fn new(waiting_max: usize) -> Passes {
        Passes { waiting: HashMap::new(), waiting_max, found: 0, unmatched: 0 }
    }

    /// A message at a device of a host. At each host the first arrival counts: below a bridge or a bond the same packet arrives again.
    pub fn take(&mut self, host: u8, record: Record) {
        let Some(id) = record.id else {
            self.unmatched += 1;
            return;
        };
        if self.waiting.len() > self.waiting_max {
            self.finish();
        }
        let known = self.waiting.entry((id, record.flags.is_client())).or_default();
        if !known.iter().any(|(at, other)| *at == host && other.point == record.point) {
            known.push((host, record));
        }
    }

    /// The parts of a way, in the order of time; none where no device was seen. `time`: by the clock of the hop's own times.
    pub fn split(&mut self, hop: &Hop, time: impl Fn(u8, &Record) -> Option<u64>) -> Vec<Hop> {
        let ends = (hop.hosts.1, hop.received);
        self.parts(Some((hop.hosts.0, hop.sent)), ends, hop.part() != Part::OUT, time)
    }

    /// The same of a message whose sender is not known.
    pub fn received(&mut self, host: u8, received: Record) -> Vec<Hop> {
        let is_client = received.flags.is_client();
        self.parts(None, (host, received), !is_client, |_, record| Some(record.time_ns))
    }

    fn parts(
        &mut self,
        sent: Option<(u8, Record)>,
        received: (u8, Record),
        towards: bool,
        time: impl Fn(u8, &Record) -> Option<u64>,
    ) -> Vec<Hop> {
        let passed = received.1.id.and_then(|id| self.waiting.remove(&(id, towards))).unwrap_or_default();
        let mut points: Vec<(u8, Record)> = Vec::new();
        for (host, record) in passed {
            match time(host, &record) {
                Some(time_ns) => points.push((host, Record { time_ns, ..record })),
                None => self.unmatched += 1,
            }
        }
        if points.is_empty() {
            return Vec::new();
        }
        self.found += points.len() as u64;
        points.sort_by_key(|(_, record)| record.time_ns);
        let starts = sent.into_iter().chain(points.iter().copied());
        let ends = points.iter().copied().chain([received]).skip(usize::from(sent.is_none()));
        starts
            .zip(ends)
            .map(|((from, sent), (to, received))| Hop { sent, received, hosts: (from, to) })
            .collect()
    }

    /// A way's ends with each device that it passes, as [`super::offsets`] needs it to compare the clocks.
    pub fn around(&self, hop: &Hop) -> Vec<Hop> {
        let passed = hop.sent.id.and_then(|id| self.waiting.get(&(id, hop.part() != Part::OUT)));
        let pair = |(host, record): &(u8, Record)| {
            let to = Hop { received: *record, hosts: (hop.hosts.0, *host), ..*hop };
            [to, Hop { sent: *record, hosts: (*host, hop.hosts.1), ..*hop }]
        };
        passed.into_iter().flatten().flat_map(pair).collect()
    }

    /// There are no more ways.
    pub fn finish(&mut self) {
        self.unmatched += self.waiting.drain().map(|(_, passed)| passed.len() as u64).sum::<u64>();
    }

    /// Arrivals and departures that are on a way that was found, and those that are not.
    pub fn counts(&self) -> (u64, u64) {
        (self.found, self.unmatched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use crate::record::{Flags, Point, Transport::Udp};

    fn at(point: Point, id: u64, time_ns: u64) -> Record {
        let flags = Flags(if matches!(point, Point::Received) { 0 } else { Flags::CLIENT });
        Record { id: Some(id), flags, ..record(point, Udp, 1, 1, time_ns) }
    }

    #[test]
    fn a_way_is_split_where_it_passes_devices() {
        let mut passes = Passes::new(10);
        // Host 2 forwards, and its clock is 1000 ahead.
        for (host, record) in [
            (1, at(Point::Arrived, 7, 40)),
            (1, at(Point::Arrived, 7, 41)), // a bridge's
            (2, at(Point::Forwarded, 7, 1030)),
            (2, at(Point::Arrived, 7, 1020)),
            (1, at(Point::Arrived, 8, 50)),
        ] {
            passes.take(host, record);
        }
        let time =
            |host: u8, record: &Record| Some(if host == 2 { record.time_ns - 1000 } else { record.time_ns });
        let hop = |id| Hop {
            sent: at(Point::Queued, id, 10),
            received: at(Point::Received, id, 60),
            hosts: (0, 1),
        };
        let parts = passes.split(&hop(7), time);
        let parts: Vec<_> = parts.iter().map(|hop| (hop.part().name(), hop.ns())).collect();
        let expected = [("A→R", 10), ("R→Q", 10), ("Q→R", 10), ("R→B", 20)];
        assert_eq!(parts, expected.map(|(name, ns)| (name.to_owned(), ns)));
        assert!(passes.split(&hop(9), time).is_empty());
        passes.finish();
        assert_eq!(passes.counts(), (3, 1));
    }
}
