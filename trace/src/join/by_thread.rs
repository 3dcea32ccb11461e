//! Joins by thread: what a thread sends after a receive, and before its next receive, is what it received.
//!
//! A message may be passed on and answered, and a thread may write elsewhere meanwhile: so each way out, by the socket by which it came or by others,
//! of each transport for itself, has its own first send.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Counts, Message};
use crate::record::{Point, Record, Transport};

/// A thread that has sent, and is silent for so long, is taken to be done with its message.
const IDLE_NS: u64 = 1_000_000_000;
/// Datagram sockets that are known at a time. One that was forgotten ends no T2 until something comes by it again.
const DATAGRAMS_MAX: usize = 1 << 16;

/// What each thread has in hand.
#[derive(Debug, Default)]
pub(super) struct Threads {
    in_hand: HashMap<u32, InHand>,
    /// Datagram sockets by which something came, and the order in which they were first seen.
    datagrams: HashSet<u64>,
    datagrams_order: VecDeque<u64>,
    /// Processes whose threads take turns with messages, as their runtime has it.
    shared: HashSet<u32>,
    /// How often records were missing so far, and for each thread how often when it sent last: what it receives next is not the rest of a
    /// batch of which the beginning is missing.
    gaps: u64,
    sent: HashMap<u32, u64>,
    /// When idle threads were looked for last.
    looked_ns: u64,
}

/// Receives of a thread since its last send, and the sends since.
#[derive(Debug)]
struct InHand {
    /// The last of the receives.
    received: Record,
    /// How many they are; more than one are pieces of one message, if all are from one stream.
    reads: u32,
    is_batch: bool,
    /// There may have been receives before it that are missing.
    is_cut: bool,
    sends: u64,
    /// The first send of each way out.
    sent: Vec<Record>,
    /// By these it has sent something that need not be the message: what follows by them is not known to be the first.
    aside: Vec<Transport>,
    /// Time of the last one.
    last_ns: u64,
    /// It has been passed on: the thread was idle.
    is_reported: bool,
}

impl InHand {
    fn new(received: Record, is_cut: bool) -> InHand {
        let is_batch = received.flags.is_several();
        InHand {
            received,
            reads: 1,
            is_batch,
            is_cut,
            sends: 0,
            sent: Vec::new(),
            aside: Vec::new(),
            last_ns: received.time_ns,
            is_reported: false,
        }
    }

    fn add_read(&mut self, next: Record) {
        let is_piece = next.transport.is_stream() && next.socket == self.received.socket;
        self.is_batch |= !is_piece || next.flags.is_several();
        self.received = next;
        self.reads += 1;
    }

    fn add_send(&mut self, sent: Record, counts: &mut Counts) {
        self.last_ns = sent.time_ns;
        if self.is_reported {
            *if self.is_decided() { &mut counts.copies } else { &mut counts.undecided } += 1;
            return;
        }
        self.sends += 1;
        let way = |record: &Record| (record.transport, record.socket == self.received.socket);
        if self.sent.iter().all(|other| way(other) != way(&sent)) {
            self.sent.push(sent);
        }
    }

    /// Whether its sends are those of one message.
    fn is_decided(&self) -> bool {
        !self.is_batch && !self.is_cut
    }

    /// The thread has received again or ended, or the trace is over, or it does nothing more.
    fn close(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        if self.is_reported {
            return;
        }
        self.is_reported = true;
        if self.sent.is_empty() {
            counts.unmatched_received += u64::from(self.reads);
            return;
        }
        if !self.is_decided() {
            counts.undecided += self.sends;
            *if self.is_cut { &mut counts.cut_off } else { &mut counts.ambiguous } += u64::from(self.reads);
            return;
        }
        let ways = self.sent.len() as u64;
        counts.pieces += u64::from(self.reads) - 1;
        counts.copies += self.sends - ways;
        counts.ways += ways - 1;
        counts.matched += 1;
        for sent in &self.sent {
            each(Message { received: self.received, sent: *sent, reads: self.reads });
        }
    }
}

impl Threads {
    /// Whether what the process's threads send need not be what they have received.
    pub(super) fn share(&mut self, process: u32, is_shared: bool) {
        if is_shared {
            self.shared.insert(process);
        } else {
            self.shared.remove(&process);
        }
    }

