//! Requests and their answers: an answer leaves by the socket by which its request came, in the order that the decoder has found.
//!
//! A proxy passes requests on and their answers back. Who asks the same as another at the same time is answered in turn, but nobody can
//! tell which of the two the proxy passed on.

use std::collections::{HashMap, VecDeque};

use super::{IDS_MAX, Key, Process};
use crate::decode::ANSWER;
use crate::join::{Counts, Message};
use crate::record::{Kind, Point, Record};

/// A request that has no answer for so long gets none that is seen.
const ANSWER_NS: u64 = 60_000_000_000;

/// All that are under way, by the request's id.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    exchanges: HashMap<Key, Exchange>,
    /// In the order of their first requests.
    order: VecDeque<(Key, u64)>,
    /// Sockets, and until when what was asked by them gets no answer that is known.
    cut: HashMap<u64, u64>,
    now_ns: u64,
}

/// What has the same request.
#[derive(Debug, Default)]
struct Exchange {
    requests: Vec<Request>,
    /// Answers that were received and not passed on yet.
    answers: Vec<Record>,
    /// Tells it from others with its id.
    began_ns: u64,
}

#[derive(Debug)]
struct Request {
    received: Record,
    /// It has been passed on, or may have been.
    is_passed: bool,
    /// It is in a count.
    is_counted: bool,
}

impl Exchanges {
    pub(super) fn take(
        &mut self,
        id: u64,
        record: Record,
        process: Process,
        counts: &mut Counts,
        each: impl FnMut(Message),
    ) {
        self.now_ns = self.now_ns.max(record.time_ns);
        let is_request = record.kind == Kind::Request;
        let key = (record.process, if is_request { id } else { id ^ ANSWER });
        if let Some(exchange) = self.exchanges.get_mut(&key) {
            let is_cut = |request: &Request| {
                self.cut
                    .get(&request.received.socket)
                    .is_some_and(|cut_ns| request.received.time_ns <= *cut_ns)
            };
            let gone = exchange.requests.extract_if(.., |request| is_cut(request));
            counts.cut_off += gone.filter(|request| !request.is_counted).count() as u64;
        }
        match (is_request, record.point == Point::Received) {
            (true, true) => return self.ask(key, record, counts),
            (true, false) => match self.exchanges.get_mut(&key) {
                Some(exchange) => exchange.pass_on(record, process, counts, each),
                None => counts.unasked += 1,
            },
            (false, true) => match self.exchanges.get_mut(&key) {
                Some(exchange) if exchange.requests.iter().any(|request| request.is_passed) => {
                    exchange.answers.push(record);
                }
                // The process is the client itself, or has answered already.
                _ => counts.unanswered += 1,
            },
            (false, false) => match self.exchanges.get_mut(&key) {
                Some(exchange) => exchange.answer(record, process, counts, each),
                None => counts.unasked += 1,
            },
        }
        if self.exchanges.get(&key).is_some_and(Exchange::is_over) {
            self.exchanges.remove(&key);
        }
    }

    /// Which of the answers that leave by the socket from here on are to what was asked until then is not known.
    pub(super) fn cut(&mut self, socket: u64, time_ns: u64) {
        if self.cut.len() >= IDS_MAX {
            let now_ns = self.now_ns;
            self.cut.retain(|_, cut_ns| cut_ns.saturating_add(ANSWER_NS) > now_ns);
        }
        self.cut.insert(socket, time_ns);
    }

    /// The number is another socket's now.
    pub(super) fn renew(&mut self, socket: u64) {
        self.cut(socket, self.now_ns);
    }

    fn ask(&mut self, key: Key, received: Record, counts: &mut Counts) {
        let exchange = self.exchanges.entry(key).or_default();
        if exchange.requests.is_empty() {
            exchange.began_ns = received.time_ns;
            self.order.push_back((key, received.time_ns));
        }
        let is_old =
            |request: &Request| request.received.time_ns.saturating_add(ANSWER_NS) < received.time_ns;
        let old = exchange.requests.extract_if(.., |request| is_old(request));
        counts.unanswered += old.filter(|request| !request.is_counted).count() as u64;
        exchange.requests.push(Request { received, is_passed: false, is_counted: false });
        while self.order.len() > IDS_MAX {
            let Some((key, began_ns)) = self.order.pop_front() else { return };
            if self.exchanges.get(&key).is_some_and(|exchange| exchange.began_ns == began_ns)
                && let Some(gone) = self.exchanges.remove(&key)
            {
                counts.unanswered += gone.waiting();
            }
        }
    }

    /// There is nothing more: how many have no other end.
    pub(super) fn end(&mut self) -> u64 {
        self.order.clear();
        self.exchanges.drain().map(|(_, exchange)| exchange.waiting()).sum()
    }
}

impl Exchange {
    fn is_over(&self) -> bool {
        self.requests.is_empty() && self.answers.is_empty()
    }

    /// Those that are in no count yet.
    fn waiting(&self) -> u64 {
        let requests = self.requests.iter().filter(|request| !request.is_counted).count();
        (requests + self.answers.len()) as u64
    }

    /// The request goes on to another server.
    fn pass_on(&mut self, sent: Record, process: Process, counts: &mut Counts, each: impl FnMut(Message)) {
        // Of requests before this one.
        counts.unanswered += self.answers.drain(..).count() as u64;
        match &mut self.requests[..] {
            [only] if !only.is_counted => process.found(only.received, sent, counts, each),
            requests => {
                let open = requests.iter().filter(|request| !request.is_counted).count() as u64;
                counts.ambiguous += open;
                counts.copies += u64::from(open == 0);
            }
        }
        for request in &mut self.requests {
            (request.is_passed, request.is_counted) = (true, true);
        }
    }

    /// An answer leaves: one that was received, or the process's own.
    fn answer(&mut self, sent: Record, process: Process, counts: &mut Counts, each: impl FnMut(Message)) {
        let asked = self.requests.iter().position(|request| request.received.socket == sent.socket);
        let is_alone = self.requests.len() == 1;
        let asked = asked.map(|asked| self.requests.remove(asked));
        match (&self.answers[..], asked) {
            ([], None) => counts.unasked += 1,
            // By the socket by which the request came, in its turn: nothing else can have been the answer.
            ([], Some(request)) if !request.is_counted => {
                Process::default().found(request.received, sent, counts, each);
            }
            ([], Some(_)) => counts.copies += 1,
            ([passed], Some(request)) if is_alone && request.is_passed => {
                process.found(*passed, sent, counts, each);
            }
            (several, asked) => {
                let is_open = asked.is_some_and(|request| !request.is_counted);
                counts.ambiguous += several.len() as u64 + u64::from(is_open);
            }
        }
        self.answers.clear();
    }
}
