//! Where a map's values live: the image holds numbers from 1, and this what each number stands for.

use alloc::vec::Vec;

/// Values by number; numbers of removed values are used again.
#[derive(Debug, Clone)]
pub(super) struct Slab<V> {
    /// The value of number `n` at `n` - 1.
    values: Vec<Option<V>>,
    /// Numbers without a value.
    free: Vec<u32>,
}

impl<V> Slab<V> {
    pub fn with_capacity(values: usize) -> Self {
        Self { values: Vec::with_capacity(values), free: Vec::new() }
    }

    /// Stores a value; returns its number. Amortised O(1).
    pub fn add(&mut self, value: V) -> u32 {
        if let Some(number) = self.free.pop() {
            self.values[number as usize - 1] = Some(value);
            return number;
        }
        self.values.push(Some(value));
        // More than 2^32 of them do not fit into an image, which refuses the first number above 2^31 - 1.
        self.values.len() as u32
    }

    pub fn get(&self, number: u32) -> Option<&V> {
        self.values.get(number as usize - 1)?.as_ref()
    }

    pub fn get_mut(&mut self, number: u32) -> Option<&mut V> {
        self.values.get_mut(number as usize - 1)?.as_mut()
    }

    /// Removes a value; its number may be used again.
    pub fn take(&mut self, number: u32) -> Option<V> {
        let value = self.values.get_mut(number as usize - 1)?.take()?;
        self.free.push(number);
        Some(value)
    }

    /// All values in the order of their numbers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.values.iter_mut().flatten()
    }

    /// By number - 1, each value to be borrowed once.
    pub fn borrow_each(&mut self) -> Vec<Option<&mut V>> {
        self.values.iter_mut().map(Option::as_mut).collect()
    }
}
