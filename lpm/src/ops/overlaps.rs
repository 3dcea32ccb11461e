//! Which prefixes of two tables cover one another: one sweep over both, with the prefixes around the current one on two stacks.

use super::{Joined, join};
use crate::{Address, Prefix};
use alloc::vec::Vec;

/// Iterator of [`overlaps`].
struct Overlaps<A, V, W, I> {
    join: I,
    /// The prefixes of each table that cover the current one, shortest first; it is the last where that table has it.
    left: Vec<(Prefix<A>, V)>,
    right: Vec<(Prefix<A>, W)>,
    /// Whether the current prefix is of that table.
    is_left: bool,
    is_right: bool,
    /// Pairs of the current prefix that have been returned.
    reported: usize,
}

/// All pairs of a prefix of `a` and one of `b` where one covers the other or both are equal. Two tables have addresses in common
/// if and only if there is such a pair: `overlaps(a, b).next().is_some()`.
///
/// The pairs come in the order of their longer prefix, those with the same one from short to long. O(n + m + pairs) steps, memory
/// for 2 · (`WIDTH` + 1) prefixes.
///
/// ```
/// use trieline_lpm::{Prefix, ops};
/// let p = |text: &str| text.parse::<Prefix<u32>>().unwrap();
/// let allow = [(p("10.0.0.0/8"), "lab"), (p("192.0.2.0/25"), "web")];
/// let deny = [(p("10.1.0.0/16"), "guests"), (p("192.0.2.0/24"), "scanner"), (p("198.51.100.0/24"), "old")];
/// let pairs: Vec<_> = ops::overlaps(allow, deny).map(|((_, allow), (_, deny))| (allow, deny)).collect();
/// assert_eq!(pairs, [("lab", "guests"), ("web", "scanner")]);
/// ```
pub fn overlaps<A: Address, V: Clone, W: Clone>(
    a: impl IntoIterator<Item = (Prefix<A>, V)>,
    b: impl IntoIterator<Item = (Prefix<A>, W)>,
) -> impl Iterator<Item = ((Prefix<A>, V), (Prefix<A>, W))> {
    Overlaps {
        join: join(a, b),
        left: Vec::new(),
        right: Vec::new(),
        is_left: false,
        is_right: false,
        reported: 0,
    }
}

/// Makes `stack` hold what covers `prefix`, and `prefix` itself where it has a value.
fn advance<A: Address, V>(stack: &mut Vec<(Prefix<A>, V)>, prefix: Prefix<A>, value: Option<V>) {
    while stack.last().is_some_and(|(outer, _)| !outer.covers(&prefix)) {
        stack.pop();
    }
    stack.extend(value.map(|value| (prefix, value)));
}

impl<A, V, W, I> Iterator for Overlaps<A, V, W, I>
where
    A: Address,
    V: Clone,
    W: Clone,
    I: Iterator<Item = (Prefix<A>, Joined<V, W>)>,
{
    type Item = ((Prefix<A>, V), (Prefix<A>, W));

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // A prefix of the left table pairs with all that cover it in the right one, and the other way round. A prefix of both
            // pairs with itself once.
            let by_left = if self.is_left { self.right.len() } else { 0 };
            let by_right = if self.is_right { self.left.len() - usize::from(self.is_left) } else { 0 };
            let at = self.reported;
            if at < by_left + by_right {
                self.reported += 1;
                let (left, right) = if at < by_left {
                    (self.left.last()?, self.right.get(at)?)
                } else {
                    (self.left.get(at - by_left)?, self.right.last()?)
                };
                return Some((left.clone(), right.clone()));
            }
            let (prefix, joined) = self.join.next()?;
            let (left, right) = match joined {
                Joined::Left(left) => (Some(left), None),
                Joined::Right(right) => (None, Some(right)),
                Joined::Both(left, right) => (Some(left), Some(right)),
            };
            (self.is_left, self.is_right, self.reported) = (left.is_some(), right.is_some(), 0);
            advance(&mut self.left, prefix, left);
            advance(&mut self.right, prefix, right);
        }
    }
}
