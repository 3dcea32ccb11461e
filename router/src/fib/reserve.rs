//! A table that does not fit into the image beside its successor: its packets are the kernel's until the successor stands alone.
//!
//! It is never taken away while packets may ask it. A table that is not there answers as one without a route, and in a chain of rules
//! the next rule would decide. A tenant's packets would leave by the main table. So another takes its place at once, in which every
//! address has one value, and what that takes is kept at hand.

use trieline_lpm::{Address, Error, Grace, Image, Memory, Prefix, Table};

/// The value of all addresses of a table that is left to the kernel, and the room for one more such table.
#[derive(Debug)]
pub struct Reserve {
    kernel: u32,
    /// Id of the table that holds the room.
    reserve_table: u32,
    is_reserved: bool,
}

impl Reserve {
    /// `kernel` is the value that leaves a packet to the kernel; the table `reserve_table` is for this struct alone.
    pub fn new(kernel: u32, reserve_table: u32) -> Self {
        Self { kernel, reserve_table, is_reserved: false }
    }

    /// Makes sure of the room, where the image has it. O(1).
    pub fn keep<M: Memory, G: Grace>(&mut self, image: &mut Image<M, G>) {
        self.is_reserved = self.is_reserved || self.fill::<u128, _, _>(image, self.reserve_table).is_ok();
    }

    fn fill<A: Address, M: Memory, G: Grace>(&self, image: &mut Image<M, G>, id: u32) -> Result<(), Error> {
        Table::create(image, id, [(Prefix::<A>::truncated(A::ZERO, 0), self.kernel)]).map(drop)
    }

    /// Leaves the packets of table `id` to the kernel, for all addresses at once. O(1), and a grace period where the image is full.
    /// An error only where the room could never be made sure of; then the table is as it was.
    pub fn leave<A: Address, M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        id: u32,
    ) -> Result<(), Error> {
        match self.fill::<A, _, _>(image, id) {
            Err(Error::Full { .. }) if self.is_reserved => {}
            done => return done,
        }
        image.remove_table(self.reserve_table)?;
        image.synchronize();
        self.is_reserved = false;
        self.fill::<A, _, _>(image, id)
    }

    /// Makes table `id` of these prefixes where the old and the new one do not fit together. O(n), and grace periods. On an error
    /// its packets are the kernel's.
    pub fn replace<A: Address, M: Memory, G: Grace>(
        &mut self,
        image: &mut Image<M, G>,
        id: u32,
        prefixes: impl IntoIterator<Item = (Prefix<A>, u32)>,
    ) -> Result<Table<A>, Error> {
        self.leave::<A, _, _>(image, id)?;
        image.synchronize();
        self.keep(image);
        // Its packets are left to the kernel again rather than answered as if there were no route.
        Ok(Table::create(image, id, prefixes)?.refuse_when_full())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use trieline_lpm::{HeapMemory, Reader};

    const KERNEL: u32 = 1;
    const TABLE: u32 = 0;
    const RESERVE_TABLE: u32 = 1;
    const TABLES: u32 = 4096;
    const BYTES: usize = 1 << 20;

    /// Whenever the image asks for a grace period, that is whenever something was replaced: what a packet would find.
    struct Watching {
        memory: Arc<HeapMemory>,
        given: u64,
        address: u32,
        missed: Arc<std::sync::atomic::AtomicU32>,
    }

    impl Grace for Watching {
        fn begin(&mut self) -> u64 {
            let reader = Reader::new(self.memory.words()).unwrap();
            let answer = reader.lookup(TABLE, self.address);
            self.missed.fetch_add(u32::from(answer.is_none()), Ordering::Relaxed);
            self.given += 1;
            self.given
        }

        fn passed(&mut self) -> u64 {
            self.given
        }

        fn wait(&mut self, _: u64) {}
    }

    fn routes(count: u32, value: u32) -> impl Iterator<Item = (Prefix<u32>, u32)> {
        let all = std::iter::once((Prefix::truncated(0, 0), value));
        all.chain((0..count).map(move |n| (Prefix::host(0x0a00_0000 + (n << 5)), value + n % 1000)))
    }

    fn answers(image: &Image<Arc<HeapMemory>, Watching>) -> Option<u32> {
        image.reader().lookup(TABLE, 0x0a00_0000_u32)
    }

    #[test]
    fn a_table_is_never_missing() {
        let memory = Arc::new(HeapMemory::new(BYTES));
        let missed = Arc::default();
        let grace = Watching {
            memory: Arc::clone(&memory),
            given: 0,
            address: 0x0a00_0000,
            missed: Arc::clone(&missed),
        };
        let mut image = Image::create(memory, grace, TABLES).unwrap();
        let mut reserve = Reserve::new(KERNEL, RESERVE_TABLE);
        reserve.keep(&mut image);
        // As many routes as fit.
        let fits = |image: &mut _, count| Table::create(image, TABLE, routes(count, 10)).is_ok();
        let mut count = 60_000;
        while !fits(&mut image, count) {
            count -= 500;
        }
        // No block is left, not even a small one.
        let small = |image: &mut _, id| Table::create(image, id, [(Prefix::<u32>::truncated(0, 0), 9)]);
        let full = (RESERVE_TABLE + 1..TABLES).map(|id| small(&mut image, id)).find(Result::is_err);
        assert!(matches!(full, Some(Err(Error::Full { .. }))));
        missed.store(0, Ordering::Relaxed);
        // (1) a table that does not fit beside the old one
        let half = count / 2;
        assert!(matches!(Table::create(&mut image, TABLE, routes(half, 20)), Err(Error::Full { .. })));
        assert_eq!(answers(&image), Some(10));
        reserve.replace(&mut image, TABLE, routes(half, 20)).unwrap();
        assert_eq!(answers(&image), Some(20));
        // (2) one that never fits: its packets are the kernel's; and the next one
        for _ in 0..2 {
            assert!(matches!(
                reserve.replace(&mut image, TABLE, routes(4 * count, 30)),
                Err(Error::Full { .. })
            ));
            assert_eq!(answers(&image), Some(KERNEL));
            reserve.replace(&mut image, TABLE, routes(half, 40)).unwrap();
            assert_eq!(answers(&image), Some(40));
        }
        assert_eq!(missed.load(Ordering::Relaxed), 0, "times that a packet would have found no table");
    }
}
