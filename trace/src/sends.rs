//! One record for each send, from what was noted at the device's queue and at the end of the call.

use std::collections::HashMap;

use crate::record::{Point, Record, Transport};

/// Sends over TCP are seen at both points: the time of the first, the bytes and the id of the second.
#[derive(Debug)]
pub(crate) struct Sends {
    at_queue: bool,
    /// Of each thread: the first segment queued since its last send ended.
    queued: HashMap<u32, Record>,
}

impl Sends {
    /// `at_queue`: whether UDP and TCP are noted at the device's queue.
    pub(crate) fn new(at_queue: bool) -> Sends {
        Sends { at_queue, queued: HashMap::new() }
    }

    /// What is to be passed on. A send over TCP of which nothing was queued inside the call keeps the time of its end.
    pub(crate) fn take(&mut self, record: Record) -> Option<Record> {
        match (record.point, record.transport) {
            (Point::Queued, Transport::Tcp) => {
                // What other sockets send while this thread happens to run is not its own; the socket tells when the call ends.
                let first = self.queued.entry(record.thread).or_insert(record);
                if first.socket != record.socket {
                    *first = record;
                }
                None
            }
            (Point::Sent, Transport::Tcp) if self.at_queue => match self.queued.remove(&record.thread) {
                Some(queued) if queued.socket == record.socket => {
                    Some(Record { time_ns: queued.time_ns, point: Point::Queued, ..record })
                }
                _ => Some(record),
            },
            _ => Some(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tests::record;

    fn sends(noted: &[(Point, u64, u64)]) -> Vec<(u64, u64, Point)> {
        let mut sends = Sends::new(true);
        let noted = noted.iter().filter_map(|(point, socket, time)| {
            sends.take(record(*point, Transport::Tcp, 1, *socket, *time))
        });
        noted.map(|record| (record.socket, record.time_ns, record.point)).collect()
    }

    #[test]
    fn tcp_has_the_time_of_its_first_segment() {
        let found = sends(&[
            (Point::Queued, 6, 20),
            (Point::Queued, 6, 21),
            (Point::Sent, 6, 30),
            (Point::Sent, 6, 60), // nothing was queued inside the call
        ]);
        assert_eq!(found, [(6, 20, Point::Queued), (6, 60, Point::Sent)]);
    }

    #[test]
    fn segments_of_others_are_not_the_threads() {
        // The first is queued by a softirq on this thread's time.
        let found = sends(&[(Point::Queued, 9, 15), (Point::Queued, 6, 20), (Point::Sent, 6, 30)]);
        assert_eq!(found, [(6, 20, Point::Queued)]);
    }
}
