//! The readers' protocol under every order of steps and every stale load that the memory model allows, checked by `loom`. To run it:
//! `RUSTFLAGS="--cfg loom" cargo test --release -p trieline-lpm --lib model`.
//!
//! The image is one word that leads to one of two blocks. The writer fills the other block, swings the word, begins a grace period,
//! and overwrites the block that it replaced once the period has passed. The blocks are plain memory here, no atomics. So it is a failure
//! when a read and the overwriting are not in a fixed order, not only when a reader sees wrong bytes.

use super::epoch::{Board, Slot, Writer};
use super::readers::HeapBoard;
use super::sync::AtomicU32;
use core::sync::atomic::{AtomicU8, AtomicU32 as Count, Ordering};
use loom::cell::UnsafeCell;
use loom::thread;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::Vec;

/// The [`super::sync::Side`] whose fence is left out; 0 leaves none out.
pub(crate) static WITHOUT: AtomicU8 = AtomicU8::new(0);

/// The tests share [`WITHOUT`].
static ONE: Mutex<()> = Mutex::new(());

const POISON: u32 = u32::MAX;

struct Image {
    word: AtomicU32,
    blocks: [UnsafeCell<u32>; 2],
    board: HeapBoard,
}

// SAFETY: loom watches every access to the blocks and fails the test on one that races.
unsafe impl Sync for Image {}

impl Image {
    fn new(readers: usize) -> Self {
        let blocks = [UnsafeCell::new(1), UnsafeCell::new(POISON)];
        Self { word: AtomicU32::new(0), blocks, board: HeapBoard::new(readers) }
    }

    /// The step of a lookup: a load that leads to the next.
    fn read(&self) {
        let block = self.word.load(Ordering::Acquire);
        // SAFETY: as for `Sync`.
        let value = self.blocks[block as usize].with(|value| unsafe { *value });
        assert_ne!(value, POISON, "a reader saw a block that was reused");
    }

    fn write(&self, block: u32, value: u32) {
        // SAFETY: as for `Sync`.
        self.blocks[block as usize].with_mut(|to| unsafe { *to = value });
    }

    /// Replaces the block in use by the other, of `value`; returns the ticket of the one that was.
    fn replace(&self, writer: &mut Writer, value: u32) -> u64 {
        let old = self.word.load(Ordering::Relaxed);
        self.write(1 - old, value);
        self.word.store(1 - old, Ordering::Release);
        writer.begin(&self.board)
    }

    /// Overwrites the block that is not in use, as an allocation would.
    fn reuse(&self) {
        self.write(1 - self.word.load(Ordering::Relaxed), POISON);
    }
}

/// The differences between the product and the variants that must fail.
#[derive(Clone, Copy)]
struct Protocol {
    without: u8,
    pin: fn(&HeapBoard, &Slot),
    unpin: fn(&Slot),
    passed: fn(&mut Writer, &HeapBoard, u64) -> bool,
}

const PRODUCT: Protocol = Protocol {
    without: 0,
    pin: |board, slot| slot.pin(board.epoch()),
    unpin: Slot::unpin,
    passed: |writer, board, ticket| writer.passed(board) >= ticket,
};

/// Runs `readers` threads of `reads` pins each beside a writer of `changes`; returns in how many runs a block was reused.
fn check(protocol: Protocol, readers: usize, reads: usize, changes: u32) -> u32 {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    WITHOUT.store(protocol.without, Ordering::Relaxed);
    let reused = Arc::new(Count::new(0));
    let count = Arc::clone(&reused);
    let mut model = loom::model::Builder::new();
    // Switches of threads where none has to be. Stale loads are not limited by it.
    model.preemption_bound = Some(if readers * reads > 1 { 3 } else { 6 });
    model.check(move || {
        let image = loom::sync::Arc::new(Image::new(readers));
        let threads: Vec<_> = (0..readers)
            .map(|slot| {
                let image = image.clone();
                thread::spawn(move || {
                    for _ in 0..reads {
                        let slot = &image.board.slots()[slot];
                        (protocol.pin)(&image.board, slot);
                        image.read();
                        (protocol.unpin)(slot);
                    }
                })
            })
            .collect();
        let mut writer = Writer::new(&image.board);
        for change in 0..changes {
            let ticket = image.replace(&mut writer, 2 + change);
            if !(protocol.passed)(&mut writer, &image.board, ticket) {
                break; // that it passes later is another run
            }
            count.fetch_add(1, Ordering::Relaxed);
            image.reuse();
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
    reused.load(Ordering::Relaxed)
}

#[test]
fn no_reader_sees_reused_memory() {
    for (readers, reads, changes) in
        [(1, 1, 1), (1, 1, 3), (1, 2, 2), (1, 3, 1), (2, 1, 1), (2, 1, 2), (2, 2, 1)]
    {
        let reused = check(PRODUCT, readers, reads, changes);
        std::println!("{readers} readers, {reads} pins each, {changes} changes: reused in {reused} cases");
        assert!(reused > 0, "the model never comes to where it matters");
    }
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_fails_without_the_readers_fence() {
    check(Protocol { without: super::sync::Side::Reader as u8, ..PRODUCT }, 1, 1, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_fails_without_the_writers_fence() {
    check(Protocol { without: super::sync::Side::Writer as u8, ..PRODUCT }, 1, 1, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_fails_without_a_release_at_the_end() {
    check(Protocol { unpin: |slot| slot.pinned.store(0, Ordering::Relaxed), ..PRODUCT }, 1, 1, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_fails_without_a_release_at_the_next_pin() {
    let pin = |board: &HeapBoard, slot: &Slot| {
        slot.pinned.store(board.epoch().load(Ordering::Acquire), Ordering::Relaxed);
        super::sync::full_fence(super::sync::Side::Reader);
    };
    check(Protocol { pin, ..PRODUCT }, 1, 2, 1);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn it_fails_without_a_grace_period() {
    check(Protocol { passed: |_, _, _| true, ..PRODUCT }, 1, 1, 1);
}
