//! Joins by an id in the payload, whichever threads handle the message: of each process for itself.
//!
//! An id may come again: another client counts alike, a sensor measures the same. Requests and their answers are put together in their
//! own way (`exchanges.rs`). Of all others a send is taken for a receive's only where it cannot be another's.

mod exchanges;

use std::collections::{HashMap, VecDeque};

use super::{Counts, Message};
use crate::record::{Kind, Point, Record};
use exchanges::Exchanges;

/// Ids that are followed at a time, some 200 bytes each; beyond it the oldest is forgotten, and counted.
const IDS_MAX: usize = 1 << 18;
/// Receives of one id that wait at a time.
const OPEN_MAX: usize = 1 << 10;
/// The last copy of a message leaves no longer than this after the one before it: an id that rests for so long begins again.
const REST_NS: u64 = 10_000_000_000;

/// A process and an id.
type Key = (u32, u64);

/// Messages by their ids.
#[derive(Debug, Default)]
pub(super) struct Ids {
    ids: HashMap<Key, Id>,
    /// In the order of their first receives, with the time at which they are looked at again.
    order: VecDeque<(Key, u64)>,
    exchanges: Exchanges,
    processes: HashMap<u32, Process>,
    /// When records were missing last.
    gap_ns: u64,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Process {
    /// It has sent an id by another socket than that by which it came.
    is_relay: bool,
    /// It has answered by the socket by which an id came.
    is_server: bool,
    /// An id has come again.
    is_repeating: bool,
    /// When it last sent something whose id is not known: that may have been the first send of any message that it had.
    sent_unseen_ns: u64,
    /// When it last received such, or may have: that may have been any message.
    received_unseen_ns: u64,
}

impl Process {
    fn has_unseen(&mut self, record: &Record) {
        let is_received = record.point == Point::Received;
        *if is_received { &mut self.received_unseen_ns } else { &mut self.sent_unseen_ns } = record.time_ns;
    }

    /// What becomes of a receive that the send belongs to, as far as is known.
    fn found(&self, received: Record, sent: Record, counts: &mut Counts, mut each: impl FnMut(Message)) {
        if self.sent_unseen_ns > received.time_ns {
            counts.cut_off += 1;
        } else if sent.time_ns < received.time_ns {
            // It began before the receive's end.
            counts.streamed += 1;
        } else {
            counts.matched += 1;
            each(Message { received, sent, reads: 1 });
        }
    }

    /// What becomes of a receive that nothing was seen to be sent of.
    fn left(&self, received: &Record, counts: &mut Counts) {
        let is_cut = self.sent_unseen_ns > received.time_ns;
        *if is_cut { &mut counts.cut_off } else { &mut counts.unanswered } += 1;
    }
}

/// An id's messages, one after the other.
#[derive(Debug, Default)]
struct Id {
    /// Receives of which nothing was sent yet.
    open: Vec<Record>,
    /// Several were open at once.
    is_contested: bool,
    /// How many have come since the id began.
    messages: u32,
    /// Sockets by which it was sent, each with how many of the messages have left by it; [`UNSURE`] where that is not known.
    sockets: Vec<(u64, u32)>,
    /// Sockets by which several came at once: who knows which of them have been answered.
    confused: Vec<u64>,
    received_ns: u64,
    last_ns: u64,
}

const UNSURE: u32 = u32::MAX;

impl Id {
    /// The id begins again, or goes on; `is_unsure`: messages of it may have come that were not seen.
    fn receive(&mut self, received: Record, is_unsure: bool) {
        if self.open.is_empty() {
            self.is_contested = false;
            if self.messages > 0 && received.time_ns.saturating_sub(self.last_ns) >= REST_NS {
                self.messages = 0;
                self.sockets.clear();
                self.confused.clear();
            }
            if is_unsure {
                self.messages += 1;
            }
        } else {
            self.is_contested = true;
        }
        self.messages += 1;
        self.received_ns = received.time_ns;
        self.last_ns = self.last_ns.max(received.time_ns);
        self.open.push(received);
    }

