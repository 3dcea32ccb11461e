//! Joins by thread: what a thread sends after a receive, and before its next receive, is what it received.

use std::collections::HashMap;

use super::{Counts, Message};
use crate::record::{Point, Record};

/// What each thread has in hand.
#[derive(Debug, Default)]
pub(super) struct Threads(HashMap<u32, InHand>);

/// Receives of a thread since its last send, and the sends since.
#[derive(Debug)]
struct InHand {
    /// The last of the receives.
    received: Record,
    /// How many they are; more than one are pieces of one message, if all are from one stream.
    reads: u32,
    is_batch: bool,
    sends: u64,
    /// The first send by another socket than the message came in by; else the first one.
    sent: Option<Record>,
}

impl InHand {
    fn new(received: Record) -> InHand {
        InHand { received, reads: 1, is_batch: received.flags.is_several(), sends: 0, sent: None }
    }

    fn add_read(&mut self, next: Record) {
        let is_piece = next.transport.is_stream() && next.socket == self.received.socket;
        self.is_batch |= !is_piece || next.flags.is_several();
        self.received = next;
        self.reads += 1;
    }

    fn add_send(&mut self, sent: Record) {
        self.sends += 1;
        let is_forward = |record: Record| record.socket != self.received.socket;
        if self.sent.is_none_or(|first| is_forward(sent) && !is_forward(first)) {
            self.sent = Some(sent);
        }
    }

    /// The thread has received again, or the trace is over.
    fn close(self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        let Some(sent) = self.sent else {
            counts.unanswered += u64::from(self.reads);
            return;
        };
        if self.is_batch {
            counts.ambiguous += u64::from(self.reads);
            return;
        }
        counts.matched += 1;
        counts.pieces += u64::from(self.reads) - 1;
        counts.copies += self.sends - 1;
        each(Message { received: self.received, sent, reads: self.reads });
    }
}

impl Threads {
    pub(super) fn take(&mut self, record: Record, counts: &mut Counts, each: impl FnMut(Message)) {
        let in_hand = self.0.get_mut(&record.thread);
        match (record.point, in_hand) {
            (Point::Received, Some(in_hand)) if in_hand.sends == 0 => in_hand.add_read(record),
            (Point::Received, _) => {
                if let Some(done) = self.0.insert(record.thread, InHand::new(record)) {
                    done.close(counts, each);
                }
            }
            (_, Some(in_hand)) => in_hand.add_send(record),
            (_, None) => counts.unasked += 1,
        }
    }

    pub(super) fn finish(&mut self, counts: &mut Counts, mut each: impl FnMut(Message)) {
        for (_, in_hand) in self.0.drain() {
            in_hand.close(counts, &mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::By;
    use crate::join::tests::{join, record};
    use crate::record::Transport::{Function, Tcp, Udp, UnixStream};

    fn received(transport: crate::Transport, socket: u64, time: u64) -> Record {
        record(Point::Received, transport, 1, socket, time)
    }

    fn sent(transport: crate::Transport, socket: u64, time: u64) -> Record {
        record(Point::Sent, transport, 1, socket, time)
    }

    #[test]
    fn one_in_one_out_on_each_thread() {
        let on = |thread, mut record: Record| {
            record.thread = thread;
            record
        };
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
        let expected = Counts { received: 2, sent: 3, matched: 2, unasked: 1, ..Counts::default() };
        assert_eq!(counts, expected);
    }

    #[test]
    fn a_forward_goes_before_a_reply_and_copies_are_counted() {
        let (messages, counts) = join(
            By::Thread,
            false,
            &[
                received(Tcp, 1, 10),
                sent(Tcp, 1, 20),
                sent(Tcp, 2, 30),
                sent(Tcp, 3, 40),
                received(Tcp, 1, 50),
                sent(Tcp, 1, 55),
            ],
        );
        let found: Vec<_> = messages.iter().map(|m| (m.inside_ns(), m.is_reply())).collect();
        assert_eq!(found, [(20, false), (5, true)]);
        assert_eq!((counts.matched, counts.copies), (2, 2));
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
        assert_eq!((counts.ambiguous, counts.unanswered, counts.matched), (4, 1, 0));
    }
}
