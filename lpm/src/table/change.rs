//! Changes of a live table: one prefix, or many at once.

use super::Table;
use super::check_value;
use super::exact;
use super::root::{DEEP_FROM, Root, root_bits, weight};
use crate::image::Error;
use crate::image::exact::key;
use crate::image::layout::TableHeader;
use crate::prefix::Entry;
use crate::prefix_store::Change;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::vec::Vec;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering};

/// Changes whose memory is asked for at once.
const AHEAD: usize = 16;

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
    /// For every single address a lookup sees the state before or after. A prefix shorter than the root's bits (8 to 20) changes up to
    /// all root slots one after another. So does one of IPv6 shorter than 24 bits in a `direct12`. That of length 0 takes three stores.
    /// O(log n + prefixes below the rebuilt node), most often none; at worst the prefixes that it covers or that share its last node.
    pub fn insert<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: u32,
    ) -> Result<Option<u32>, Error> {
        check_value(value)?;
        self.set(image, prefix, Some(value))
    }

    /// Removes a prefix; returns the value that was there. Complexity as [`Table::insert`]. It may need a node too; for what a full image
    /// does then see [`Table`].
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
    /// change, each from the state before to the state after. O(k log k) on top of the cost of k single changes, and less for changes that
    /// lie together. More than an eighth of the table is built as a whole, if the memory holds the table twice. So is it if the prefix of
    /// length 0 changes, others are added and others are removed; then the memory must.
    pub fn apply<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: impl IntoIterator<Item = (Prefix<A>, Option<u32>)>,
    ) -> Result<usize, Error> {
        image.check_owner(self.id, self.stamp)?;
        let mut changes: Vec<_> = changes.into_iter().collect();
        changes.iter().filter_map(|(_, value)| *value).try_for_each(check_value)?;
        changes.iter().try_for_each(|(prefix, _)| self.check_length(prefix))?;
        // Each prefix before those that it covers, and the last of equal ones first.
        changes.reverse();
        changes.sort_by_key(|(prefix, _)| A::Entry::key(prefix));
        changes.dedup_by_key(|(prefix, _)| *prefix);
        let mut done: Vec<Change<A>> = Vec::with_capacity(changes.len());
        for some in changes.chunks(AHEAD) {
            self.ahead(image.memory.words(), some);
            let changes = some.iter().map(|(prefix, value)| self.prefix_store.change(*prefix, *value));
            done.extend(changes.filter(|change| change.old != change.new));
        }
        let count = done.len();
        if count > 0 {
            let is_much = count > self.prefix_store.len() / 8 + 64;
            let (others, exact) = match &self.root.exact {
                Some(exact) => exact::divide(image.memory.words(), exact, done),
                None => (done, Vec::new()),
            };
            self.make(image, &Changes::new(&others, &exact), is_much)?;
        }
        Ok(count)
    }

    fn set<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefix: Prefix<A>,
        value: Option<u32>,
    ) -> Result<Option<u32>, Error> {
        image.check_owner(self.id, self.stamp)?;
        self.check_length(&prefix)?;
        self.root.ahead(image.memory.words(), &prefix, 1);
        let change = self.prefix_store.change(prefix, value);
        if change.old != change.new {
            let is_exact = self.root.exact.as_ref().is_some_and(|exact| {
                change.prefix.len() == self.key_bits
                    && exact::divide(image.memory.words(), exact, Vec::from([change])).0.is_empty()
            });
            let (one, none) = (&[change][..], &[][..]);
            let (others, exact) = if is_exact { (none, one) } else { (one, none) };
            self.make(image, &Changes::new(others, exact), false)?;
        }
        Ok(change.old)
    }

    /// Makes of the image what the sorted `changes`, which the shadow has already, say; or takes them back.
    fn make<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &Changes<'_, A>,
        is_much: bool,
    ) -> Result<(), Error> {
        self.acquire(image, changes.others);
        changes.all().for_each(|change| self.count(change, true));
        self.root.count(changes.others, true);
        image.space.use_reserve(changes.is_removal);
        let published = match self.rebuild_or(image, changes, is_much) {
            Err(Error::Full { .. }) if changes.is_removal && self.may_withdraw => self.withdraw(image),
            published => published,
        };
        image.space.use_reserve(false);
        self.conclude(image, changes, published)
    }

    /// Takes the table out of the image and builds it again where it was: for removals that the memory does not hold otherwise.
    fn withdraw<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>) -> Result<Published, Error> {
        if !self.is_withdrawn {
            image.publish_directory(self.id, 0);
            image.synchronize();
            (self.root, self.is_withdrawn) = (Root::NONE, true);
        }
        match Root::build_in_little(image, self.id, self.key_bits, &self.prefix_store) {
            // A larger root is tried again when there is twice as much to gain.
            Ok(root) => {
                (self.root, self.is_withdrawn, self.refused_at) = (root, false, self.prefix_store.len())
            }
            // It stays out until a change fits.
            Err(Error::Full { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Published::Whole)
    }

    /// Asks for what `changes` look at, in the shadow and in the image. In steps: what one needs of memory, the one before asked for.
    fn ahead(&self, words: &[AtomicU32], changes: &[(Prefix<A>, Option<u32>)]) {
        const STEPS: usize = 3;
        for step in 0..STEPS {
            for (prefix, _) in changes {
                self.prefix_store.ahead(prefix, step);
                self.root.ahead(words, prefix, step);
            }
        }
    }

    /// Rebuilds the table where that is due (or `is_much` is to change), else changes its words.
    ///
    /// Due: twice as many prefixes as this root is meant for, or the first deep one of a small table. In IPv6, twice as many as when its root
    /// was considered last, if they are spread otherwise. Or a palette that has had no code for some values, for as many changes as there are
    /// prefixes.
    fn rebuild_or<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &Changes<'_, A>,
        is_much: bool,
    ) -> Result<Published, Error> {
        let len = self.prefix_store.len();
        // One that did not fit is tried again when there is twice as much to gain.
        let is_due = len >= 2 * self.refused_at && self.is_outgrown(changes)
            || (self.refused_at == 0 || 2 * len <= self.refused_at)
                && self.is_too_large(changes.keys(&self.root));
        // The fallback changes before the others or after them (see `publish`). Where neither is right, all change with a new root.
        let only_whole =
            self.is_withdrawn || changes.adds && changes.removes && !changes.split().0.is_empty();
        if only_whole || is_much || is_due || self.uncoded > self.prefix_store.len() {
            self.uncoded = 0;
            let built = if self.is_withdrawn {
                Root::build_in_little(image, self.id, self.key_bits, &self.prefix_store)
            } else {
                Root::build(image, self.id, self.key_bits, &self.prefix_store, self.has_own)
            };
            match built {
                // Where a new root does not fit, this one still does.
                Err(Error::Full { .. }) if !only_whole => self.refused_at = self.prefix_store.len(),
                Err(error) => return Err(error),
                Ok(root) => {
                    (self.root, self.is_withdrawn, self.refused_at) = (root, false, 0);
                    return Ok(Published::Whole);
                }
            }
        }
        self.publish(image, changes).map(|()| Published::Words)
    }

    /// Whether the table with `changes` is worth another root. It notes what it has considered.
    fn is_outgrown(&mut self, changes: &Changes<'_, A>) -> bool {
        // With a hash table, few are left that are so long.
        let is_long = |change: &Change<A>| change.new.is_some() && change.prefix.len() > DEEP_FROM;
        let is_deep = self.root.exact.is_none() && changes.others.iter().any(is_long);
        let (len, keys) = (self.prefix_store.len(), changes.keys(&self.root));
        self.root.bits < root_bits::<A>(weight(len - keys, keys) / 2, is_deep)
            || self.is_short_of_words(keys)
            || self.root.consider_shape::<A>(len)
    }

    /// Whether a new hash table would hold half as many keys again as this one when it was built, or there is none yet. It holds `keys` now.
    fn is_short_of_words(&self, keys: usize) -> bool {
        let many = self.root.full / 2 + 2;
        (self.full >= self.root.full + many || self.full - keys >= self.root.full_below + many)
            && (self.root.exact.is_some()
                || exact::is_worth(self.key_bits, self.full, self.prefix_store.len()))
    }

    /// Whether a new root or a new hash table, which has `keys` now, would be much smaller.
    fn is_too_large(&self, keys: usize) -> bool {
        const MUCH: usize = 8;
        let weight = weight(self.prefix_store.len() - keys, keys);
        let is_exact_large = self.root.exact.as_ref().is_some_and(|exact| exact.hash.bits > 10);
        self.root.least_bits::<A>() > root_bits::<A>(MUCH * weight, true)
            || is_exact_large && MUCH * self.full < self.root.full
    }

    /// Counts prefixes of full length that come and go with `change`, or takes that back.
    fn count(&mut self, change: &Change<A>, is_done: bool) {
        if change.prefix.len() == self.key_bits {
            let (old, new) = if is_done { (change.old, change.new) } else { (change.new, change.old) };
            self.full = self.full + usize::from(new.is_some()) - usize::from(old.is_some());
        }
    }

    /// Builds what the sorted `changes`, which the shadow has already, make of the image, then publishes it word by word.
    ///
    /// Where others are added, a changed fallback comes last: their addresses must not see it. Where others are removed, it comes first: theirs
    /// must not see the one before.
    fn publish<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &Changes<'_, A>,
    ) -> Result<(), Error> {
        let keys = changes.keys(&self.root);
        let has_all = self.full == keys;
        let Self { id, prefix_store, root, published_words, key_bits, .. } = self;
        if let Some(exact) = &mut root.exact {
            exact.has_all = has_all;
        }
        let mut builder = image.builder::<A>(root.pool, root.palette.as_deref(), root.exact.as_ref());
        published_words.clear();
        let (of_fallback, others) = changes.split();
        let (mut late, mut vacated) = (Vec::new(), None);
        let mut build = || {
            if let Some(exact) = root.exact.as_ref().filter(|_| !changes.exact.is_empty()) {
                let swings = exact::change(&mut builder, exact, changes.exact)?;
                let arriving = changes.exact.iter().filter(|change| change.old.is_none());
                builder.nodes.arriving.extend(arriving.map(|change| key(change.prefix.addr(), *key_bits)));
                published_words.extend(swings.early);
                (late, vacated) = (swings.late, Some(swings.vacated));
            }
            let is_cover = |slot, len| root.is_cover(slot, len);
            builder.change_words(
                prefix_store,
                others,
                root.index(0),
                0..root.bits,
                is_cover,
                published_words,
            )?;
            published_words.append(&mut late);
            Ok(())
        };
        if let Err(error) = build() {
            return Err(builder.abandon(error));
        }
        let lost = root.lost::<A>(builder.nodes.words, published_words);
        let store_fallback = || {
            for change in of_fallback {
                let at = root.header_at(offset_of!(TableHeader, fallback));
                builder.store_fallback(*id, at, change.new.unwrap_or(0));
            }
        };
        if changes.adds {
            builder.store_all(published_words);
            store_fallback();
        } else {
            store_fallback();
            builder.store_all(published_words);
        }
        builder.retire();
        root.directs -= lost;
        if let (Some(exact), Some(vacated)) = (&mut root.exact, vacated) {
            (exact.vacated, exact.count) = (vacated, keys);
        }
        let bits = root.bits;
        others
            .iter()
            .filter(|change| change.prefix.len() < bits)
            .for_each(|change| root.note(prefix_store, change));
        if root.has_counts() {
            root.settle(image, prefix_store, others);
        }
        Ok(())
    }

    /// Counts the values that `changes` bring.
    fn acquire<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>, changes: &[Change<A>]) {
        if let Some(palette) = &mut self.root.palette {
            for value in
                changes.iter().filter(|change| change.prefix.len() > 0).filter_map(|change| change.new)
            {
                palette.acquire(image.memory.words(), &mut image.space, &mut image.grace, value);
                self.uncoded += usize::from(palette.is_full());
            }
        }
    }

    /// Brings what is counted in line with what was published, or takes `changes` back.
    fn conclude<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        changes: &Changes<'_, A>,
        published: Result<Published, Error>,
    ) -> Result<(), Error> {
        let is_done = published.is_ok();
        if !is_done {
            for change in changes.all() {
                self.prefix_store.set(change.prefix, change.old);
                self.count(change, false);
            }
            self.root.count(changes.others, false);
        }
        // A new palette has counted the present values.
        let palette = self.root.palette.as_mut().filter(|_| published != Ok(Published::Whole));
        if let Some(palette) = palette {
            let gone = |change: &Change<A>| if is_done { change.old } else { change.new };
            let others = changes.others.iter().filter(|change| change.prefix.len() > 0);
            for value in others.filter_map(gone) {
                palette.release(&mut image.space, value);
            }
        }
        if !self.is_withdrawn {
            let count = self.root.header(image.memory.words(), offset_of!(TableHeader, prefixes));
            count.store(self.prefix_store.len() as u32, Ordering::Relaxed);
        }
        published.map(|_| ())
    }
}