    /// Notes a send. Each message leaves at most once by a socket, in order: so where all before the last one have left by it, what
    /// leaves now is the last one, and else it may be any. Whether it is the last one.
    fn leave(&mut self, sent: &Record) -> bool {
        self.last_ns = self.last_ns.max(sent.time_ns);
        let messages = self.messages;
        match self.sockets.iter_mut().find(|(socket, _)| *socket == sent.socket) {
            Some((_, left)) => {
                let is_next = left.checked_add(1) == Some(messages);
                *left = if is_next { messages } else { UNSURE };
                is_next
            }
            None => {
                let is_first = messages == 1;
                self.sockets.push((sent.socket, if is_first { 1 } else { UNSURE }));
                is_first
            }
        }
    }
}

impl Ids {
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
            (_, true) => self.receive((record.process, id), record, counts),
            (_, false) => self.send((record.process, id), record, counts, each),
        }
    }

    /// What a call moved is not known; or a socket has rested.
    pub(super) fn unseen(&mut self, rest: &Record) {
        self.exchanges.cut(rest.socket, rest.time_ns);
        if rest.bytes > 0 {
            self.processes.entry(rest.process).or_default().has_unseen(rest);
        }
    }

    /// The number is another socket's now.
    pub(super) fn renew(&mut self, socket: u64) {
        self.exchanges.renew(socket);
    }

    fn receive(&mut self, key: Key, received: Record, counts: &mut Counts) {
        let now_ns = received.time_ns;
        let process = self.processes.entry(key.0).or_default();
        let is_new = !self.ids.contains_key(&key);
        let id = self.ids.entry(key).or_default();
        process.is_repeating |= !is_new;
        let since_ns = if is_new { now_ns.saturating_sub(REST_NS) } else { id.received_ns };
        let is_unsure = process.is_repeating && process.received_unseen_ns > since_ns;
        id.receive(received, is_unsure);
        if id.open.len() > OPEN_MAX {
            id.open.remove(0);
            counts.ambiguous += 1;
        }
        if is_new {
            self.order.push_back((key, now_ns + REST_NS));
        }
        self.forget(now_ns, counts);
    }

    /// Lets go of ids that have rested, and of the oldest one that is too many.
    fn forget(&mut self, now_ns: u64, counts: &mut Counts) {
        // Two for each that comes, so all are looked at.
        for _ in 0..2 {
            let is_full = self.order.len() > IDS_MAX;
            let Some((key, _)) = self.order.pop_front_if(|(_, look_ns)| is_full || *look_ns <= now_ns) else {
                return;
            };
            let Some(id) = self.ids.get(&key) else { continue };
            let rested_ns = id.last_ns.saturating_add(REST_NS);
            if !is_full && (!id.open.is_empty() || rested_ns > now_ns) {
                self.order.push_back((key, rested_ns.max(now_ns + REST_NS)));
            } else if let Some(gone) = self.ids.remove(&key) {
                let process = self.processes.entry(key.0).or_default();
                gone.open.iter().for_each(|received| process.left(received, counts));
                counts.forgotten += u64::from(rested_ns > now_ns);
            }
        }
    }

    fn send(&mut self, key: Key, sent: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        let process = self.processes.entry(key.0).or_default();
        let Some(id) = self.ids.get_mut(&key) else {
            counts.unasked += 1;
            return;
        };
        let is_last = id.leave(&sent);
        if id.open.is_empty() {
            counts.copies += 1;
            return;
        }
        if sent.kind == Kind::Message {
            // An id of a connection: what is sent by it with the id answers what came by it with the id.
            let by_own = |received: &mut Record| !process.is_relay && received.socket == sent.socket;
            let own: Vec<Record> = id.open.extract_if(.., by_own).collect();
            let begin_ns = sent.time_ns.saturating_sub(REST_NS).max(1);
            let may_lack = process.received_unseen_ns >= begin_ns;
            match own[..] {
                [] if process.is_relay => {}
                // To what came by it and was not seen: what came by others is still in hand.
                [] if process.is_server => {
                    counts.unasked += 1;
                    return;
                }
                [] if may_lack => {
                    counts.ambiguous += id.open.len() as u64;
                    id.open.clear();
                    return;
                }
                [] => process.is_relay = true,
                // All clients' datagrams come by one socket: another's may not have been seen.
                [received]
                    if id.confused.contains(&sent.socket)
                        || may_lack && process.is_repeating && !received.transport.is_stream() =>
                {
                    counts.ambiguous += 1;
                    return;
                }
                [received] => {
                    process.is_server = true;
                    return process.found(received, sent, counts, each);
                }
                _ => {
                    id.confused.push(sent.socket);
                    counts.ambiguous += own.len() as u64;
                    return;
                }
            }
        }
        match id.open[..] {
            [received] if is_last && !id.is_contested => process.found(received, sent, counts, each),
            _ => counts.ambiguous += id.open.len() as u64,
        }
        id.open.clear();
    }

    /// Records may be missing from here on.
    pub(super) fn gap(&mut self, time_ns: u64, counts: &mut Counts) {
        counts.cut_off += self.exchanges.end();
        for id in self.ids.values_mut() {
            counts.cut_off += id.open.drain(..).count() as u64;
        }
        self.gap_ns = time_ns;
        for process in self.processes.values_mut() {
            process.received_unseen_ns = time_ns;
        }
    }

    pub(super) fn finish(&mut self, counts: &mut Counts) {
        counts.unanswered += self.exchanges.end();
        for ((process, _), id) in self.ids.drain() {
            let process = self.processes.entry(process).or_default();
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
        let records: Vec<_> = (0..IDS_MAX as u64 + 3).map(|id| at(Point::Received, 1, id, id)).collect();
        let mut joiner = super::super::Joiner::new(By::Id, true);
        records.iter().for_each(|record| joiner.take(*record, |_| ()));
        assert_eq!((joiner.counts().unanswered, joiner.counts().forgotten), (3, 3));
    }
}
