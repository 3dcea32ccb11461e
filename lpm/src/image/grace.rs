//! Grace periods: when memory that readers may still hold can be used again.

/// Whoever knows when every reader that ran at some moment has finished.
///
/// The protocol: the writer unlinks nodes (one word swung), *then* calls [`begin`](Grace::begin) and notes the ticket beside
/// them; they are reused once [`passed`](Grace::passed) is at least that ticket. A grace period for a ticket must begin
/// after the call of `begin` that returned it and end only when every reader that was running at its beginning has ended.
///
/// For XDP programs a grace period is an RCU one (the dataplane crate waits for it on a thread). An order-only
/// barrier (`membarrier` expedited) is none.
pub trait Grace {
    /// Asks for a grace period; returns its ticket, not less than any before. Does not block.
    fn begin(&mut self) -> u64;
    /// The highest ticket whose grace period is over; 0 before the first. Does not block.
    fn passed(&mut self) -> u64;
    /// Blocks until the grace period of `ticket` is over.
    fn wait(&mut self, ticket: u64);
}

/// The grace period of an image that nobody else reads while it is changed: always over.
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