    pub(super) fn take(&mut self, record: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        let is_received = record.point == Point::Received;
        if self.shared.contains(&record.process) {
            *if is_received { &mut counts.shared } else { &mut counts.unmatched_sent } += 1;
            return;
        }
        let is_datagram = matches!(record.transport, Transport::Udp | Transport::UnixDatagram);
        if is_datagram && is_received {
            self.is_received_by(record.socket);
        }
        let is_cut = self.gaps > 0 && self.sent.get(&record.thread) != Some(&self.gaps);
        if is_cut && !is_received {
            self.sent.insert(record.thread, self.gaps);
        }
        let in_hand = self.in_hand.get_mut(&record.thread);
        match (is_received, in_hand) {
            (true, Some(in_hand)) if in_hand.sends == 0 => in_hand.add_read(record),
            (true, _) => {
                if let Some(mut done) = self.in_hand.insert(record.thread, InHand::new(record, is_cut)) {
                    done.close(counts, each);
                }
            }
            // A line of a log, a counter, a name that is looked up.
            (false, Some(in_hand))
                if is_datagram
                    && in_hand.received.transport.is_stream()
                    && (!self.datagrams.contains(&record.socket)
                        || in_hand.aside.contains(&record.transport)) =>
            {
                if !in_hand.aside.contains(&record.transport) {
                    in_hand.aside.push(record.transport);
                }
                counts.aside += 1;
            }
            (false, Some(in_hand)) => in_hand.add_send(record, counts),
            (false, None) => counts.unmatched_sent += 1,
        }
    }

    fn is_received_by(&mut self, socket: u64) {
        if self.datagrams.insert(socket) {
            self.datagrams_order.push_back(socket);
            if self.datagrams_order.len() > DATAGRAMS_MAX
                && let Some(oldest) = self.datagrams_order.pop_front()
            {
                self.datagrams.remove(&oldest);
            }
        }
    }

    /// The thread has ended: its number may become another's.
    pub(super) fn ended(&mut self, thread: u32, counts: &mut Counts, each: impl FnMut(Message)) {
        self.sent.remove(&thread);
        if let Some(mut in_hand) = self.in_hand.remove(&thread) {
            in_hand.close(counts, each);
        }
    }

    /// All that came until then has been taken.
    pub(super) fn settle(&mut self, until_ns: u64, counts: &mut Counts, mut each: impl FnMut(Message)) {
        if until_ns < self.looked_ns.saturating_add(IDLE_NS / 10) {
            return;
        }
        self.looked_ns = until_ns;
        for in_hand in self.in_hand.values_mut() {
            if in_hand.sends > 0 && in_hand.last_ns.saturating_add(IDLE_NS) < until_ns {
                in_hand.close(counts, &mut each);
            }
        }
    }

    /// Records may be missing from here on.
    pub(super) fn gap(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        self.gaps += 1;
        for (_, mut in_hand) in self.in_hand.drain() {
            if in_hand.sends > 0 {
                in_hand.close(counts, &mut each);
            } else {
                counts.cut_off += u64::from(in_hand.reads);
            }
        }
    }

