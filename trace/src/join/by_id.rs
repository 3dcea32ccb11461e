//! Joins by an id in the payload, whichever threads handle the message: of each process for itself.
//!
//! An id may come again: another client counts alike, a sensor measures the same. Requests and their answers are put together in their
//! own way (`exchanges.rs`). Of all others a send is taken for a receive's only where it cannot be another's.

mod exchanges;
mod one;
mod process;
mod sieve;

use std::collections::{HashMap, VecDeque};

use super::counts::Counts;
use super::message::Message;
use crate::record::{Kind, Point, Record};
use exchanges::Exchanges;
use one::{Held, Id};
use process::{Key, Process};
use sieve::Lately;

/// Ids that are followed at a time, some 300 bytes each; beyond it the oldest is forgotten, and counted.
const IDS_MAX: usize = 1 << 18;
/// Receives of one id that wait at a time.
const OPEN_MAX: usize = 1 << 10;
/// The last copy of a message leaves no longer than this after the one before it: an id that rests for so long begins again.
const REST_NS: u64 = 10_000_000_000;
/// Ids that are looked at where time passes and nothing comes.
const LOOKED_AT: usize = 1 << 10;

/// Messages by their ids.
#[derive(Debug)]
pub(super) struct Ids {
    /// So many are followed.
    ids_max: usize,
    ids: HashMap<Key, Id>,
    /// In the order of their first receives, with the time at which they are looked at again.
    order: VecDeque<(Key, u64)>,
    /// Ids that were forgotten before they had rested.
    forgotten: Lately,
    exchanges: Exchanges,
    processes: HashMap<u32, Process>,
    /// When records were missing last.
    gap_ns: u64,
}

/// It is known now that what was held is right.
fn drain(Held { received, sent, .. }: Held, counts: &mut Counts, each: impl FnMut(Message)) {
    Process::default().found(received, sent, counts, each);
}

impl Default for Ids {
    fn default() -> Self {
        Ids::of(IDS_MAX)
    }
}

impl Ids {
    /// Of so many ids at a time.
    pub(super) fn of(ids_max: usize) -> Ids {
        Ids {
            ids_max,
            ids: HashMap::new(),
            order: VecDeque::new(),
            forgotten: Lately::default(),
            exchanges: Exchanges::of(ids_max),
            processes: HashMap::new(),
            gap_ns: 0,
        }
    }

    pub(super) fn take(&mut self, record: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        let is_received = record.point == Point::Received;
        let new = Process { received_unseen_ns: self.gap_ns, ..Process::default() };
        let process = self.processes.entry(record.process).or_insert(new);
        let Some(id) = record.id else {
            *match record.flags {
                flags if flags.is_short() => &mut counts.short,
                flags if flags.is_absent() => &mut counts.absent,
                flags if flags.is_early() => &mut counts.early,
                _ => {
                    process.has_unseen(&record);
                    &mut counts.unreadable
                }
            } += 1;
            return;
        };
        match (record.kind, is_received) {
            (Kind::Request | Kind::Response, _) => self.exchanges.take(id, record, *process, counts, each),
            (_, true) => self.receive((record.process, id), record, counts, each),
            (_, false) => self.send((record.process, id), record, counts, each),
        }
    }

    /// A call moved unknown bytes; or a socket has rested.
    pub(super) fn unseen(&mut self, rest: &Record) {
        self.exchanges.cut(rest.socket, rest.time_ns);
        if rest.bytes > 0 {
            self.processes.entry(rest.process).or_default().has_unseen(rest);
        }
    }

