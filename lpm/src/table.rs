//! One table: its prefixes in order (the shadow), and the root in the image with the same answers for readers.

mod change;
mod exact;
mod root;

use crate::image::layout::VALUE_MAX;
use crate::image::runs::PublishedWord;
use crate::image::{Error, Stamp};
use crate::prefix_store::PrefixStore;
use crate::{Address, Grace, Image, Memory, Prefix};
use alloc::vec::Vec;
use root::Root;

/// A prefix table of an [`Image`], changed prefix by prefix or as a whole.
///
/// The image holds what a lookup needs; the prefixes themselves are here, in the writer's memory. Pass the image that the
/// table was created in to every change. Any other refuses it ([`Error::Stale`]), and so does this one after the table was removed or
/// another was created with its id.
///
/// **When the memory is used up.** A change that needs more than there is is refused ([`Error::Full`]) and has changed nothing. Changes
/// that only remove prefixes are never refused, so that a route that is gone does not stay. A sixteenth of the image (at most 1 MiB) is
/// kept for them. If even that is used up, the table is *withdrawn*. Lookups find nothing in it until the old one's memory has
/// been reused for the new one, a grace period later at least. If that does not fit either, it stays [withdrawn](Table::is_withdrawn)
/// until a later change does. Where no answer is worse than an old one (a list of addresses to block), let such a
/// removal be refused instead: [`Table::refuse_when_full`].
#[derive(Debug)]
pub struct Table<A: Address> {
    id: u32,
    /// Width of its keys for readers: that of `A`, or less.
    key_bits: u16,
    prefix_store: PrefixStore<A>,
    root: Root,
    /// Prefixes of full length.
    full: usize,
    /// Changes since the palette ran out of codes.
    uncoded: usize,
    /// Prefixes there were when a new root did not fit; 0: it did.
    refused_at: usize,
    /// The image's stamp of the table's owner: the image has the same. None: not made yet.
    stamp: Option<Stamp>,
    /// Whether the image has no table of this id, as the memory does not hold this one.
    is_withdrawn: bool,
    /// Whether it may come to that.
    may_withdraw: bool,
    /// It was damaged once: it keeps a pool of its own, which is freed without its nodes.
    has_own: bool,
    /// A buffer for words to publish.
    published_words: Vec<PublishedWord>,
}