    pub(super) fn finish(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        for (_, mut in_hand) in self.in_hand.drain() {
            in_hand.close(counts, &mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tests::{join, record};
    use crate::join::{By, Joiner};
    use crate::record::Event;
    use crate::record::Transport::{Function, Tcp, Udp, UnixStream};

    fn received(transport: crate::Transport, socket: u64, time: u64) -> Record {
        record(Point::Received, transport, 1, socket, time)
    }

    fn sent(transport: crate::Transport, socket: u64, time: u64) -> Record {
        record(Point::Sent, transport, 1, socket, time)
    }

    #[test]
    fn one_in_one_out_on_each_thread() {
        let (messages, counts) = join(
            By::Thread,
            false,
            &[
                sent(Udp, 2, 1),
                on(7, received(Udp, 1, 10)),
                on(8, received(Udp, 1, 11)),
                on(8, sent(Udp, 2, 14)),
                on(7, sent(Udp, 2, 19)),
            ],
        );
        let mut times: Vec<_> = messages.iter().map(|m| (m.received.thread, m.inside_ns())).collect();
        times.sort();
        assert_eq!(times, [(7, 9), (8, 3)]);
        let expected = Counts { received: 2, sent: 3, matched: 2, unmatched_sent: 1, ..Counts::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn each_way_out_has_its_first_send_and_copies_are_counted() {
        let (messages, counts) = join(
            By::Thread,
            false,
            &[
                received(Tcp, 1, 10),
                sent(Tcp, 1, 20),
                sent(Tcp, 2, 30),
                sent(UnixStream, 9, 35), // a log
                sent(Tcp, 3, 40),
                received(Tcp, 1, 50),
                sent(Tcp, 1, 55),
            ],
        );
        let found: Vec<_> = messages.iter().map(|m| (m.inside_ns(), m.is_reply())).collect();
        assert_eq!(found, [(10, true), (20, false), (25, false), (5, true)]);
        assert_eq!((counts.matched, counts.ways, counts.copies), (2, 2, 1));
    }

    #[test]
    fn pieces_of_a_stream_are_one_message_and_the_last_is_its_time() {
        for stream in [UnixStream, Function] {
            let records = [received(stream, 1, 10), received(stream, 1, 12), sent(stream, 2, 20)];
            let (messages, counts) = join(By::Thread, false, &records);
            assert_eq!((messages[0].inside_ns(), messages[0].reads, counts.pieces), (8, 2, 1));
        }
    }

    #[test]
    fn batches_are_not_guessed() {
        let (messages, counts) = join(
            By::Thread,
            false,
            &[
                received(Udp, 1, 10),
                received(Udp, 1, 11),
                sent(Udp, 2, 20),
                sent(Udp, 2, 21),
                received(Tcp, 3, 30),
                received(Tcp, 4, 31),
                sent(Tcp, 5, 40),
                received(Udp, 1, 50),
            ],
        );
        assert!(messages.is_empty());
        assert_eq!((counts.ambiguous, counts.unmatched_received, counts.matched), (4, 1, 0));
    }

    fn on(thread: u32, record: Record) -> Record {
        Record { thread, ..record }
    }

    #[test]
    fn a_thread_that_ends_has_nothing_in_hand() {
        let mut joiner = Joiner::new(By::Thread, false);
        let mut times = Vec::new();
        let mut take = |event: Event| joiner.event(&event, |message| times.push(message.inside_ns()));
        for record in [on(7, received(Udp, 1, 10)), on(7, sent(Udp, 2, 15)), on(8, received(Udp, 1, 20))] {
            take(record.into());
        }
        [7, 8].into_iter().for_each(|thread| take(Event::Ended { time_ns: 30, thread }));
        // Other threads of these numbers.
        [7, 8].into_iter().for_each(|thread| take(on(thread, sent(Udp, 2, 1000)).into()));
        assert_eq!(times, [5]);
        let counts = joiner.counts();
        assert_eq!(
            (counts.matched, counts.unmatched_received, counts.unmatched_sent, counts.copies),
            (1, 1, 2, 0)
        );
    }

    #[test]
    fn a_thread_that_is_idle_is_done_with_its_message() {
        let mut joiner = Joiner::new(By::Thread, false);
        let mut times = Vec::new();
        for record in [received(Tcp, 1, 10), sent(Tcp, 1, 30)] {
            joiner.take(record, |_| panic!("before the end"));
        }
        joiner.settle(IDLE_NS, |_| panic!("before the end"));
        joiner.settle(2 * IDLE_NS, |message| times.push(message.inside_ns()));
        // It does go on, after all.
        joiner.take(sent(Tcp, 2, 3 * IDLE_NS), |_| panic!("a second time"));
        joiner.settle(5 * IDLE_NS, |_| panic!("a second time"));
        joiner.take(received(Tcp, 1, 6 * IDLE_NS), |_| panic!("a second time"));
        assert_eq!((times, joiner.counts().matched, joiner.counts().copies), (vec![20], 1, 1));
    }

    #[test]
    fn nothing_is_joined_over_a_gap() {
        let gap = |time_ns| Event::Gap { time_ns };
        let mut joiner = Joiner::new(By::Thread, false);
        let mut times = Vec::new();
        for event in [
            on(7, received(Tcp, 1, 10)).into(),
            on(8, received(Tcp, 2, 11)).into(),
            on(8, sent(Tcp, 3, 12)).into(), // whatever else it sends
            on(9, received(Tcp, 2, 11)).into(),
            on(9, sent(Tcp, 2, 13)).into(), // it may have been passed on as well
            gap(20),
            on(7, sent(Tcp, 3, 30)).into(), // what it received since then is not known
            on(7, received(Tcp, 1, 40)).into(),
            on(7, sent(Tcp, 1, 44)).into(),
            on(8, received(Udp, 1, 41)).into(), // the first of a batch may be missing
            on(8, sent(Udp, 1, 45)).into(),
            on(8, received(Udp, 1, 51)).into(),
            on(8, sent(Udp, 1, 56)).into(),
        ] {
            joiner.event(&event, |message| times.push(message.inside_ns()));
        }
        joiner.finish(|message| times.push(message.inside_ns()));
        times.sort();
        let counts = joiner.counts();
        assert_eq!(
            (times, counts.cut_off, counts.unmatched_sent, counts.received),
            (vec![1, 2, 4, 5], 2, 1, 6)
        );
    }
}
