//! Which answer belongs to which request, where a connection's answers come in the order of its requests.

use std::collections::VecDeque;

use super::framer::{Found, Id};
use crate::record::Kind;

/// Requests that one connection can have open; who sends more is not answered.
const OPEN_MAX: usize = 1 << 16;
/// Turns a request's id into its answer's.
pub(crate) const ANSWER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Requests of a connection that have no answer yet, each with what its protocol has to know of it for that.
#[derive(Debug)]
pub(super) struct Replies<T> {
    open: VecDeque<(Id, T)>,
    /// Several were open at once.
    are_many: bool,
    /// Some were not seen.
    is_cut: bool,
}

impl<T> Default for Replies<T> {
    fn default() -> Self {
        Replies { open: VecDeque::new(), are_many: false, is_cut: false }
    }
}

impl<T> Replies<T> {
    /// A request has gone by. Where several are open at a time and some were not seen, nobody can tell which answers are theirs.
    pub(super) fn ask(&mut self, id: Id, what: T) {
        if self.open.len() < OPEN_MAX {
            self.open.push_back((id, what));
        }
        self.are_many |= self.open.len() > 1;
        if self.are_many && self.is_cut {
            self.open.clear();
        }
    }

    /// What the next answer answers.
    pub(super) fn next(&self) -> Option<&T> {
        self.open.front().map(|(_, what)| what)
    }

    /// An answer has gone by.
    pub(super) fn answer(&mut self) -> Found {
        let id = match self.open.pop_front() {
            Some((Id::Is(id), _)) => Id::Is(id ^ ANSWER),
            Some((id, _)) => id,
            None => Id::Absent,
        };
        Found { kind: Kind::Response, id }
    }

    /// Some were not seen: none can be told.
    pub(super) fn forget(&mut self) {
        self.open.clear();
        self.is_cut = true;
    }
}
