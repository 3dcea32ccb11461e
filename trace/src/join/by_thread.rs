//! Joins by thread: what a thread sends after a receive, and before its next receive, is what it received.
//!
//! A message may be passed on and answered, and a thread may write elsewhere meanwhile. So each way out, by the socket by which it came or by another,
//! of each transport for itself, has its own first send. Where several other sockets of a transport took part, one of them may carry logs or
//! counters. Then that way has no T2, nor has it any where such a socket is alone later.

use std::collections::{HashMap, HashSet, VecDeque};

use super::counts::Counts;
use super::message::Message;
use crate::record::{Point, Record, Transport};

/// A thread that has sent, and is silent for so long, is taken to be done with its message.
const IDLE_NS: u64 = 1_000_000_000;
/// Sockets of a kind that are known at a time.
const SOCKETS_MAX: usize = 1 << 16;

/// Sockets; the oldest are forgotten if there are too many.
#[derive(Debug, Default)]
struct Sockets {
    all: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Sockets {
    fn contains(&self, socket: u64) -> bool {
        self.all.contains(&socket)
    }

    fn insert(&mut self, socket: u64) {
        if self.all.insert(socket) {
            self.order.push_back(socket);
            if self.order.len() > SOCKETS_MAX
                && let Some(oldest) = self.order.pop_front()
            {
                self.all.remove(&oldest);
            }
        }
    }
}

/// The messages that each thread has in hand.
#[derive(Debug, Default)]
pub(super) struct Threads {
    in_hand: HashMap<u32, InHand>,
    /// Sockets of datagrams and Unix streams by which something came. One that was forgotten ends no T2 until something comes by it again.
    receivers: Sockets,
    /// Sockets that sent while another of their transport did: messages leave by one of the two, and by which is not known.
    doubtful: Sockets,
    /// Sockets that messages left by, and no other of their transport meanwhile.
    alone: Sockets,
    /// Processes whose threads take turns with messages, as their runtime has it.
    shared: HashSet<u32>,
    /// How often records were missing so far, and for each thread how often when it sent last. Its next receive is not the rest of a batch
    /// whose beginning is missing.
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
    /// The ways out.
    ways: Vec<Way>,
    /// By these it has sent something that need not be the message: what follows by them is not known to be the first.
    aside: Vec<Transport>,
    /// Time of the last one.
    last_ns: u64,
    /// It has been passed on: the thread was idle.
    is_reported: bool,
}

/// A way out: by the socket of the receive, or by others of a transport.
#[derive(Debug)]
struct Way {
    first: Record,
    sends: u64,
    /// It has no T2.
    is_doubtful: bool,
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
            ways: Vec::new(),
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

    fn add_send(&mut self, sent: Record, doubtful: &mut Sockets, counts: &mut Counts) {
        self.last_ns = sent.time_ns;
        self.sends += 1;
        let key = |record: &Record| (record.transport, record.socket == self.received.socket);
        let is_reported = self.is_reported;
        let is_decided = self.is_decided();
        let Some(way) = self.ways.iter_mut().find(|way| key(&way.first) == key(&sent)) else {
            if is_reported {
                counts.undecided += 1;
                return;
            }
            let is_doubtful = doubtful.contains(sent.socket);
            self.ways.push(Way { first: sent, sends: 1, is_doubtful });
            return;
        };
        if way.first.socket != sent.socket {
            [way.first.socket, sent.socket].into_iter().for_each(|socket| doubtful.insert(socket));
            way.is_doubtful = true;
        }
        if is_reported {
            *if is_decided && !way.is_doubtful { &mut counts.copies } else { &mut counts.undecided } += 1;
        } else {
            way.sends += 1;
        }
    }

    /// Whether its sends are those of one message.
    fn is_decided(&self) -> bool {
        !self.is_batch && !self.is_cut
    }

    /// Its further sends are not known, so another socket may take part yet. Where one was alone before, none does.
    fn cut_short(&mut self, alone: &Sockets) {
        let received = self.received.socket;
        for way in self.ways.iter_mut().filter(|way| way.first.socket != received) {
            way.is_doubtful |= !alone.contains(way.first.socket);
        }
    }

    /// The thread has received again or ended, or the trace is over, or it does nothing more.
    fn close(&mut self, alone: &mut Sockets, counts: &mut Counts, mut each: impl FnMut(Message)) {
        if self.is_reported {
            return;
        }
        self.is_reported = true;
        if self.ways.is_empty() {
            counts.unmatched_received += u64::from(self.reads);
            return;
        }
        let is_decided = self.is_decided();
        let (mut matched, mut ways) = (0, 0);
        for way in &self.ways {
            if !is_decided || way.is_doubtful {
                counts.undecided += way.sends;
                continue;
            }
            *if matched == 0 { &mut matched } else { &mut ways } += 1;
            counts.copies += way.sends - 1;
            if way.first.socket != self.received.socket {
                alone.insert(way.first.socket);
            }
            each(Message { received: self.received, sent: way.first, reads: self.reads });
        }
        (counts.matched, counts.ways) = (counts.matched + matched, counts.ways + ways);
        if matched == 1 {
            counts.pieces += u64::from(self.reads) - 1;
        } else {
            *if self.is_cut { &mut counts.cut_off } else { &mut counts.ambiguous } += u64::from(self.reads);
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
        let may_be_aside = !matches!(record.transport, Transport::Tcp | Transport::Function);
        if may_be_aside && is_received {
            self.receivers.insert(record.socket);
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
                    done.close(&mut self.alone, counts, each);
                }
            }
            // A line of a log, a counter, a name that is looked up.
            (false, Some(in_hand))
                if may_be_aside
                    && in_hand.received.transport != record.transport
                    && (in_hand.received.transport.is_stream()
                        || record.transport == Transport::UnixStream)
                    && (!self.receivers.contains(record.socket)
                        || in_hand.aside.contains(&record.transport)) =>
            {
                if !in_hand.aside.contains(&record.transport) {
                    in_hand.aside.push(record.transport);
                }
                counts.aside += 1;
            }
            (false, Some(in_hand)) => in_hand.add_send(record, &mut self.doubtful, counts),
            (false, None) => counts.unmatched_sent += 1,
        }
    }

