//! The atomics of the readers' protocol: those of `core`, or those of the model checker, so that what is modelled is what runs.

/// The side that passes a fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Between storing the slot and reading the image.
    Reader = 1,
    /// Between unlinking and looking at the slots.
    Writer = 2,
}

#[cfg(not(all(test, loom)))]
mod real {
    pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64};
    use core::sync::atomic::{Ordering, fence};

    /// Of two threads that each store, pass this and load what the other stored, at least one sees it.
    #[inline]
    pub(crate) fn full_fence(_: super::Side) {
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod real {
    use core::sync::atomic::Ordering;
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64};

    /// The fence of the product, unless the model is to show that it would be missed.
    pub(crate) fn full_fence(side: super::Side) {
        if crate::image::model::WITHOUT.load(Ordering::Relaxed) != side as u8 {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }
}

pub(crate) use real::{AtomicU32, AtomicU64, full_fence};
