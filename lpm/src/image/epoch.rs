//! How a writer learns that no reader can still hold what it replaced: the protocol, wherever its words lie.
//!
//! The writer counts *epochs*. A reader owns one [`Slot`] and *pins*: it stores the epoch that it finds into its slot, and 0
//! when it has finished. Readers never wait, never retry and write nothing else.
//!
//! 1. The writer unlinks nodes, passes a full fence, stores epoch *t* and holds the nodes as ticket *t*.
//! 2. A reader loads the epoch, stores it into its slot, passes a full fence, reads the image, and stores 0 (release).
//! 3. The ticket has passed once the writer has seen each slot at 0 or at *t* or later.
//!
//! Why nothing is reused too early. One of the two fences comes first. If the writer's does, the reader sees all that was
//! unlinked before it and cannot find those nodes. If the reader's fence comes first, the writer, looking after its own fence, sees the
//! slot as the reader stored it or later. An epoch before *t* holds the ticket. An epoch of *t* or later was loaded from the store that
//! followed the unlinking, so again the reader cannot find the nodes. 0 or a later pin was stored by release after the last read of the
//! earlier pin. The writer's load acquires it, so that its new bytes come after that read. An old epoch found by a slow reader only holds
//! tickets that it could not harm. A ticket that has passed stays passed, as who pins later sees the unlinking.
//!
//! `model.rs` checks this code under every order of steps that the memory model allows. It also checks that the code fails when a fence or
//! a release is left out.

use super::sync::{AtomicU32, AtomicU64, Side, full_fence};
use core::sync::atomic::Ordering;
use core::time::Duration;

/// The epoch of a board that has just been made; 0 in a slot means "not pinned".
pub(crate) const FIRST: u64 = 1;

/// One reader's place, a cache line of its own: written by its reader only, read by the writer.
///
/// In a file: 64 bytes, little-endian, `pinned` at 0, `owner` at 8, the rest 0.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Slot {
    /// The epoch in which its reader pinned; 0 when it does not read.
    pub(crate) pinned: AtomicU64,
    /// The owner of the slot; 0 means none. In a file it is the process that had it last, for people to look at: there the lock decides.
    pub(crate) owner: AtomicU32,
}

#[cfg(not(all(test, loom)))]
const _: () = assert!(
    size_of::<Slot>() == 64
        && core::mem::offset_of!(Slot, pinned) == 0
        && core::mem::offset_of!(Slot, owner) == 8
);

impl Slot {
    /// A free slot.
    pub(crate) fn new() -> Self {
        Self { pinned: AtomicU64::new(0), owner: AtomicU32::new(0) }
    }

    /// From here on nothing that the reader finds is reused. O(1), no loop; it costs a full fence.
    #[inline]
    pub(crate) fn pin(&self, epoch: &AtomicU64) {
        // Acquire: with epoch t comes all that was unlinked before it. Release: a thread that sees this pin and not the end of the one
        // before has still seen the end of its reads.
        self.pinned.store(epoch.load(Ordering::Acquire), Ordering::Release);
        full_fence(Side::Reader);
    }

    /// The reads are over.
    #[inline]
    pub(crate) fn unpin(&self) {
        self.pinned.store(0, Ordering::Release);
    }
}

/// Where an epoch and its readers' slots lie: on the heap, or in a file that processes map.
pub(crate) trait Board {
    /// Stored by the writer only.
    fn epoch(&self) -> &AtomicU64;
    fn slots(&self) -> &[Slot];
    /// Clears a slot whose reader has died while it was pinned; whether it did.
    fn clear_if_dead(&self, _slot: usize) -> bool {
        false
    }
}

/// The slot that holds a ticket, and the epoch in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holder {
    slot: usize,
    pinned: u64,
}

/// The writer's side: one for a board, in all processes.
#[derive(Debug)]
pub(crate) struct Writer {
    epoch: u64,
    passed: u64,
    /// The reader that held the tickets back when it was last looked for.
    holder: Option<Holder>,
    /// The last holder that was found alive, and the epoch then.
    alive: Option<(Holder, u64)>,
    /// A reader for which `wait` has already waited as long as it may.
    given_up: Option<Holder>,
    patience: Duration,
}

impl Writer {
    /// The time that [`Writer::wait`] waits by default.
    pub const PATIENCE: Duration = Duration::from_millis(100);