/// Sorted changes, which the shadow has already.
#[derive(Debug)]
struct Changes<'a, A: Address> {
    /// Of the root and what is below it.
    others: &'a [Change<A>],
    /// Of the hash table.
    exact: &'a [Change<A>],
    /// Whether all remove a prefix.
    is_removal: bool,
    /// Whether a prefix is added that is not the fallback.
    adds: bool,
    /// Whether a prefix is removed that is not the fallback.
    removes: bool,
}

impl<'a, A: Address> Changes<'a, A> {
    fn new(others: &'a [Change<A>], exact: &'a [Change<A>]) -> Self {
        let mut changes = Self { others, exact, is_removal: true, adds: false, removes: false };
        for Change { prefix, old, new, .. } in changes.all() {
            changes.is_removal &= new.is_none();
            changes.adds |= old.is_none() && prefix.len() > 0;
            changes.removes |= new.is_none() && prefix.len() > 0;
        }
        changes
    }

    fn all(&self) -> impl Iterator<Item = &'a Change<A>> + use<'a, A> {
        self.others.iter().chain(self.exact)
    }

    /// Keys that the hash table of `root` has after these changes.
    fn keys(&self, root: &Root) -> usize {
        root.exact.as_ref().map_or(0, |exact| {
            let come = self.exact.iter().filter(|change| change.old.is_none()).count();
            let go = self.exact.iter().filter(|change| change.new.is_none()).count();
            exact.count + come - go
        })
    }

    /// The change of the fallback, and those of other prefixes outside the hash table.
    fn split(&self) -> (&'a [Change<A>], &'a [Change<A>]) {
        let has_fallback = self.others.first().is_some_and(|first| first.prefix.len() == 0);
        self.others.split_at(usize::from(has_fallback))
    }
}
