//! Where the boxes of a tree stand: children in order on one level, parents over the middle of theirs, no two boxes on each other.
//!
//! A subtree is known by its outlines, the leftmost and the rightmost place of each of its levels. Siblings are pushed together until their
//! outlines touch, once from the left and once from the right, and stand in the middle of both. So a small tree between two large ones is
//! not crowded to one side, and a mirrored tree is drawn as the mirror image. Both ends keep all boxes apart, so what is between them does.
//!
//! O(n): of a node's children, outlines are read no deeper than the second deepest goes, and handed upwards by the deepest.
//! Source: E. Reingold, J. Tilford, "Tidier Drawings of Trees", IEEE TSE 1981; C. Buchheim, M. Jünger, S. Leipert, "Improving Walker's
//! Algorithm to Run in Linear Time", GD 2002.

/// Between boxes of one level, pixels.
pub const GAP: f64 = 12.0;
/// Least and most between levels, pixels: more where children stand far apart, so that edges are not flat.
const BANDS: (f64, f64) = (24.0, 90.0);

/// A box with all that belongs to it, pixels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Size {
    /// Across.
    pub width: f64,
    /// Down.
    pub height: f64,
}

/// Where a box stands, pixels.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// Its middle.
    pub x: f64,
    /// Its top.
    pub y: f64,
    /// Where the tallest box of its level ends: below, only edges run until the next level.
    pub level_end: f64,
}

/// Outlines of a subtree, the deepest level first, so that a level is added at the end.
#[derive(Debug, Default)]
struct Outline {
    left: Vec<f64>,
    right: Vec<f64>,
    /// Added to both, it makes them relative to the subtree's root.
    shift: f64,
}

/// The upper levels of an outline, the root's first, relative to the root.
#[derive(Debug)]
struct Top {
    left: Vec<f64>,
    right: Vec<f64>,
}

impl Outline {
    fn depth(&self) -> usize {
        self.left.len()
    }

    fn top(&self, levels: usize) -> Top {
        let upper = |side: &[f64]| side.iter().rev().take(levels).map(|x| x + self.shift).collect();
        Top { left: upper(&self.left), right: upper(&self.right) }
    }

    /// The outline of a subtree of these children, relative to its root; `at` is where each child stands.
    fn joined(mut children: Vec<Outline>, tops: &[Top], at: &[f64]) -> Outline {
        let deepest = (0..children.len()).max_by_key(|child| children[*child].depth()).unwrap_or(0);
        let mut joined = children.swap_remove(deepest);
        joined.shift += at[deepest];
        let (depth, shift) = (joined.depth(), joined.shift);
        for (top, x) in tops.iter().zip(at).rev() {
            top.left
                .iter()
                .enumerate()
                .for_each(|(level, left)| joined.left[depth - 1 - level] = left + x - shift);
        }
        for (top, x) in tops.iter().zip(at) {
            top.right
                .iter()
                .enumerate()
                .for_each(|(level, right)| joined.right[depth - 1 - level] = right + x - shift);
        }
        joined
    }
}

/// Where siblings stand, the first at 0.
fn spread(tops: &[Top]) -> Vec<f64> {
    // From the left, as near to the first as they can be.
    let mut left = vec![0.0; tops.len()];
    let mut front: Vec<f64> = Vec::new();
    for (top, x) in tops.iter().zip(&mut left) {
        *x = front.iter().zip(&top.left).map(|(front, left)| front + GAP - left).fold(*x, f64::max);
        let right: Vec<f64> = top.right.iter().map(|right| *x + right).collect();
        replace(&mut front, &right);
    }
    // From the right, as near to the last.
    let mut right = left.clone();
    let last = left.last().copied().unwrap_or(0.0);
    front.clear();
    for (top, x) in tops.iter().zip(&mut right).rev() {
        *x = front.iter().zip(&top.right).map(|(front, right)| front - GAP - right).fold(last, f64::min);
        let left: Vec<f64> = top.left.iter().map(|left| *x + left).collect();
        replace(&mut front, &left);
    }
    left.iter().zip(right).map(|(left, right)| (left + right) / 2.0).collect()
}

/// Puts `new` in place of the first elements of `front`.
fn replace(front: &mut Vec<f64>, new: &[f64]) {
    let common = front.len().min(new.len());
    front[..common].copy_from_slice(&new[..common]);
    front.extend_from_slice(&new[common..]);
}

/// Places each box, `children` naming those below each; the first box is the root and each stands behind its parent in the list. The
/// picture begins at (0, 0). O(n).
pub fn arrange(children: &[Vec<usize>], sizes: &[Size]) -> Vec<Place> {
    let mut outlines: Vec<Outline> = children.iter().map(|_| Outline::default()).collect();
    // Relative to the parent, for now.
    let mut places = vec![Place::default(); children.len()];
    for (index, below) in children.iter().enumerate().rev() {
        let half = sizes[index].width / 2.0;
        let below_outlines: Vec<Outline> =
            below.iter().map(|child| std::mem::take(&mut outlines[*child])).collect();
        let mut depths: Vec<usize> = below_outlines.iter().map(Outline::depth).collect();
        depths.sort_unstable();
        let second = depths.iter().rev().nth(1).copied().unwrap_or(0);
        let tops: Vec<Top> = below_outlines.iter().map(|outline| outline.top(second)).collect();
        let mut at = spread(&tops);
        let middle = at.last().map_or(0.0, |last| last / 2.0);
        at.iter_mut().for_each(|x| *x -= middle);
        below.iter().zip(&at).for_each(|(child, x)| places[*child].x = *x);
        let mut outline =
            if below.is_empty() { Outline::default() } else { Outline::joined(below_outlines, &tops, &at) };
        outline.left.push(-half - outline.shift);
        outline.right.push(half - outline.shift);
        outlines[index] = outline;
    }
    let Some(root) = outlines.first() else { return places };
    places[0].x = -root.left.iter().copied().fold(f64::INFINITY, f64::min) - root.shift;
    descend(children, sizes, &mut places);
    places
}