    /// Goes on from the epoch that `board` is at.
    pub fn new(board: &impl Board) -> Self {
        let epoch = board.epoch().load(Ordering::Acquire);
        Self { epoch, passed: 0, holder: None, alive: None, given_up: None, patience: Self::PATIENCE }
    }

    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// [`crate::Grace::begin`]. O(1).
    pub fn begin(&mut self, board: &impl Board) -> u64 {
        self.epoch += 1;
        full_fence(Side::Writer);
        board.epoch().store(self.epoch, Ordering::Release);
        self.epoch
    }

    /// [`crate::Grace::passed`]. O(1) while the same reader holds the tickets, else O(slots).
    pub fn passed(&mut self, board: &impl Board) -> u64 {
        if self.passed == self.epoch {
            return self.passed;
        }
        let pinned = |slot: &Slot| slot.pinned.load(Ordering::Acquire);
        if let Some(holder) = self.holder
            && pinned(&board.slots()[holder.slot]) == holder.pinned
            && !self.holder_is_dead(board)
        {
            return self.passed;
        }
        loop {
            let mut least = self.epoch;
            self.holder = None;
            for (index, slot) in board.slots().iter().enumerate() {
                let pinned = pinned(slot);
                if pinned != 0 && pinned < least {
                    least = pinned;
                    self.holder = Some(Holder { slot: index, pinned });
                }
            }
            if self.holder.is_none() || !self.holder_is_dead(board) {
                self.passed = self.passed.max(least);
                return self.passed;
            }
        }
    }

    /// Asks once an epoch for the same pin, because asking is a system call.
    fn holder_is_dead(&mut self, board: &impl Board) -> bool {
        let Some(holder) = self.holder else { return false };
        if self.alive == Some((holder, self.epoch)) {
            return false;
        }
        let dead = board.clear_if_dead(holder.slot);
        self.alive = (!dead).then_some((holder, self.epoch));
        dead
    }

    /// [`crate::Grace::wait`]: returns when the ticket has passed, or when a reader has been pinned for longer than the patience. It does
    /// not wait for such a pin again.
    pub fn wait(&mut self, board: &impl Board, ticket: u64) {
        // A ticket that was never given out would never pass.
        let ticket = ticket.min(self.epoch);
        let mut pause = Pause::new(self.patience);
        loop {
            self.alive = None; // the process with the ticket may have died since
            if self.passed(board) >= ticket {
                return;
            }
            if (self.holder.is_some() && self.holder == self.given_up) || !pause.once() {
                self.given_up = self.holder;
                return;
            }
        }
    }
}

/// Waits a little, each time longer, until the patience is used up.
struct Pause {
    round: u32,
    patience: Duration,
    #[cfg(feature = "std")]
    begin: std::time::Instant,
}

impl Pause {
    /// Rounds of spinning, each twice as long as the one before: some 100 µs together, longer than any lookup takes.
    const SPIN: u32 = 12;
    /// Then rounds that only let other threads run; then sleep.
    #[cfg(feature = "std")]
    const YIELD: u32 = 32;

    fn new(patience: Duration) -> Self {
        Self {
            round: 0,
            patience,
            #[cfg(feature = "std")]
            begin: std::time::Instant::now(),
        }
    }

    /// Whether there was patience left.
    fn once(&mut self) -> bool {
        if self.round < Self::SPIN {
            for _ in 0..1u32 << self.round {
                core::hint::spin_loop();
            }
            self.round += 1;
            return true;
        }
        self.longer()
    }

    #[cfg(feature = "std")]
    fn longer(&mut self) -> bool {
        if self.begin.elapsed() >= self.patience {
            return false;
        }
        self.round += 1;
        match self.round - Self::SPIN {
            ..Self::YIELD => std::thread::yield_now(),
            late => std::thread::sleep(Duration::from_micros(50 << (late - Self::YIELD).min(4))),
        }
        true
    }

    /// Without a clock a microsecond of patience is a round of 64 spins.
    #[cfg(not(feature = "std"))]
    fn longer(&mut self) -> bool {
        for _ in 0..64 {
            core::hint::spin_loop();
        }
        self.patience = self.patience.saturating_sub(Duration::from_micros(1));
        !self.patience.is_zero()
    }
}
