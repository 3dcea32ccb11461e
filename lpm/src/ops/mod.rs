//! Operations on whole tables, as sorted streams of prefixes: what several tables share, where they differ, how few prefixes say
//! the same.
//!
//! Every operation takes `(prefix, value)` pairs in the order of [`Prefix`] (by address, shorter first), each prefix once: what
//! [`Table::iter`](crate::Table::iter) and a `BTreeMap` yield. Other orders give meaningless
//! results but never a panic. Unless said otherwise an operation is lazy and takes O(n + m) steps for streams of n and m prefixes. It keeps
//! nothing but a stack of at most `WIDTH` + 1 prefixes.
//!
//! Two views of a table must be kept apart. As a *set of prefixes*, 10.0.0.0/8 and its two halves have nothing in common:
//! [`union`], [`intersection`], [`difference`], [`diff`]. As *answers to addresses* they are the same: [`regions`], [`compare`],
//! [`subtract`], [`aggregate`]. [`overlaps`] stands between the two.

mod aggregate;
mod overlaps;
mod regions;

pub use aggregate::aggregate;
pub use overlaps::overlaps;
pub use regions::{Prefixes, Region, compare, regions, subtract};

use crate::{Address, Prefix};
use core::cmp::Ordering;
use core::iter::Peekable;

/// The tables, of two, that have a prefix, with its values there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Joined<V, W> {
    /// The first only.
    Left(V),
    /// The second only.
    Right(W),
    /// Both.
    Both(V, W),
}

/// Iterator of [`join`].
struct Join<I: Iterator, J: Iterator> {
    left: Peekable<I>,
    right: Peekable<J>,
}

/// Every prefix of either table, in order, with the values that it has in each. O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops::{self, Joined}};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (a, b) = ([(p("10.0.0.0/8"), 'a'), (p("10.1.0.0/16"), 'a')], [(p("10.1.0.0/16"), 'b')]);
/// let joined: Vec<_> = ops::join(a, b).collect();
/// assert_eq!(joined, [(p("10.0.0.0/8"), Joined::Left('a')), (p("10.1.0.0/16"), Joined::Both('a', 'b'))]);
/// ```
pub fn join<A: Address, V, W>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = (Prefix<A>, Joined<V, W>)> {
    Join { left: a.into_iter().peekable(), right: b.into_iter().peekable() }
}

impl<A, V, W, I, J> Iterator for Join<I, J>
where
    A: Address,
    I: Iterator<Item = (Prefix<A>, V)>,
    J: Iterator<Item = (Prefix<A>, W)>,
{
    type Item = (Prefix<A>, Joined<V, W>);

    fn next(&mut self) -> Option<Self::Item> {
        let order = match (self.left.peek(), self.right.peek()) {
            (Some((left, _)), Some((right, _))) => left.cmp(right),
            (Some(_), None) => Ordering::Less,
            (None, _) => Ordering::Greater,
        };
        match order {
            Ordering::Less => self.left.next().map(|(prefix, left)| (prefix, Joined::Left(left))),
            Ordering::Greater => self.right.next().map(|(prefix, right)| (prefix, Joined::Right(right))),
            Ordering::Equal => {
                let ((prefix, left), (_, right)) = (self.left.next()?, self.right.next()?);
                Some((prefix, Joined::Both(left, right)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let ((left, left_most), (right, right_most)) = (self.left.size_hint(), self.right.size_hint());
        (left.max(right), left_most.zip(right_most).and_then(|(left, right)| left.checked_add(right)))
    }
}

/// Every prefix of either table; where both have one, with its value in `a`. O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (ours, theirs) = ([(p("10.0.0.0/8"), 1)], [(p("10.0.0.0/8"), 2), (p("10.1.0.0/16"), 2)]);
/// assert!(ops::union(ours, theirs).eq([(p("10.0.0.0/8"), 1), (p("10.1.0.0/16"), 2)]));
/// ```
pub fn union<A: Address, V>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, V)>,
) -> impl Iterator<Item = (Prefix<A>, V)> {
    union_with(a, b, |_, left, _| left)
}

/// Every prefix of either table; where both have one, with what `both` makes of the two values. O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (monday, tuesday) = ([(p("10.0.0.0/8"), 3)], [(p("10.0.0.0/8"), 4), (p("10.1.0.0/16"), 1)]);
/// let packets = ops::union_with(monday, tuesday, |_, monday, tuesday| monday + tuesday);
/// assert!(packets.eq([(p("10.0.0.0/8"), 7), (p("10.1.0.0/16"), 1)]));
/// ```
pub fn union_with<A: Address, V>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, V)>,
    mut both: impl FnMut(&Prefix<A>, V, V) -> V,
) -> impl Iterator<Item = (Prefix<A>, V)> {
    join(a, b).map(move |(prefix, joined)| match joined {
        Joined::Left(value) | Joined::Right(value) => (prefix, value),
        Joined::Both(left, right) => {
            let value = both(&prefix, left, right);
            (prefix, value)
        }
    })
}

