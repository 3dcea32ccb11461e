//! Joins by an id in the payload, whichever threads handle the message.

use std::collections::{HashMap, VecDeque};

use super::{Counts, Message};
use crate::decode::ANSWER;
use crate::record::{Kind, Point, Record};

/// Messages that are waited for at a time; beyond it the oldest counts as unanswered.
const WAITING_MAX: usize = 1 << 20;

/// Messages by their ids.
#[derive(Debug, Default)]
pub(super) struct Ids {
    waiting: HashMap<u64, Waiting>,
    /// Ids in the order of their receives, with the time to tell one use of an id from the next.
    order: VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Waiting {
    received: Record,
    sends: u64,
    is_twice: bool,
}

impl Ids {
    pub(super) fn take(&mut self, record: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        let Some(id) = record.id else {
            *match record.flags {
                flags if flags.is_short() => &mut counts.short,
                flags if flags.is_absent() => &mut counts.absent,
                _ => &mut counts.unreadable,
            } += 1;
            return;
        };
        if record.point == Point::Received {
            return self.receive(id, record, counts);
        }
        match self.waiting.get_mut(&id) {
            Some(waiting) if waiting.is_twice => waiting.sends += 1,
            Some(waiting) if waiting.sends > 0 => {
                waiting.sends += 1;
                counts.copies += 1;
            }
            Some(waiting) => {
                waiting.sends = 1;
                found(waiting.received, record, counts, each);
            }
            // Not passed on from elsewhere: this process has answered the request itself.
            None if record.kind == Kind::Response => self.answer(id ^ ANSWER, record, counts, each),
            None => counts.unasked += 1,
        }
    }

    fn answer(&mut self, id: u64, sent: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        match self.waiting.get_mut(&id) {
            Some(waiting)
                if waiting.sends == 0 && !waiting.is_twice && waiting.received.socket == sent.socket =>
            {
                waiting.sends = 1;
                found(waiting.received, sent, counts, each);
            }
            _ => counts.unasked += 1,
        }
    }

    fn receive(&mut self, id: u64, received: Record, counts: &mut Counts) {
        if let Some(waiting) = self.waiting.get_mut(&id)
            && waiting.sends == 0
        {
            // Two of the same id in the process at once: neither can be told from the other.
            counts.ambiguous += 1 + u64::from(!waiting.is_twice);
            waiting.is_twice = true;
            return;
        }
        self.waiting.insert(id, Waiting { received, sends: 0, is_twice: false });
        self.order.push_back((id, received.time_ns));
        if self.order.len() > WAITING_MAX {
            let oldest = self.order.pop_front();
            if let Some((id, time_ns)) = oldest
                && self.waiting.get(&id).is_some_and(|waiting| waiting.received.time_ns == time_ns)
                && let Some(gone) = self.waiting.remove(&id)
            {
                counts.unanswered += u64::from(gone.sends == 0 && !gone.is_twice);
            }
        }
    }

    /// Records may be missing from here on; an id may be used again by then.
    pub(super) fn gap(&mut self, counts: &mut Counts) {
        counts.cut_off += self.end();
    }

    pub(super) fn finish(&mut self, counts: &mut Counts) {
        counts.unanswered += self.end();
    }

