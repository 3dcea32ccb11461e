//! A table as its answers to addresses: maximal ranges of addresses with one answer, and back to prefixes.

use crate::{Address, Prefix};
use alloc::vec::Vec;
use core::iter::Peekable;

/// A range of addresses with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Region<A, T> {
    /// First address.
    pub first: A,
    /// Last address.
    pub last: A,
    /// The value of every address from first to last.
    pub value: T,
}

impl<A: Address, T> Region<A, T> {
    /// The fewest prefixes that cover exactly this range, in order: at most 2 · `WIDTH`, each found in O(`WIDTH` / 64).
    ///
    /// ```
    /// use trieline_lpm::ops::Region;
    /// let region = Region { first: 0x0a00_0001u32, last: 0x0a00_0004, value: () };
    /// let texts: Vec<_> = region.prefixes().map(|prefix| prefix.to_string()).collect();
    /// assert_eq!(texts, ["10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/32"]);
    /// ```
    pub fn prefixes(&self) -> Prefixes<A> {
        Prefixes { at: (self.first <= self.last).then_some(self.first), last: self.last }
    }
}

/// Iterator of [`Region::prefixes`].
#[derive(Debug, Clone)]
pub struct Prefixes<A> {
    /// First address that no prefix has covered yet.
    at: Option<A>,
    last: A,
}

impl<A: Address> Iterator for Prefixes<A> {
    type Item = Prefix<A>;

    fn next(&mut self) -> Option<Prefix<A>> {
        let at = self.at?;
        // No shorter than `at` is aligned to, and inside the range. That is either all that `at` and the last address share, or one bit
        // more, where `at` has 0 and the last address 1.
        let aligned = last_bit(at, 0).map_or(0, |bit| bit + 1);
        let shared = at.common_bits(self.last);
        let fits = if self.last.filled(shared) == self.last { shared } else { shared + 1 };
        let prefix = Prefix::truncated(at, aligned.max(fits));
        self.at = next(prefix.last()).filter(|at| *at <= self.last);
        Some(prefix)
    }
}

/// Position of the last bit of `addr` that is not 0 (`flip` 0) or not 1 (`flip` all ones).
fn last_bit<A: Address>(addr: A, flip: u64) -> Option<u16> {
    let mut end = A::WIDTH;
    while end > 0 {
        let begin = end.saturating_sub(64);
        let unused = 64 - u32::from(end - begin);
        let zeros = ((addr.word_at(begin) ^ flip) >> unused << unused).trailing_zeros();
        if zeros < 64 {
            return Some(begin + (63 - zeros) as u16);
        }
        end = begin;
    }
    None
}

/// The address after `addr`. O(`WIDTH` / 64).
fn next<A: Address>(addr: A) -> Option<A> {
    // The last 0 becomes 1, and the ones behind it 0.
    last_bit(addr, u64::MAX).map(|bit| addr.masked(bit).filled(bit).masked(bit + 1))
}

/// The address before `addr`. O(`WIDTH` / 64).
fn previous<A: Address>(addr: A) -> Option<A> {
    // The last 1 becomes 0, and the zeros behind it 1.
    last_bit(addr, 0).map(|bit| addr.masked(bit).filled(bit + 1))
}

/// Iterator of [`regions`].
struct Regions<A, V, I: Iterator> {
    rest: Peekable<I>,
    /// The prefixes around `at`, shortest first.
    open: Vec<(Prefix<A>, V)>,
    /// First address that is not in a piece yet.
    at: Option<A>,
    /// The piece so far, which may go on with the same answer.
    pending: Option<Region<A, Option<V>>>,
}

/// The whole address space as maximal ranges with one answer, in order: for every address the value of its longest prefix, or
/// `None`. Two tables forward alike if and only if their regions are equal. O(n) steps, each O(`WIDTH` / 64); at most 2n + 1 ranges.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let table = [(p("0.0.0.0/1"), 'a'), (p("0.0.0.0/2"), 'a'), (p("64.0.0.0/2"), 'b'), (p("128.0.0.0/2"), 'b')];
/// let regions: Vec<_> = ops::regions(table).map(|region| (region.first, region.last, region.value)).collect();
/// assert_eq!(regions, [
///     (0, 0x3fff_ffff, Some('a')),
///     (0x4000_0000, 0xbfff_ffff, Some('b')),
///     (0xc000_0000, 0xffff_ffff, None),
/// ]);
/// ```
pub fn regions<A: Address, V: Clone + PartialEq>(
    prefixes: impl IntoIterator<Item = (Prefix<A>, V)>,
) -> impl Iterator<Item = Region<A, Option<V>>> {
    Regions { rest: prefixes.into_iter().peekable(), open: Vec::new(), at: Some(A::ZERO), pending: None }
}