    fn receive(&mut self, key: Key, received: Record, counts: &mut Counts, mut each: impl FnMut(Message)) {
        let now_ns = received.time_ns;
        let process = self.processes.entry(key.0).or_default();
        let is_new = !self.ids.contains_key(&key);
        let id = self.ids.entry(key).or_default();
        process.is_repeating |= !is_new;
        let since_ns = if is_new { now_ns.saturating_sub(REST_NS) } else { id.received_ns };
        let is_unsure = process.is_repeating && process.received_unseen_ns > since_ns
            || is_new && self.forgotten.may_have(key);
        if id.has_rested(now_ns, REST_NS) {
            id.all_held().for_each(|held| drain(held, counts, &mut each));
        }
        id.settled(received.socket).for_each(|held| drain(held, counts, &mut each));
        id.receive(received, is_unsure, REST_NS);
        if id.open.len() > OPEN_MAX {
            id.open.remove(0);
            counts.ambiguous += 1;
        }
        if is_new {
            self.order.push_back((key, now_ns + REST_NS));
        }
        // Two for each that comes, so all are looked at.
        self.forget(now_ns, 2, counts, each);
    }

    /// Lets go of ids that have rested, and of the oldest ones that are too many.
    fn forget(&mut self, now_ns: u64, looked_at: usize, counts: &mut Counts, mut each: impl FnMut(Message)) {
        for _ in 0..looked_at {
            let is_full = self.order.len() > self.ids_max;
            let Some((key, _)) = self.order.pop_front_if(|(_, look_ns)| is_full || *look_ns <= now_ns) else {
                return;
            };
            let Some(id) = self.ids.get_mut(&key) else { continue };
            let has_rested = id.has_rested(now_ns, REST_NS);
            if has_rested || is_full {
                id.all_held().for_each(|held| drain(held, counts, &mut each));
            }
            let is_done = has_rested && id.open.is_empty();
            if !is_full && !is_done {
                self.order.push_back((key, (id.last_ns.saturating_add(REST_NS)).max(now_ns + REST_NS)));
            } else if let Some(gone) = self.ids.remove(&key) {
                counts.given_up += gone.open.len() as u64;
                if !has_rested || !gone.open.is_empty() {
                    counts.forgotten += 1;
                    self.forgotten.insert(key, now_ns, REST_NS);
                }
            }
        }
    }

    /// Time has passed.
    pub(super) fn drain(&mut self, now_ns: u64, counts: &mut Counts, each: impl FnMut(Message)) {
        self.forget(now_ns, LOOKED_AT, counts, each);
    }

    fn send(&mut self, key: Key, sent: Record, counts: &mut Counts, mut each: impl FnMut(Message)) {
        let process = self.processes.entry(key.0).or_default();
        let Some(id) = self.ids.get_mut(&key) else {
            counts.unmatched_sent += 1;
            return;
        };
        let leaving = id.leave(&sent);
        let begin_ns = sent.time_ns.saturating_sub(REST_NS).max(1);
        let may_lack = process.received_unseen_ns >= begin_ns;
        let is_of_connection = sent.kind == Kind::Message && !process.is_relay;
        if (leaving.is_again || is_of_connection && leaving.is_again_to_own) && !may_lack {
            process.is_resending = true;
        }
        for _ in id.unsettled(sent.socket) {
            counts.ambiguous += 1;
            counts.undecided += 1;
        }
        if id.open.is_empty() {
            counts.copies += 1;
            return;
        }
        // A send may be of an earlier message with the id, if the process sends messages twice.
        let is_any = leaving.is_repeated && process.is_resending;
        if sent.kind == Kind::Message {
            // An id of a connection: what is sent by it with the id answers what came by it with the id.
            let by_own = |received: &mut Record| !process.is_relay && received.socket == sent.socket;
            let own: Vec<Record> = id.open.extract_if(.., by_own).collect();
            match own[..] {
                [] if process.is_relay => {}
                // To what came by it and was not seen: what came by others is still in hand.
                [] if process.is_server => {
                    counts.unmatched_sent += 1;
                    return;
                }
                [] if may_lack || id.is_unsure => {
                    counts.ambiguous += id.open.len() as u64;
                    counts.undecided += 1;
                    id.open.clear();
                    return;
                }
                [] => process.is_relay = true,
                // All clients' datagrams come by one socket: another's may not have been seen.
                [received]
                    if is_any
                        || leaving.is_confused
                        || (may_lack && process.is_repeating || id.is_unsure)
                            && !received.transport.is_stream() =>
                {
                    counts.ambiguous += 1;
                    counts.undecided += 1;
                    return;
                }
                [received] => {
                    process.is_server = true;
                    if leaving.is_repeated && !process.lacks(&received) {
                        return id.hold(received, sent, true);
                    }
                    return process.found(received, sent, counts, each);
                }
                _ => {
                    id.confuse(sent.socket);
                    counts.ambiguous += own.len() as u64;
                    counts.undecided += 1;
                    return;
                }
            }
        }
        match id.open[..] {
            [received] if leaving.is_last && !id.is_contested && !is_any => {
                if leaving.is_repeated && !process.lacks(&received) {
                    id.hold(received, sent, false);
                } else {
                    process.found(received, sent, counts, &mut each);
                }
            }
            _ => {
                counts.ambiguous += id.open.len() as u64;
                counts.undecided += 1;
            }
        }
        id.open.clear();
    }

