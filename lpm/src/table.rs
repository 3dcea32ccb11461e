//! One table: its prefixes in order (the shadow), and the root in the image that says the same to readers.

mod change;
mod root;

use crate::image::Error;
use crate::image::build::Swing;
use crate::image::layout::VALUE_MAX;
use crate::shadow::Shadow;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::vec::Vec;
use root::Root;

/// A prefix table of an [`Image`], changed prefix by prefix or as a whole.
///
/// The image holds what a lookup needs; the prefixes themselves are here, in the writer's memory. Pass the image that the
/// table was created in to every change.
#[derive(Debug)]
pub struct Table<A: Address> {
    id: u32,
    shadow: Shadow<A>,
    root: Root,
    /// Changes since the palette ran out of codes.
    uncoded: usize,
    /// A buffer for words to publish.
    swings: Vec<Swing>,
}

impl<A: Address> Table<A> {
    /// Makes table `id` of `image` from `prefixes` (any order; of equal prefixes the last counts), replacing what was there, also
    /// a table of an earlier writer, for all addresses at once. O(n log n), O(n) if sorted.
    pub fn create<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        id: u32,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        let mut table =
            Self { id, shadow: Shadow::default(), root: Root::NONE, uncoded: 0, swings: Vec::new() };
        table.replace(image, prefixes)?;
        Ok(table)
    }

    /// Replaces the whole table for all addresses at once. O(n log n), O(n) if sorted. The memory must hold both for a moment.
    pub fn replace<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        image.check_table(self.id)?;
        let checked = prefixes.into_iter().map(|item| check_value(item.1).map(|()| item));
        let shadow: Shadow<A> = checked.collect::<Result<_, _>>()?;
        self.root = Root::build(image, self.id, &shadow)?;
        self.shadow = shadow;
        Ok(())
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.shadow.get(prefix)
    }

    /// The longest prefix that contains `addr`, and its value; from the shadow, not the image. O(k log n), k being the number of
    /// prefix lengths tried.
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        self.shadow.longest(addr, A::WIDTH)
    }

    /// All prefixes in order: by address, shorter first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.iter()
    }

    /// All prefixes from `from` on, in order.
    pub fn iter_from(&self, from: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.from(from)
    }

    /// All prefixes up to and with `until`, in order; `.rev()` walks down from it. O(log n) to start.
    pub fn iter_until(&self, until: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.until(until)
    }

    /// All prefixes that contain `addr`, shortest first: the last is the answer of [`Table::lookup`].
    pub fn matches(&self, addr: A) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.matches(addr, A::WIDTH)
    }

    /// The prefixes that cover `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: &Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.matches(prefix.addr(), prefix.len())
    }

    /// The prefixes that `prefix` covers, itself included, in order. O(log n) to start.
    pub fn covered(&self, prefix: &Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.shadow.within(*prefix)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.shadow.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.shadow.len() == 0
    }

    /// Its id in the image's directory.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Address bits that index its root.
    pub fn root_bits(&self) -> u16 {
        self.root.bits
    }
}

fn check_value(value: u32) -> Result<(), Error> {
    if (1..=VALUE_MAX).contains(&value) { Ok(()) } else { Err(Error::Value { value }) }
}