impl<A: Address> Table<A> {
    /// Makes table `id` of `image` from `prefixes` (any order; of equal prefixes the last counts). It replaces the table there,
    /// also one of an earlier writer, for all addresses at once. O(n log n), O(n) if sorted.
    pub fn create<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        id: u32,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        Self::create_narrow(image, id, A::WIDTH, prefixes)
    }

    /// As [`Table::create`], a table of keys of `key_bits` bits, which stand in the first bits of [`Key`](crate::Key)s of the wider
    /// type `A`. So few types do for any width ([`with_key!`](crate::with_key) chooses one). No prefix may be longer. To readers it is
    /// a table of keys of `key_bits` bits, the same bytes as one of a type of just that width. Programs ask it with that width, and
    /// [`Reader::table_narrow`](crate::Reader::table_narrow) in Rust.
    ///
    /// ```
    /// use trieline_lpm::{HeapMemory, Image, Key, NoReaders, Prefix, Table};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut image = Image::create(HeapMemory::new(1 << 20), NoReaders::default(), 1)?;
    /// let web = Key::<64, 8>::new([192, 0, 2, 1, 0, 80, 0, 0]); // IPv4 address and port: 48 bits
    /// let mut endpoints = Table::create_narrow(&mut image, 0, 48, [(Prefix::truncated(web, 24), 7)])?;
    /// endpoints.insert(&mut image, Prefix::truncated(web, 48), 8)?;
    /// assert!(endpoints.insert(&mut image, Prefix::truncated(web, 49), 9).is_err());
    /// assert_eq!(image.reader().lookup(0, Key::<48, 6>::new([192, 0, 2, 1, 0, 80])), Some(8));
    /// assert_eq!(image.reader().lookup_narrow(0, 48, web), Some(8));
    /// # Ok(()) }
    /// ```
    pub fn create_narrow<M: Memory, G: Grace>(
        image: &mut Image<M, G>,
        id: u32,
        key_bits: u16,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Self, Error> {
        let is_narrow = A::FAMILY == 0 && (1..A::WIDTH).contains(&key_bits);
        if key_bits != A::WIDTH && !is_narrow {
            return Err(Error::KeyBits { bits: key_bits, most: A::WIDTH });
        }
        let (prefix_store, root) = (PrefixStore::default(), Root::NONE);
        let mut table = Self {
            id,
            key_bits,
            prefix_store,
            root,
            full: 0,
            uncoded: 0,
            refused_at: 0,
            stamp: None,
            is_withdrawn: false,
            may_withdraw: true,
            has_own: false,
            published_words: Vec::new(),
        };
        table.fill(image, prefixes)?;
        table.stamp = Some(image.own(id));
        Ok(table)
    }

    /// Replaces the whole table for all addresses at once. O(n log n), O(n) if sorted. The memory must hold both for a moment.
    pub fn replace<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        image.check_owner(self.id, self.stamp)?;
        self.fill(image, prefixes)
    }

    /// As [`Table::replace`], without trust in what the image has under this id: for a table whose words were damaged. The old table's nodes
    /// are not walked, also not when something else replaces it after an error. So at the first time, the memory of one that had at most
    /// 4096 prefixes when it was built stays unused until the next [`Image::open`]. From then on the table has chunks of its own, and no
    /// further rebuild loses any.
    pub fn rebuild<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        image.check_owner(self.id, self.stamp)?;
        if !self.is_withdrawn {
            image.abandon(self.id, self.root.at | u32::from(self.root.bits), self.root.pool);
        }
        self.has_own = true;
        self.fill(image, prefixes)
    }

    fn fill<M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<(), Error> {
        image.check_table(self.id)?;
        let check = |item: (Prefix<A>, u32)| {
            check_value(item.1)?;
            self.check_length(&item.0)?;
            Ok(item)
        };
        let prefix_store: PrefixStore<A> = prefixes.into_iter().map(check).collect::<Result<_, _>>()?;
        self.root = Root::build(image, self.id, self.key_bits, &prefix_store, self.has_own)?;
        (self.prefix_store, self.refused_at, self.is_withdrawn) = (prefix_store, 0, false);
        self.full = self.root.full;
        Ok(())
    }

    /// The value of exactly this prefix. O(log n).
    pub fn get(&self, prefix: &Prefix<A>) -> Option<u32> {
        self.prefix_store.get(prefix)
    }

    /// The longest prefix that contains `addr`, and its value; from the shadow, not the image. O(k log n), k being the number of
    /// prefix lengths tried.
    pub fn lookup(&self, addr: A) -> Option<(Prefix<A>, u32)> {
        self.prefix_store.longest(addr, A::WIDTH)
    }

    /// All prefixes in order: by address, shorter first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.iter()
    }

    /// All prefixes from `from` on, in order.
    pub fn iter_from(&self, from: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.from(from)
    }

    /// All prefixes up to and with `until`, in order; `.rev()` walks down from it. O(log n) to start.
    pub fn iter_until(&self, until: Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.until(until)
    }

    /// All prefixes that contain `addr`, shortest first: the last is the answer of [`Table::lookup`].
    pub fn matches(&self, addr: A) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.matches(addr, A::WIDTH)
    }

    /// The prefixes that cover `prefix`, itself included, shortest first.
    pub fn covering(&self, prefix: &Prefix<A>) -> impl Iterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.matches(prefix.addr(), prefix.len())
    }

    /// The prefixes that `prefix` covers, itself included, in order. O(log n) to start.
    pub fn covered(&self, prefix: &Prefix<A>) -> impl DoubleEndedIterator<Item = (Prefix<A>, u32)> + '_ {
        self.prefix_store.within(*prefix)
    }

    /// Number of prefixes.
    pub fn len(&self) -> usize {
        self.prefix_store.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.prefix_store.len() == 0
    }

    /// Its id in the image's directory.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Width of its keys.
    pub fn key_bits(&self) -> u16 {
        self.key_bits
    }

    /// Address bits that index its root.
    pub fn root_bits(&self) -> u16 {
        self.root.bits
    }

    /// Lets a removal that the memory does not hold be refused with [`Error::Full`], instead of withdrawing the table for a while. The
    /// table then stays as it is.
    #[must_use]
    pub fn refuse_when_full(mut self) -> Self {
        self.may_withdraw = false;
        self
    }

    /// Whether lookups find nothing in the table, as the memory does not hold it. The next change that fits publishes it again, as
    /// does [`Table::replace`].
    pub fn is_withdrawn(&self) -> bool {
        self.is_withdrawn
    }

    fn check_length(&self, prefix: &Prefix<A>) -> Result<(), Error> {
        let (len, key_bits) = (prefix.len(), self.key_bits);
        if len <= key_bits { Ok(()) } else { Err(Error::TooLong { len, key_bits }) }
    }
}

fn check_value(value: u32) -> Result<(), Error> {
    if (1..=VALUE_MAX).contains(&value) { Ok(()) } else { Err(Error::Value { value }) }
}