/// From places relative to the parents to the picture's, level by level.
fn descend(children: &[Vec<usize>], sizes: &[Size], places: &mut [Place]) {
    let (mut level, mut y) = (vec![0], 0.0);
    while !level.is_empty() {
        let height = level.iter().map(|index| sizes[*index].height).fold(0.0, f64::max);
        let mut widest = 0.0_f64;
        let mut next = Vec::new();
        for index in level {
            let x = places[index].x;
            places[index] = Place { x, y, level_end: y + height };
            for child in &children[index] {
                widest = widest.max(places[*child].x.abs());
                places[*child].x += x;
                next.push(*child);
            }
        }
        y += height + (widest / 6.0).clamp(BANDS.0, BANDS.1);
        level = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieline_testbed::random::Random;

    /// A tree of up to `count` boxes, wide and narrow, deep and shallow.
    fn random(rng: &mut Random, count: usize, most: usize) -> (Vec<Vec<usize>>, Vec<Size>) {
        let mut children: Vec<Vec<usize>> = vec![Vec::new()];
        let mut at = 0;
        while at < children.len() && children.len() < count {
            let below = if at + 1 == children.len() { 1 + rng.below(most) } else { rng.below(most + 1) };
            for _ in 0..below {
                let new = children.len();
                children[at].push(new);
                children.push(Vec::new());
            }
            at += 1;
        }
        let mut side = |least, most| (least + rng.below(most)) as f64;
        let sizes = children.iter().map(|_| Size { width: side(4, 150), height: side(4, 60) }).collect();
        (children, sizes)
    }

    #[test]
    fn boxes_stand_apart_and_parents_over_the_middle() {
        let mut rng = Random::new(7);
        for round in 0..300 {
            let (children, sizes) = random(&mut rng, 1 + round, 2 + round % 7);
            let places = arrange(&children, &sizes);
            let mut levels: Vec<(f64, f64, f64)> = Vec::new();
            for (place, size) in places.iter().zip(&sizes) {
                assert!(place.x - size.width / 2.0 > -1e-6 && place.level_end >= place.y + size.height);
                levels.push((place.y, place.x - size.width / 2.0, place.x + size.width / 2.0));
            }
            levels.sort_by(|one, other| one.partial_cmp(other).unwrap());
            for pair in levels.windows(2) {
                assert!(pair[0].0 < pair[1].0 || pair[0].2 + GAP <= pair[1].1 + 1e-6, "{pair:?}");
            }
            for (index, below) in children.iter().enumerate() {
                for pair in below.windows(2) {
                    assert!(places[pair[0]].x < places[pair[1]].x);
                }
                if let (Some(first), Some(last)) = (below.first(), below.last()) {
                    let middle = (places[*first].x + places[*last].x) / 2.0;
                    assert!((places[index].x - middle).abs() < 1e-6);
                    assert!(below.iter().all(|child| places[*child].y >= places[index].level_end + BANDS.0));
                }
            }
        }
    }

    #[test]
    fn a_mirrored_tree_is_drawn_as_the_mirror_image() {
        let mut rng = Random::new(99);
        for _ in 0..100 {
            let (children, sizes) = random(&mut rng, 60, 5);
            let mirrored: Vec<Vec<usize>> =
                children.iter().map(|below| below.iter().rev().copied().collect()).collect();
            let (one, other) = (arrange(&children, &sizes), arrange(&mirrored, &sizes));
            let sum = one[0].x + other[0].x;
            for (one, other) in one.iter().zip(other) {
                assert!((one.x + other.x - sum).abs() < 1e-6 && one.y == other.y);
            }
        }
    }

    #[test]
    fn chains_and_single_boxes() {
        assert!(arrange(&[], &[]).is_empty());
        let size = Size { width: 10.0, height: 5.0 };
        let chain: Vec<Vec<usize>> =
            (1..=2000).map(|next| if next < 2000 { vec![next] } else { vec![] }).collect();
        let places = arrange(&chain, &vec![size; 2000]);
        assert!(places.iter().all(|place| place.x == 5.0));
        assert_eq!(places[1999].y, 1999.0 * (5.0 + BANDS.0));
    }

    /// A small tree between two wide ones stands in their middle.
    #[test]
    fn small_ones_stand_evenly() {
        let size = |width| Size { width, height: 5.0 };
        let children = vec![vec![1, 2, 3], vec![4, 5], vec![], vec![6, 7], vec![], vec![], vec![], vec![]];
        let mut sizes = vec![size(10.0); 4];
        sizes.extend([size(200.0); 4]);
        let places = arrange(&children, &sizes);
        assert!((places[2].x - places[0].x).abs() < 1e-6);
    }
}
