//! Grace periods: when memory that readers may still hold can be used again.

use alloc::collections::VecDeque;

/// Knows when every reader that ran at some moment has finished.
///
/// The protocol: the writer unlinks nodes (one word replaced), *then* calls [`begin`](Grace::begin) and notes the ticket beside them. They
/// are reused once [`passed`](Grace::passed) is at least that ticket. A grace period for a ticket must begin
/// after the call of `begin` that returned it. It must end only when every reader that was running at its beginning has ended.
///
/// For threads of this process it is [`crate::Epochs`], for other processes `io::shared` (feature `shm`). For XDP programs it is
/// an RCU grace period (`trieline-bpf` waits for it on a thread). For two kinds of readers at once it is [`Both`]. An order-only
/// barrier (`membarrier` expedited) is none.
pub trait Grace {
    /// Asks for a grace period; returns its ticket, not less than any before. Does not block.
    fn begin(&mut self) -> u64;
    /// The highest ticket whose grace period is over; 0 before the first. Does not block.
    fn passed(&mut self) -> u64;
    /// Blocks until the grace period of `ticket` is over, or for as long as the implementation will wait for a reader that does not end.
    /// [`passed`](Grace::passed) tells afterwards.
    fn wait(&mut self, ticket: u64);
}

/// The grace period of an image without readers while it is changed: always over.
///
/// Readers borrow the image ([`crate::Image::reader`]), and a change borrows it mutably, so the compiler proves it within one
/// process.
#[derive(Debug, Default)]
pub struct NoReaders(u64);

impl Grace for NoReaders {
    fn begin(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn passed(&mut self) -> u64 {
        self.0
    }

    fn wait(&mut self, _ticket: u64) {}
}

/// The grace period of an image that two kinds of readers use at once, say XDP programs and processes: over when both are.
#[derive(Debug, Default)]
pub struct Both<A, B> {
    first: A,
    second: B,
    given: u64,
    passed: u64,
    /// Tickets that have not passed: ours, the first's, the second's.
    open: VecDeque<(u64, u64, u64)>,
}

impl<A: Grace, B: Grace> Both<A, B> {
    /// The grace period that is over when that of `first` and that of `second` are.
    pub fn new(first: A, second: B) -> Self {
        Self { first, second, given: 0, passed: 0, open: VecDeque::new() }
    }
}

impl<A: Grace, B: Grace> Grace for Both<A, B> {
    fn begin(&mut self) -> u64 {
        self.given += 1;
        self.open.push_back((self.given, self.first.begin(), self.second.begin()));
        self.given
    }

    fn passed(&mut self) -> u64 {
        if !self.open.is_empty() {
            let (first, second) = (self.first.passed(), self.second.passed());
            while let Some((ticket, ..)) = self.open.pop_front_if(|(_, a, b)| *a <= first && *b <= second) {
                self.passed = ticket;
            }
        }
        self.passed
    }

    fn wait(&mut self, ticket: u64) {
        // Later tickets pass later, so the last one is enough.
        if let Some((_, first, second)) = self.open.iter().rev().find(|(ours, ..)| *ours <= ticket).copied() {
            self.first.wait(first);
            self.second.wait(second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes the tickets that the test passes.
    #[derive(Default)]
    struct Recorded {
        begun: u64,
        passed: u64,
    }

    impl Grace for Recorded {
        fn begin(&mut self) -> u64 {
            self.begun += 3; // tickets need not be consecutive
            self.begun
        }
        fn passed(&mut self) -> u64 {
            self.passed
        }
        fn wait(&mut self, ticket: u64) {
            self.passed = self.passed.max(ticket);
        }
    }

    #[test]
    fn both_must_pass() {
        let mut both = Both::new(Recorded::default(), Recorded::default());
        assert_eq!(both.passed(), 0);
        let tickets = [both.begin(), both.begin(), both.begin()];
        assert!(tickets.is_sorted());
        both.first.passed = 9;
        assert_eq!(both.passed(), 0, "the second has passed none");
        both.second.passed = 5;
        assert_eq!(
            both.passed(),
            tickets[0],
            "5 is more than the first ticket, 3, and less than the second, 6"
        );
        both.first.passed = 0;
        assert_eq!(both.passed(), tickets[0], "what has passed stays passed");
        both.wait(tickets[1]);
        assert_eq!((both.first.passed, both.second.passed), (6, 6));
        assert_eq!(both.passed(), tickets[1]);
        both.wait(u64::MAX);
        assert_eq!(both.passed(), tickets[2]);
        both.wait(tickets[0]);
        assert_eq!((both.first.passed, both.second.passed), (9, 9), "nothing to wait for");
    }
}
