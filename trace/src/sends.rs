//! One record for each send, from what was noted at the device's queue and at the end of the call.

use std::collections::HashMap;

use crate::record::{Point, Record, Transport};

/// Segments of a call that are kept: more than a socket's buffer holds of older calls. Those of a longer call come after its first.
const SEGMENTS_MAX: usize = 4096;

/// Sends over TCP are seen at both points: the time of the segment with their first byte, the bytes and the id of the call.
#[derive(Debug)]
pub(crate) struct Sends {
    at_queue: bool,
    /// Of each thread: what was queued on its time since a call of it ended last.
    queued: HashMap<u32, Vec<Segment>>,
}

#[derive(Debug)]
struct Segment {
    time_ns: u64,
    socket: u64,
    position: u32,
    bytes: u32,
}

impl Sends {
    /// `at_queue`: whether UDP and TCP are noted at the device's queue.
    pub(crate) fn new(at_queue: bool) -> Sends {
        Sends { at_queue, queued: HashMap::new() }
    }

    /// The thread has ended.
    pub(crate) fn forget(&mut self, thread: u32) {
        self.queued.remove(&thread);
    }

    /// Some records may be missing.
    pub(crate) fn lose(&mut self) {
        self.queued.clear();
    }

    /// The record to pass on. A send over TCP whose first byte was not queued inside the call keeps the time of its end.
    ///
    /// The kernel does other work on a thread's time, too: acknowledgements let older segments go, of this socket and of others.
    pub(crate) fn take(&mut self, record: Record) -> Option<Record> {
        let Record { time_ns, socket, position, bytes, .. } = record;
        match (record.point, record.transport) {
            (Point::Queued, Transport::Tcp) => {
                let segments = self.queued.entry(record.thread).or_default();
                if segments.len() < SEGMENTS_MAX {
                    segments.push(Segment { time_ns, socket, position, bytes });
                }
                None
            }
            (point @ (Point::Received | Point::Sent), transport) => {
                let Some(segments) = self.queued.get_mut(&record.thread) else { return Some(record) };
                let is_sent = self.at_queue && (point, transport) == (Point::Sent, Transport::Tcp);
                let begin = position.wrapping_sub(bytes);
                let first = segments.iter().find(|segment| {
                    let is_in = begin.wrapping_sub(segment.position) < segment.bytes;
                    // Of a call for several messages `bytes` is their number.
                    is_sent && segment.socket == socket && is_in && !record.flags.is_several()
                });
                let queued =
                    first.map(|segment| Record { time_ns: segment.time_ns, point: Point::Queued, ..record });
                segments.clear();
                Some(queued.unwrap_or(record))
            }
            _ => Some(record),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;

    /// Of one thread: point, socket, position, bytes, time.
    fn sends(noted: &[(Point, u64, u32, u32, u64)]) -> Vec<(u64, u64, Point)> {
        let mut sends = Sends::new(true);
        let noted = noted.iter().filter_map(|(point, socket, position, bytes, time)| {
            let record = record(*point, Transport::Tcp, 1, *socket, *time);
            sends.take(Record { position: *position, bytes: *bytes, ..record })
        });
        noted.map(|record| (record.socket, record.time_ns, record.point)).collect()
    }

    #[test]
    fn tcp_has_the_time_of_its_first_segment() {
        let begin = u32::MAX - 99; // numbers come round
        let found = sends(&[
            (Point::Queued, 6, begin, 500, 20),
            (Point::Queued, 6, 400, 100, 21),
            (Point::Sent, 6, 500, 600, 30),
            (Point::Sent, 6, 700, 200, 60), // nothing was queued inside the call
        ]);
        assert_eq!(found, [(6, 20, Point::Queued), (6, 60, Point::Sent)]);
    }

    #[test]
    fn segments_of_others_are_not_the_threads() {
        // The first is queued by a softirq on this thread's time.
        let found = sends(&[
            (Point::Queued, 9, 0, 50, 15),
            (Point::Queued, 6, 0, 50, 20),
            (Point::Sent, 6, 50, 50, 30),
        ]);
        assert_eq!(found, [(6, 20, Point::Queued)]);
    }

    #[test]
    fn older_segments_of_the_socket_are_not_the_sends() {
        let found = sends(&[
            (Point::Queued, 6, 0, 1000, 10),
            (Point::Sent, 6, 3000, 3000, 15),   // more than the window
            (Point::Queued, 6, 1000, 1000, 20), // acknowledgements let the rest go, here in the next receive
            (Point::Received, 6, 0, 70, 30),
            (Point::Queued, 6, 2000, 1000, 40), // and here before the next send
            (Point::Queued, 6, 3000, 200, 50),
            (Point::Sent, 6, 3200, 200, 60),
            (Point::Queued, 6, 2000, 1000, 70), // sent once more, and the last message not yet
            (Point::Sent, 6, 3300, 100, 80),
        ]);
        let sent: Vec<_> = found.into_iter().filter(|(.., point)| *point != Point::Received).collect();
        assert_eq!(sent, [(6, 10, Point::Queued), (6, 50, Point::Queued), (6, 80, Point::Sent)]);
    }
}