    /// How many nobody has sent.
    fn end(&mut self) -> u64 {
        let silent = self.waiting.values().filter(|waiting| waiting.sends == 0 && !waiting.is_twice);
        let silent = silent.count() as u64;
        self.waiting.clear();
        self.order.clear();
        silent
    }
}

/// A receive and the send that it led to; a send that began before the receive's end has no time in the process.
fn found(received: Record, sent: Record, counts: &mut Counts, mut each: impl FnMut(Message)) {
    if sent.time_ns < received.time_ns {
        counts.streamed += 1;
        return;
    }
    counts.matched += 1;
    each(Message { received, sent, reads: 1 });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::By;
    use crate::join::tests::{join, record};
    use crate::record::{Flags, Transport::Udp};

    fn at(point: Point, thread: u32, id: u64, time: u64) -> Record {
        Record { id: Some(id), ..record(point, Udp, thread, 1, time) }
    }

    #[test]
    fn ids_cross_threads_and_batches() {
        let (messages, counts) = join(
            By::Id,
            true,
            &[
                at(Point::Received, 1, 7, 10),
                at(Point::Received, 1, 8, 11),
                at(Point::Queued, 2, 8, 20),
                at(Point::Queued, 3, 7, 21),
                at(Point::Queued, 3, 7, 22),
                at(Point::Queued, 3, 9, 23),
                at(Point::Received, 1, 7, 30), // the id is used again
                at(Point::Received, 1, 6, 31),
                at(Point::Queued, 2, 7, 35),
            ],
        );
        let times: Vec<_> = messages.iter().map(|m| m.inside_ns()).collect();
        assert_eq!(times, [9, 11, 5]);
        assert_eq!((counts.matched, counts.copies, counts.unasked, counts.unanswered), (3, 1, 1, 1));
    }

    #[test]
    fn an_answer_passed_on_is_no_answer_of_its_own() {
        let kind = |kind, socket, record: Record| Record { kind, socket, ..record };
        let (request, response) = (Kind::Request, Kind::Response);
        let (messages, counts) = join(
            By::Id,
            true,
            &[
                kind(request, 1, at(Point::Received, 1, 7, 10)), // a proxy's
                kind(request, 2, at(Point::Queued, 1, 7, 11)),
                kind(response, 2, at(Point::Received, 1, 7 ^ ANSWER, 20)),
                kind(response, 1, at(Point::Queued, 1, 7 ^ ANSWER, 23)),
                kind(request, 1, at(Point::Received, 1, 8, 30)), // a server's
                kind(response, 1, at(Point::Queued, 1, 8 ^ ANSWER, 35)),
                kind(response, 1, at(Point::Queued, 1, 9 ^ ANSWER, 36)),
                kind(Kind::Control, 1, record(Point::Queued, Udp, 1, 1, 37)),
            ],
        );
        let times: Vec<_> = messages.iter().map(|m| (m.inside_ns(), m.is_reply())).collect();
        assert_eq!(times, [(1, false), (3, false), (5, true)]);
        assert_eq!((counts.matched, counts.unasked, counts.control, counts.sent), (3, 1, 1, 4));
    }

    #[test]
    fn what_cannot_be_told_is_counted() {
        let short = Record { flags: Flags(2), ..record(Point::Received, Udp, 1, 1, 1) };
        let unreadable = Record { flags: Flags(4), ..record(Point::Queued, Udp, 1, 1, 2) };
        let (messages, counts) = join(
            By::Id,
            true,
            &[
                short,
                unreadable,
                at(Point::Received, 1, 7, 10),
                at(Point::Received, 1, 7, 11),
                at(Point::Queued, 1, 7, 20),
            ],
        );
        assert!(messages.is_empty());
        assert_eq!((counts.short, counts.unreadable, counts.ambiguous, counts.unanswered), (1, 1, 2, 0));
    }

    #[test]
    fn what_leaves_before_all_of_it_came_has_no_time() {
        let (messages, counts) = join(
            By::Id,
            true,
            &[at(Point::Received, 1, 7, 20), at(Point::Queued, 1, 7, 15), at(Point::Queued, 1, 7, 21)],
        );
        assert!(messages.is_empty());
        assert_eq!((counts.streamed, counts.copies, counts.matched, counts.unanswered), (1, 1, 0, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let records: Vec<_> = (0..WAITING_MAX as u64 + 3).map(|id| at(Point::Received, 1, id, id)).collect();
        let mut joiner = super::super::Joiner::new(By::Id, true);
        records.iter().for_each(|record| joiner.take(*record, |_| ()));
        assert_eq!(joiner.counts().unanswered, 3);
    }
}