    /// The thread has ended: its number may become another's.
    pub(super) fn ended(&mut self, thread: u32, counts: &mut Counts, each: impl FnMut(Message)) {
        self.sent.remove(&thread);
        if let Some(mut in_hand) = self.in_hand.remove(&thread) {
            in_hand.close(&mut self.alone, counts, each);
        }
    }

    /// All that came until then has been taken.
    pub(super) fn drain(&mut self, until_ns: u64, counts: &mut Counts, mut each: impl FnMut(Message)) {
        if until_ns < self.looked_ns.saturating_add(IDLE_NS / 10) {
            return;
        }
        self.looked_ns = until_ns;
        for in_hand in self.in_hand.values_mut() {
            if in_hand.sends > 0 && in_hand.last_ns.saturating_add(IDLE_NS) < until_ns {
                in_hand.close(&mut self.alone, counts, &mut each);
            }
        }
    }

    /// Records may be missing from here on.
    pub(super) fn gap(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        self.gaps += 1;
        for (_, mut in_hand) in self.in_hand.drain() {
            if in_hand.sends > 0 {
                in_hand.cut_short(&self.alone);
                in_hand.close(&mut self.alone, counts, &mut each);
            } else {
                counts.cut_off += u64::from(in_hand.reads);
            }
        }
    }

    pub(super) fn finish(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        for (_, mut in_hand) in self.in_hand.drain() {
            in_hand.cut_short(&self.alone);
            in_hand.close(&mut self.alone, counts, &mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::tests::join;
    use crate::join::{By, Joiner};
    use crate::record::Event;
    use crate::record::Transport::{Function, Tcp, Udp, UnixStream};
    use crate::record::tests::record;

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
                on(7, received(Udp, 1, 30)),
                on(8, received(Udp, 1, 31)),
            ],
        );
        let mut times: Vec<_> = messages.iter().map(|m| (m.received.thread, m.inside_ns())).collect();
        times.sort();
        assert_eq!(times, [(7, 9), (8, 3)]);
        let expected = Counts {
            received: 4,
            sent: 3,
            matched: 2,
            unmatched_sent: 1,
            unmatched_received: 2,
            ..Counts::default()
        };
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
                sent(Tcp, 2, 40),
                received(Tcp, 1, 50),
                sent(Tcp, 1, 55),
            ],
        );
        let found: Vec<_> = messages.iter().map(|m| (m.inside_ns(), m.is_reply())).collect();
        assert_eq!(found, [(10, true), (20, false), (5, true)]);
        assert_eq!((counts.matched, counts.ways, counts.copies, counts.aside), (2, 1, 1, 1));
    }

    /// A broker over UDP that counts by statsd, and a server over TCP that writes its log by TCP. The socket of the message is not known, not even
    /// where one of them is alone later. The answer is.
    #[test]
    fn several_sockets_of_a_way_have_no_first_send() {
        for transport in [Udp, Tcp] {
            let records = [
                received(transport, 1, 10),
                sent(transport, 5, 20),
                sent(transport, 2, 5000),
                received(transport, 1, 6000),
                sent(transport, 5, 6010),
                received(transport, 1, 7000),
                sent(transport, 5, 7010),
                sent(transport, 1, 7020),
                received(transport, 1, 8000),
                sent(transport, 3, 8030),
                received(transport, 1, 9000),
                sent(transport, 4, 9010), // and maybe by others, which the trace does not see
            ];
            let (messages, counts) = join(By::Thread, false, &records);
            let found: Vec<_> = messages.iter().map(|m| (m.inside_ns(), m.is_reply())).collect();
            assert_eq!(found, [(20, true), (30, false)], "{transport}");
            assert_eq!((counts.matched, counts.ambiguous, counts.undecided), (2, 3, 5), "{transport}");
        }
    }

    #[test]
    fn pieces_of_a_stream_are_one_message_and_the_last_is_its_time() {
        for stream in [UnixStream, Function] {
            let records = [
                received(stream, 1, 10),
                received(stream, 1, 12),
                sent(stream, 2, 20),
                received(stream, 1, 30),
            ];
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
        joiner.drain(IDLE_NS, |_| panic!("before the end"));
        joiner.drain(2 * IDLE_NS, |message| times.push(message.inside_ns()));
        // It does go on, after all.
        joiner.take(sent(Tcp, 2, 3 * IDLE_NS), |_| panic!("a second time"));
        joiner.drain(5 * IDLE_NS, |_| panic!("a second time"));
        joiner.take(received(Tcp, 1, 6 * IDLE_NS), |_| panic!("a second time"));
        assert_eq!((times, joiner.counts().matched, joiner.counts().undecided), (vec![20], 1, 1));
    }

    #[test]
    fn nothing_is_joined_over_a_gap() {
        let gap = |time_ns| Event::Gap { time_ns };
        let mut joiner = Joiner::new(By::Thread, false);
        let mut times = Vec::new();
        for event in [
            on(7, received(Tcp, 1, 10)).into(),
            on(8, received(Tcp, 2, 11)).into(),
            on(8, sent(Tcp, 3, 12)).into(), // by which other sockets as well, is not known
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
        assert_eq!((times, counts.cut_off, counts.unmatched_sent, counts.received), (vec![2, 4, 5], 2, 1, 6));
    }
}