/// The prefixes that both tables have, with both values. O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (a, b) = ([(p("10.0.0.0/8"), 'a'), (p("10.1.0.0/16"), 'a')], [(p("10.1.0.0/16"), 'b')]);
/// assert!(ops::intersection(a, b).eq([(p("10.1.0.0/16"), ('a', 'b'))]));
/// ```
pub fn intersection<A: Address, V, W>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = (Prefix<A>, (V, W))> {
    join(a, b).filter_map(|(prefix, joined)| match joined {
        Joined::Both(left, right) => Some((prefix, (left, right))),
        Joined::Left(_) | Joined::Right(_) => None,
    })
}

/// The prefixes of `a` that `b` does not have, whatever else of `b` covers their addresses; for addresses there is [`subtract`].
/// O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let (a, b) = ([(p("10.0.0.0/8"), 1), (p("10.1.0.0/16"), 2)], [(p("10.0.0.0/8"), ())]);
/// assert!(ops::difference(a, b).eq([(p("10.1.0.0/16"), 2)]));
/// ```
pub fn difference<A: Address, V, W>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = (Prefix<A>, V)> {
    join(a, b).filter_map(|(prefix, joined)| match joined {
        Joined::Left(value) => Some((prefix, value)),
        Joined::Right(_) | Joined::Both(..) => None,
    })
}

/// The change of a prefix between an old and a new table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change<V> {
    /// It is new.
    Added(V),
    /// It is gone; its last value.
    Removed(V),
    /// Its value is another.
    Changed {
        /// The value it had.
        from: V,
        /// The value it has.
        to: V,
    },
}

impl<V> Change<V> {
    /// The value afterwards: what [`Table::apply`](crate::Table) takes to make the old table the new one.
    pub fn after(self) -> Option<V> {
        match self {
            Self::Added(value) | Self::Changed { to: value, .. } => Some(value),
            Self::Removed(_) => None,
        }
    }
}

/// The prefixes that were added, removed or got another value between table `old` and table `new`. O(n + m), no memory.
///
/// ```
/// use trieline_lpm::{Prefix, ops::{self, Change}};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let old = [(p("10.0.0.0/8"), 1), (p("10.1.0.0/16"), 1), (p("10.2.0.0/16"), 1)];
/// let new = [(p("10.0.0.0/8"), 1), (p("10.2.0.0/16"), 2), (p("10.3.0.0/16"), 2)];
/// assert!(ops::diff(old, new).eq([
///     (p("10.1.0.0/16"), Change::Removed(1)),
///     (p("10.2.0.0/16"), Change::Changed { from: 1, to: 2 }),
///     (p("10.3.0.0/16"), Change::Added(2)),
/// ]));
/// ```
pub fn diff<A: Address, V: PartialEq>(
    old: impl IntoIterator<Item = (Prefix<A>, V)>,
    new: impl IntoIterator<Item = (Prefix<A>, V)>,
) -> impl Iterator<Item = (Prefix<A>, Change<V>)> {
    join(old, new).filter_map(|(prefix, joined)| {
        let change = match joined {
            Joined::Left(value) => Change::Removed(value),
            Joined::Right(value) => Change::Added(value),
            Joined::Both(from, to) if from != to => Change::Changed { from, to },
            Joined::Both(..) => return None,
        };
        Some((prefix, change))
    })
}