    /// Records may be missing from here on.
    pub(super) fn gap(&mut self, time_ns: u64, counts: &mut Counts, mut each: impl FnMut(Message)) {
        counts.cut_off += self.exchanges.end();
        for id in self.ids.values_mut() {
            counts.cut_off += id.open.drain(..).count() as u64;
            id.all_held().for_each(|held| drain(held, counts, &mut each));
        }
        self.gap_ns = time_ns;
        for process in self.processes.values_mut() {
            process.received_unseen_ns = time_ns;
        }
    }

    pub(super) fn finish(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        counts.unmatched_received += self.exchanges.end();
        for ((process, _), mut id) in self.ids.drain() {
            let process = self.processes.entry(process).or_default();
            id.all_held().for_each(|held| drain(held, counts, &mut each));
            id.open.iter().for_each(|received| process.left(received, counts));
        }
        self.order.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::ANSWER;
    use crate::join::By;
    use crate::join::tests::join;
    use crate::record::tests::record;
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
                at(Point::Received, 1, 7, 30), // the id is used again: it may as well be sent a third time
                at(Point::Received, 1, 6, 31),
                at(Point::Queued, 2, 7, 35),
            ],
        );
        let times: Vec<_> = messages.iter().map(|m| m.inside_ns()).collect();
        assert_eq!(times, [9, 11]);
        assert_eq!(
            (counts.matched, counts.copies, counts.unmatched_sent, counts.unmatched_received),
            (2, 1, 1, 1)
        );
        assert_eq!((counts.ambiguous, counts.undecided), (1, 1));
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
        assert_eq!((counts.matched, counts.unmatched_sent, counts.control, counts.sent), (3, 1, 1, 4));
    }

    #[test]
    fn undecidable_messages_are_counted() {
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
        assert_eq!(
            (counts.short, counts.unreadable, counts.ambiguous, counts.unmatched_received),
            (1, 1, 2, 0)
        );
    }

    #[test]
    fn messages_that_leave_before_they_came_have_no_time() {
        let (messages, counts) = join(
            By::Id,
            true,
            &[at(Point::Received, 1, 7, 20), at(Point::Queued, 1, 7, 15), at(Point::Queued, 1, 7, 21)],
        );
        assert!(messages.is_empty());
        assert_eq!((counts.streamed, counts.copies, counts.matched, counts.unmatched_received), (1, 1, 0, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let records: Vec<_> = (0..IDS_MAX as u64 + 3).map(|id| at(Point::Received, 1, id, id)).collect();
        let mut joiner = super::super::Joiner::new(By::Id, true);
        records.iter().for_each(|record| joiner.take(*record, |_| ()));
        joiner.finish(|_| panic!("nothing was sent"));
        let counts = joiner.counts();
        assert_eq!((counts.given_up, counts.forgotten, counts.unmatched_received), (3, 3, IDS_MAX as u64));
    }
}
