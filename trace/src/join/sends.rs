//! One record for each send, from what was noted at the device's queue and at the end of the call.

use std::collections::HashMap;

use super::Counts;
use crate::record::{Point, Record, Transport};

/// Sends over TCP are seen at both points: the time of the first, the bytes and the id of the second.
#[derive(Debug)]
pub(super) struct Sends {
    at_queue: bool,
    /// Of each thread: the first segment queued since its last send ended.
    queued: HashMap<u32, Record>,
}

impl Sends {
    pub(super) fn new(at_queue: bool) -> Sends {
        Sends { at_queue, queued: HashMap::new() }
    }

    pub(super) fn take(&mut self, record: Record, counts: &mut Counts) -> Option<Record> {
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
                _ => {
                    counts.queued_later += 1;
                    Some(record)
                }
            },
            _ => Some(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tests::{join, record};
    use crate::join::{By, Message};

    fn times(messages: &[Message]) -> Vec<(u64, u64, Point)> {
        messages.iter().map(|m| (m.received.time_ns, m.sent.time_ns, m.sent.point)).collect()
    }

    #[test]
    fn tcp_has_the_time_of_its_first_segment() {
        let tcp = |point, socket, time| record(point, Transport::Tcp, 1, socket, time);
        let (messages, counts) = join(
            By::Thread,
            true,
            &[
                tcp(Point::Received, 5, 10),
                tcp(Point::Queued, 6, 20),
                tcp(Point::Queued, 6, 21),
                tcp(Point::Sent, 6, 30),
                tcp(Point::Received, 5, 40),
                tcp(Point::Sent, 6, 60),
            ],
        );
        assert_eq!(times(&messages), [(10, 20, Point::Queued), (40, 60, Point::Sent)]);
        assert_eq!((counts.sent, counts.queued_later, counts.copies), (2, 1, 0));
    }

    #[test]
    fn segments_of_others_are_not_the_threads() {
        let tcp = |point, socket, time| record(point, Transport::Tcp, 1, socket, time);
        let (messages, _) = join(
            By::Thread,
            true,
            &[
                tcp(Point::Received, 5, 10),
                tcp(Point::Queued, 9, 15), // a softirq on this thread's time
                tcp(Point::Queued, 6, 20),
                tcp(Point::Sent, 6, 30),
            ],
        );
        assert_eq!(times(&messages), [(10, 20, Point::Queued)]);
    }
}