impl<A, V, I> Regions<A, V, I>
where
    A: Address,
    V: Clone,
    I: Iterator<Item = (Prefix<A>, V)>,
{
    /// The next range between two addresses at which a prefix begins or ends.
    fn piece(&mut self) -> Option<Region<A, Option<V>>> {
        while let Some(first) = self.at {
            let begins = self.rest.peek().map(|(prefix, _)| prefix.addr());
            let ends = self.open.last().map(|(prefix, _)| prefix.last());
            if let Some(last) = ends.filter(|end| begins.is_none_or(|begin| *end < begin)) {
                let value = self.open.pop().map(|(_, value)| value);
                // Unless the prefixes inside cover all of it.
                if first <= last {
                    self.at = next(last);
                    return Some(Region { first, last, value });
                }
            } else if let Some(begin) = begins {
                let value = self.open.last().map(|(_, value)| value.clone());
                self.open.extend(self.rest.next());
                if first < begin {
                    self.at = Some(begin);
                    return Some(Region { first, last: previous(begin)?, value });
                }
            } else {
                self.at = None;
                return Some(Region { first, last: A::ZERO.filled(0), value: None });
            }
        }
        None
    }
}

impl<A, V, I> Iterator for Regions<A, V, I>
where
    A: Address,
    V: Clone + PartialEq,
    I: Iterator<Item = (Prefix<A>, V)>,
{
    type Item = Region<A, Option<V>>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(piece) = self.piece() {
            match self.pending.take() {
                Some(so_far) if so_far.value == piece.value => {
                    self.pending = Some(Region { last: piece.last, ..so_far });
                }
                done => {
                    self.pending = Some(piece);
                    if done.is_some() {
                        return done;
                    }
                }
            }
        }
        self.pending.take()
    }
}

/// The whole address space as maximal ranges in which neither table's answer changes, with the answers of both. O(n + m) steps.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (old, new) = ([(p("10.0.0.0/8"), 1)], [(p("10.0.0.0/8"), 1), (p("10.1.0.0/16"), 2)]);
/// // Addresses that are forwarded otherwise:
/// let mut changed = ops::compare(old, new).filter(|region| region.value.0 != region.value.1);
/// assert_eq!(changed.next(), Some(ops::Region { first: 0x0a01_0000, last: 0x0a01_ffff, value: (Some(1), Some(2)) }));
/// assert_eq!(changed.next(), None);
/// ```
pub fn compare<A: Address, V: Clone + PartialEq, W: Clone + PartialEq>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = Region<A, (Option<V>, Option<W>)>> {
    let (mut lefts, mut rights) = (regions(a).peekable(), regions(b).peekable());
    core::iter::from_fn(move || {
        // Both tell the whole space, so that they end together.
        let (left, right) = (lefts.peek()?, rights.peek()?);
        let (first, last) = (left.first.max(right.first), left.last.min(right.last));
        let region = Region { first, last, value: (left.value.clone(), right.value.clone()) };
        let (left_ends, right_ends) = (left.last == last, right.last == last);
        if left_ends {
            lefts.next();
        }
        if right_ends {
            rights.next();
        }
        Some(region)
    })
}

/// The addresses that a prefix of `a` covers and none of `b` does, as the fewest prefixes, in order; values do not matter.
/// O(n + m + result) steps; up to `WIDTH` prefixes result for each one of `b`.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (ours, leased) = ([(p("10.0.0.0/8"), ())], [(p("10.64.0.0/10"), ()), (p("10.65.0.0/16"), ())]);
/// assert!(ops::subtract(ours, leased).eq([p("10.0.0.0/10"), p("10.128.0.0/9")]));
/// ```
pub fn subtract<A: Address, V, W>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = Prefix<A>> {
    let a = a.into_iter().map(|(prefix, _)| (prefix, ()));
    let b = b.into_iter().map(|(prefix, _)| (prefix, ()));
    compare(a, b).filter(|region| region.value == (Some(()), None)).flat_map(|region| region.prefixes())
}
