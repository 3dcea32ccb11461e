//! Changes of a live table: one prefix, or many at once.

use super::Table;
use super::check_value;
use super::root::{Root, root_bits};
use crate::image::Error;
use crate::image::layout::{LINE, TableHeader, UNIT};
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::Ordering;

/// A prefix whose value changes, from the first to the second.
type Change<A> = (Prefix<A>, Option<u32>, Option<u32>);

/// How changes reached the readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Published {
    /// Word by word.
    Words,
    /// As a new table.
    Whole,
}

impl<A: Address> Table<A> {
    /// Adds a prefix or changes its value; returns the value that was there.
    ///
    /// For every single address a lookup sees the state before or after. A prefix shorter than the root's bits (8 to 18) changes up to
    /// all root slots one after another; that of length 0 copies the root. O(log n + prefixes it covers).
    pub fn insert<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: u32,
    ) -> Result<Option<u32>, Error> {
        check_value(value)?;
        self.set(image, prefix, Some(value))
    }

    /// Removes a prefix; returns the value that was there. Complexity as [`Table::insert`]. It may need a node too, so that a full
    /// image can refuse it.
    pub fn remove<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: &Prefix<A>,
    ) -> Result<Option<u32>, Error> {
        self.set(image, *prefix, None)
    }

    /// Makes many changes, each a prefix and its new value or None to remove it; of equal prefixes the last counts. Returns how
    /// many prefixes changed.
    ///
    /// All of them or, on an error, none; nothing of it is published before all of it is built. Lookups see address after address
    /// change, each from the state before to the state after. O(k log k) beside what k single changes cost, and less for those
    /// that lie together; more than an eighth of the table is built as a whole.
    pub fn apply<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: impl IntoIterator<Item = (Prefix<A>, Option<u32>)>,
    ) -> Result<usize, Error> {
        let changes: Vec<_> = changes.into_iter().collect();
        changes.iter().filter_map(|(_, value)| *value).try_for_each(check_value)?;
        let mut done: Vec<Change<A>> = Vec::with_capacity(changes.len());
        for (prefix, value) in changes {
            let old = self.shadow.set(prefix, value);
            if old != value {
                done.push((prefix, old, value));
            }
        }
        self.acquire(image, &done);
        let is_much = done.len() > self.shadow.len() / 8 + 64;
        let published = match done[..] {
            [] => return Ok(0),
            [(prefix, ..)] => self.change_one(image, prefix, &done),
            _ => self.rebuild_or(image, is_much, |table, image| table.publish(image, &done)),
        };
        self.conclude(image, &done, published)?;
        // A prefix that came up twice counts once.
        done.sort_unstable_by_key(|(prefix, ..)| *prefix);
        done.dedup_by_key(|(prefix, ..)| *prefix);
        Ok(done.len())
    }

    fn set<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: Option<u32>,
    ) -> Result<Option<u32>, Error> {
        let old = self.shadow.set(prefix, value);
        if old == value {
            return Ok(old);
        }
        let done = [(prefix, old, value)];
        self.acquire(image, &done);
        let published = self.change_one(image, prefix, &done);
        self.conclude(image, &done, published)?;
        Ok(old)
    }

    fn change_one<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        done: &[Change<A>],
    ) -> Result<Published, Error> {
        self.rebuild_or(image, false, |table, image| {
            if prefix.len() >= table.root.bits {
                table.edit(image, prefix)
            } else {
                table.publish(image, done)
            }
        })
    }

    /// Builds the table anew where that is due (or `is_much` is to change), else does as `otherwise` says.
    ///
    /// Due: twice as many prefixes as this root is meant for; a palette that has had no code for some values, for as many changes
    /// as there are prefixes.
    fn rebuild_or<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        is_much: bool,
        otherwise: impl FnOnce(&mut Self, &mut Image<M, G>) -> Result<(), Error>,
    ) -> Result<Published, Error> {
        let is_outgrown = self.root.bits < root_bits::<A>(self.shadow.len() / 2);
        if is_much || is_outgrown || self.uncoded > self.shadow.len() {
            self.uncoded = 0;
            match Root::build(image, self.id, &self.shadow) {
                // Where a new root does not fit, this one still does.
                Err(Error::Full { .. }) => (),
                Err(error) => return Err(error),
                Ok(root) => {
                    self.root = root;
                    return Ok(Published::Whole);
                }
            }
        }
        otherwise(self, image).map(|()| Published::Words)
    }

    /// Changes what lies under the one root slot that a prefix of at least as many bits as the root's falls into.
    fn edit<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, prefix: Prefix<A>) -> Result<(), Error> {
        let Root { bits, palette, .. } = &self.root;
        let word = self.root.index(prefix.addr().bits_at(0, *bits));
        let mut builder = image.builder::<A>(palette.as_deref());
        let mut swings = core::mem::take(&mut self.swings);
        swings.clear();
        let edited = match builder.edit(&self.shadow, &[prefix], word, *bits, &mut swings) {
            Ok(()) => {
                builder.publish(&swings);
                Ok(())
            }
            Err(error) => Err(builder.abandon(error)),
        };
        self.swings = swings;
        edited
    }

    /// Builds what `changes`, which the shadow has already, make of the image, then publishes it word by word.
    fn publish<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &[Change<A>],
    ) -> Result<(), Error> {
        let Root { bits, palette, .. } = &self.root;
        let bits = *bits;
        let mut builder = image.builder::<A>(palette.as_deref());
        let mut prefixes: Vec<Prefix<A>> = changes.iter().map(|(prefix, ..)| *prefix).collect();
        prefixes.sort_unstable();
        prefixes.dedup();
        let (mut swings, mut covers) = (Vec::new(), Vec::new());
        let mut build = || {
            let is_fallback = prefixes.first().is_some_and(|prefix| prefix.len() == 0);
            let root = if is_fallback { Some(builder.nodes.allocate(self.root.units())?) } else { None };
            // Sorted order names a short prefix before those it covers, whose slots it repaints as well.
            let mut last: Option<Prefix<A>> = None;
            for prefix in prefixes.iter().filter(|prefix| (1..bits).contains(&prefix.len())) {
                if !last.is_some_and(|last| last.covers(prefix)) {
                    self.root.repaint(&mut builder, &self.shadow, *prefix, &mut swings, &mut covers)?;
                    last = Some(*prefix);
                }
            }
            let repainted: BTreeSet<usize> = swings.iter().map(|swing| swing.word).collect();
            let slot = |prefix: &Prefix<A>| prefix.addr().bits_at(0, bits);
            prefixes.retain(|prefix| prefix.len() >= bits);
            for together in prefixes.chunk_by(|one, two| slot(one) == slot(two)) {
                let word = self.root.index(slot(&together[0]));
                if !repainted.contains(&word) {
                    builder.edit(&self.shadow, together, word, bits, &mut swings)?;
                }
            }
            Ok(root)
        };
        let root = match build() {
            Ok(root) => root,
            Err(error) => return Err(builder.abandon(error)),
        };
        builder.publish(&swings);
        for (first, cover) in covers {
            self.root.cover[first..first + cover.len()].copy_from_slice(&cover);
        }
        if let Some(block) = root {
            let fallback = self.shadow.get(&Prefix::truncated(A::ZERO, 0)).unwrap_or(0);
            self.root.change_fallback(image, self.id, block.at * UNIT + LINE, fallback);
        }
        Ok(())
    }

    /// Counts the values that `changes` bring.
    fn acquire<M: Memory, G: Grace>(&mut self, image: &Image<M, G>, changes: &[Change<A>]) {
        if let Some(palette) = &mut self.root.palette {
            for value in changes.iter().filter(|change| change.0.len() > 0).filter_map(|change| change.2) {
                palette.acquire(image.memory.words(), &image.space, value);
                self.uncoded += usize::from(palette.is_full());
            }
        }
    }

    /// Brings what is counted in line with what was published, or takes `changes` back.
    fn conclude<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &[Change<A>],
        published: Result<Published, Error>,
    ) -> Result<(), Error> {
        let is_done = published.is_ok();
        if !is_done {
            for (prefix, old, _) in changes.iter().rev() {
                self.shadow.set(*prefix, *old);
            }
        }
        // A palette made anew has counted what is there now.
        let palette = self.root.palette.as_mut().filter(|_| published != Ok(Published::Whole));
        if let Some(palette) = palette {
            let gone = |change: &Change<A>| if is_done { change.1 } else { change.2 };
            for value in changes.iter().filter(|change| change.0.len() > 0).filter_map(gone) {
                palette.release(&mut image.space, value);
            }
        }
        let count = self.root.header(image.memory.words(), offset_of!(TableHeader, prefixes));
        count.store(self.shadow.len() as u32, Ordering::Relaxed);
        published.map(|_| ())
    }
}
