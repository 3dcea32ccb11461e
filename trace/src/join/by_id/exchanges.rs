//! Requests and their answers: an answer leaves by the socket by which its request came, in the order that the decoder has found.
//!
//! A proxy passes requests on and their answers back. Of two equal requests at the same time, each is answered in turn, but the proxy may
//! have passed on either.

use std::collections::{HashMap, VecDeque};

use super::process::{Key, Process};
use super::sieve::{Lately, Sieve};
use crate::decode::ANSWER;
use crate::join::counts::Counts;
use crate::join::message::Message;
use crate::record::{Kind, Point, Record};

/// A request that was passed on so long ago is in no other request's way after twice that time. Sockets are cut for at least so long.
const ANSWER_NS: u64 = 60_000_000_000;

/// All that are under way, by the request's id.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    /// So many requests wait.
    requests_max: usize,
    exchanges: HashMap<Key, Exchange>,
    /// Requests in their order, some without waiting any more, and how many wait.
    order: VecDeque<(Key, u64)>,
    waiting: usize,
    next: u64,
    /// Sockets, with the time until which their requests get no known answer; of all sockets the same.
    cut: HashMap<u64, u64>,
    all_cut_ns: u64,
    /// Requests that were let go, and sockets by which they came: what belongs to them is not the next one's.
    gone: Sieve,
    gone_lately: Lately,
    gone_sockets: Sieve,
    now_ns: u64,
}

/// The requests that are equal.
#[derive(Debug, Default)]
struct Exchange {
    requests: Vec<Request>,
    /// Answers that were received and not passed on yet.
    answers: Vec<Record>,
}

#[derive(Debug)]
struct Request {
    received: Record,
    /// Tells it from others.
    number: u64,
    /// It has been passed on, or may have been.
    is_passed: bool,
    /// It is in a count.
    is_counted: bool,
}

impl Exchanges {
    /// Of so many requests at a time.
    pub(super) fn of(requests_max: usize) -> Exchanges {
        Exchanges { requests_max, ..Exchanges::default() }
    }

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
            let is_cut = |request: &mut Request| {
                let cut_ns =
                    self.cut.get(&request.received.socket).copied().unwrap_or(0).max(self.all_cut_ns);
                request.received.time_ns <= cut_ns
            };
            for gone in exchange.requests.extract_if(.., is_cut) {
                self.waiting -= 1;
                counts.cut_off += u64::from(!gone.is_counted);
            }
        }
        let is_any = self.gone.may_have(key) || self.gone_lately.may_have(key);
        match (is_request, record.point == Point::Received) {
            (true, true) => return self.ask(key, record, counts),
            (true, false) => match self.exchanges.get_mut(&key) {
                // It may as well be one that was let go.
                Some(exchange) if is_any => exchange.pass_on_any(counts),
                Some(exchange) => exchange.pass_on(record, process, counts, each),
                None => counts.unmatched_sent += 1,
            },
            (false, true) => match self.exchanges.get_mut(&key) {
                Some(exchange) if exchange.requests.iter().any(|request| request.is_passed) => {
                    exchange.answers.push(record);
                }
                // The process is the client itself, or has answered already.
                _ => counts.unmatched_received += 1,
            },
            (false, false) => match self.exchanges.get_mut(&key) {
                Some(exchange) => {
                    self.waiting -= exchange.answer(record, is_any, process, counts, each);
                }
                None => counts.unmatched_sent += 1,
            },
        }
        if self.exchanges.get(&key).is_some_and(Exchange::is_over) {
            self.exchanges.remove(&key);
        }
    }

    /// From here on, answers that leave by the socket may be to requests before this time.
    pub(super) fn cut(&mut self, socket: u64, time_ns: u64) {
        if self.cut.len() >= self.requests_max {
            let long_ns = self.now_ns.saturating_sub(ANSWER_NS);
            self.cut.retain(|_, cut_ns| *cut_ns > long_ns);
            self.all_cut_ns = long_ns;
        }
        self.cut.insert(socket, time_ns);
    }

    fn ask(&mut self, key: Key, received: Record, counts: &mut Counts) {
        let exchange = self.exchanges.entry(key).or_default();
        let is_old = |request: &mut Request| {
            request.is_passed && request.received.time_ns.saturating_add(ANSWER_NS) < received.time_ns
        };
        for gone in exchange.requests.extract_if(.., is_old) {
            self.waiting -= 1;
            self.gone_lately.insert(key, received.time_ns, ANSWER_NS);
            self.gone_sockets.insert(gone.received.socket);
        }
        // Its answer may be that to a request that was let go.
        let is_given_up = self.gone_sockets.may_have(received.socket);
        counts.given_up += u64::from(is_given_up);
        let number = self.next;
        self.next += 1;
        exchange.requests.push(Request { received, number, is_passed: false, is_counted: is_given_up });
        self.order.push_back((key, number));
        self.waiting += 1;
        while self.waiting > self.requests_max {
            let Some((key, number)) = self.order.pop_front() else { return };
            counts.given_up += self.give_up(key, number);
        }
        if self.order.len() > 2 * self.requests_max {
            let exchanges = &self.exchanges;
            self.order.retain(|(key, number)| {
                let is_it = |request: &Request| request.number == *number;
                exchanges.get(key).is_some_and(|exchange| exchange.requests.iter().any(is_it))
            });
        }
    }

    /// Lets go of a request; how many are in no count yet.
    fn give_up(&mut self, key: Key, number: u64) -> u64 {
        let Some(exchange) = self.exchanges.get_mut(&key) else { return 0 };
        let Some(at) = exchange.requests.iter().position(|request| request.number == number) else {
            return 0;
        };
        let request = exchange.requests.remove(at);
        self.waiting -= 1;
        self.gone.insert(key);
        self.gone_sockets.insert(request.received.socket);
        if exchange.is_over() {
            self.exchanges.remove(&key);
        }
        u64::from(!request.is_counted)
    }

    /// There is nothing more: how many have no other end.
    pub(super) fn end(&mut self) -> u64 {
        self.order.clear();
        self.waiting = 0;
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
        counts.unmatched_received += self.answers.drain(..).count() as u64;
        match &mut self.requests[..] {
            [only] if !only.is_counted => process.found(only.received, sent, counts, each),
            requests => {
                let open = requests.iter().filter(|request| !request.is_counted).count() as u64;
                counts.ambiguous += open;
                *if open == 0 { &mut counts.copies } else { &mut counts.undecided } += 1;
            }
        }
        for request in &mut self.requests {
            (request.is_passed, request.is_counted) = (true, true);
        }
    }

    /// A request goes on that may be none of these.
    fn pass_on_any(&mut self, counts: &mut Counts) {
        counts.ambiguous += self.waiting();
        counts.undecided += 1;
        self.answers.clear();
        for request in &mut self.requests {
            (request.is_passed, request.is_counted) = (true, true);
        }
    }

    /// An answer leaves: one that was received, or the process's own; `is_any`: those received may be to requests that were let go. How
    /// many requests have waited for it: one or none.
    fn answer(
        &mut self,
        sent: Record,
        is_any: bool,
        process: Process,
        counts: &mut Counts,
        each: impl FnMut(Message),
    ) -> usize {
        let asked = self.requests.iter().position(|request| request.received.socket == sent.socket);
        let is_alone = self.requests.len() == 1 && !is_any;
        let asked = asked.map(|asked| self.requests.remove(asked));
        let waited = usize::from(asked.is_some());
        match (&self.answers[..], asked) {
            ([], None) => counts.unmatched_sent += 1,
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
                counts.undecided += 1;
            }
        }
        self.answers.clear();
        waited
    }
}
