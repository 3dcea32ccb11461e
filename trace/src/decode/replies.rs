//! Which answer belongs to which request, where a connection's answers come in the order of its requests.

use std::collections::VecDeque;

use super::protocol::{Direction, Found, Id};
use crate::record::Kind;

/// Requests that one connection can have open; who sends more is not answered.
const OPEN_MAX: usize = 1 << 16;
/// Turns a request's id into its answer's.
pub(crate) const ANSWER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Requests of a connection that have no answer yet, each with what its protocol has to know of it for that.
#[derive(Debug)]
pub(super) struct Replies<T> {
    /// Without an id: it has not come to its end.
    open: VecDeque<(Number, Option<Id>, T)>,
    next: Number,
    /// The same as a message began that goes each way: if it is an answer, then not to what was asked from there on.
    began: [Number; 2],
    /// Requests before this one were forgotten.
    known: Number,
    /// Several were open at once.
    are_many: bool,
    /// Some were not seen.
    is_cut: bool,
    /// Some that were open will have no answer, which the joiner does not know yet.
    has_forgotten: bool,
}

/// Which of a connection's requests.
pub(super) type Number = u64;

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Replies {
            open: VecDeque::new(),
            next: 0,
            began: [0; 2],
            known: 0,
            are_many: false,
            is_cut: false,
            has_forgotten: false,
        }
    }
}

impl<T> Replies<T> {
    /// A request has begun. If several are open at a time and some were not seen, their answers cannot be assigned.
    pub(super) fn begin(&mut self, what: T) -> Number {
        let number = self.next;
        self.next += 1;
        if self.open.len() < OPEN_MAX {
            self.open.push_back((number, None, what));
        } else {
            // Which answers are its own, and those of all behind it, is not known.
            self.forget();
        }
        self.are_many |= self.open.len() > 1;
        if self.are_many && self.is_cut {
            self.forget();
        }
        number
    }

    /// The request has come to its end. Its id is this, unless it was answered before that, or forgotten.
    pub(super) fn end(&mut self, number: Number, id: Id) -> Id {
        match self.open.iter_mut().find(|(open, ..)| *open == number) {
            Some((_, open, _)) => *open.insert(id),
            None if number < self.known => Id::Unseen,
            None => Id::Early,
        }
    }

    /// A whole request.
    pub(super) fn ask(&mut self, id: Id, what: T) {
        let number = self.begin(what);
        self.end(number, id);
    }

    /// A message begins that may be an answer.
    pub(super) fn message_begins(&mut self, direction: Direction) {
        self.began[direction as usize] = self.next;
    }

    /// The request of the next answer in this direction.
    pub(super) fn next(&self, direction: Direction) -> Option<&T> {
        let (number, _, what) = self.open.front()?;
        (*number < self.began[direction as usize]).then_some(what)
    }

    /// It has gone by.
    pub(super) fn answer(&mut self, direction: Direction) -> Found {
        let asked = self.next(direction).is_some();
        if !asked && !self.open.is_empty() {
            // Where it began is not known for sure, so neither are they.
            self.forget();
        }
        let id = match self.open.pop_front_if(|_| asked) {
            Some((_, Some(Id::Is(id)), _)) => Id::Is(id ^ ANSWER),
            Some((_, Some(id), _)) => id,
            Some((_, None, _)) => Id::Early,
            None => Id::Absent,
        };
        Found { kind: Kind::Response, id }
    }

    /// Some requests were not seen: no answer can be assigned.
    pub(super) fn forget(&mut self) {
        self.has_forgotten |= !self.open.is_empty();
        self.open.clear();
        self.known = self.next;
        self.is_cut = true;
    }

    /// Whether some were forgotten since the last call.
    pub(super) fn has_forgotten(&mut self) -> bool {
        std::mem::take(&mut self.has_forgotten)
    }

    /// The connection was silent for so long that none is open that was not seen.
    pub(super) fn rest(&mut self) {
        self.is_cut = false;
    }
}
