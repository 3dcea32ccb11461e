//! Arrays of 1 to 64 elements in one vector, found again by their first index: where a Poptrie's nodes and leaves stand.

/// Longest array.
const LONGEST: usize = 64;

/// A growing vector with lists of holes by their length. (The original has a buddy allocator, which rounds lengths up to powers of
/// two; exact lengths take less memory and less time.)
#[derive(Clone, Debug)]
pub(super) struct Pool<T> {
    items: Vec<T>,
    /// Holes of `n + 1` elements.
    holes: [Vec<u32>; LONGEST],
    /// Bit n: there are holes of `n + 1` elements.
    lengths: u64,
    used: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { items: Vec::new(), holes: [const { Vec::new() }; LONGEST], lengths: 0, used: 0 }
    }
}

impl<T: Copy + Default> Pool<T> {
    /// A place for `array` (at most 64 elements), filled with it; 0 for an empty one.
    pub fn put(&mut self, array: &[T]) -> u32 {
        if array.is_empty() {
            return 0;
        }
        let at = self.find(array.len());
        self.items[at as usize..at as usize + array.len()].copy_from_slice(array);
        self.used += array.len();
        at
    }

    fn find(&mut self, len: usize) -> u32 {
        let least = len - 1;
        let fitting = self.lengths >> least << least;
        if fitting == 0 {
            let at = self.items.len() as u32;
            self.items.resize(self.items.len() + len, T::default());
            return at;
        }
        let class = fitting.trailing_zeros() as usize;
        let at = self.holes[class].pop().unwrap_or_default();
        if self.holes[class].is_empty() {
            self.lengths &= !(1 << class);
        }
        // The rest of a larger hole is a hole too.
        if class > least {
            self.add_hole(at + len as u32, class - least);
        }
        at
    }

    /// Makes `len` elements from `at` on a hole.
    pub fn free(&mut self, at: u32, len: usize) {
        if len > 0 {
            self.used -= len;
            self.add_hole(at, len);
        }
    }

    fn add_hole(&mut self, at: u32, len: usize) {
        self.holes[len - 1].push(at);
        self.lengths |= 1 << (len - 1);
    }

    /// # Safety
    ///
    /// `at` lies in an array that [`Pool::put`] returned.
    #[inline(always)]
    pub unsafe fn get(&self, at: u32) -> &T {
        debug_assert!((at as usize) < self.items.len());
        // SAFETY: the vector never becomes shorter but by `clear`, which the caller excludes.
        unsafe { self.items.get_unchecked(at as usize) }
    }

    pub fn slice(&self, at: u32, len: usize) -> &[T] {
        &self.items[at as usize..at as usize + len]
    }

    pub fn set(&mut self, at: u32, item: T) {
        self.items[at as usize] = item;
    }

    /// Forgets all arrays and returns the memory.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives back what the vector holds in reserve, after a build.
    pub fn shrink(&mut self) {
        self.items.shrink_to_fit();
    }

    /// Elements in arrays.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Bytes of arrays and holes.
    pub fn bytes(&self) -> usize {
        size_of::<T>() * self.items.len()
    }

    /// Bytes of the vector's capacity and of the lists.
    pub fn bytes_total(&self) -> usize {
        let lists: usize = self.holes.iter().map(Vec::capacity).sum();
        size_of::<T>() * self.items.capacity() + 4 * lists
    }
}
