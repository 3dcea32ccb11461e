//! Shared by the targets: bytes read as keys and prefixes, a table beside its exact answers, a file to import from.
#![allow(dead_code, reason = "each target uses its part")]

#[path = "../../../tests/common/sample.rs"]
pub mod sample;

use sample::{Exact, Sample};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::OnceLock;
use trieline_lpm::image::verify::verify;
use trieline_lpm::{HeapMemory, Image, Memory, NoReaders, Prefix, Table};

pub const ID: u32 = 1;

/// The fuzzer's bytes, taken one after the other; none left ends a run.
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub fn short(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes([self.byte()?, self.byte()?]))
    }

    /// A key that begins as one of `known` and goes on with sixteen bits of the input.
    pub fn key<A: Sample>(&mut self, known: &[A]) -> Option<A> {
        let base = known.get(usize::from(self.byte()?) % (known.len() + 1)).copied().unwrap_or(A::ZERO);
        let keep = self.short()? % (A::WIDTH + 1);
        let bits = self.short()?;
        let mut key = base.masked(keep);
        for at in keep..A::WIDTH.min(keep + 16) {
            if bits << (at - keep) & 0x8000 != 0 {
                key = key.filled(at).masked(at + 1);
            }
        }
        Some(key)
    }

    /// A prefix of such a key, which is remembered.
    pub fn prefix<A: Sample>(&mut self, known: &mut Vec<A>) -> Option<Prefix<A>> {
        let key = self.key(known)?;
        if known.len() < 250 {
            known.push(key);
        }
        Some(Prefix::truncated(key, A::WIDTH - self.short()? % (A::WIDTH + 1)))
    }

    /// One of few values or of many.
    pub fn value(&mut self) -> Option<u32> {
        let byte = self.byte()?;
        let value =
            if byte < 128 { u32::from(byte) } else { u32::from(self.short()?) << 15 | u32::from(byte) };
        Some(value.max(1))
    }
}

/// A table in an image, and what it should hold.
pub struct Twin<A: Sample> {
    pub image: Image<HeapMemory, NoReaders>,
    pub table: Table<A>,
    pub model: BTreeMap<Prefix<A>, u32>,
}

impl<A: Sample> Twin<A> {
    /// `None`: the image is too small for the table, which is an error and no harm.
    pub fn new(chunks: usize, model: BTreeMap<Prefix<A>, u32>) -> Option<Self> {
        let mut image = Image::create(HeapMemory::new(chunks << 16), NoReaders::default(), 2).ok()?;
        let table = Table::create(&mut image, ID, model.clone()).ok()?;
        Some(Self { image, table, model })
    }

    /// The image is sound and every reader gives the right answers: around `near`, and around some others.
    pub fn check(&self, near: &[A]) {
        let report = verify(self.image.memory().words()).expect("a writer leaves a sound image");
        assert_eq!(report.tables[0].prefixes as usize, self.model.len());
        assert_eq!(self.table.len(), self.model.len());
        let exact = Exact::new(self.model.iter().map(|(prefix, value)| (*prefix, *value)).collect());
        let step = self.model.len() / 64 + 1;
        let mut addrs = vec![A::ZERO, A::ZERO.filled(0)];
        for addr in self
            .model
            .keys()
            .step_by(step)
            .flat_map(|prefix| [prefix.addr(), prefix.last()])
            .chain(near.iter().copied())
        {
            addrs.push(addr);
            // Just outside: the last bit turned, by way of the two halves it tells apart.
            let half = addr.masked(A::WIDTH - 1);
            addrs.push(if half == addr { addr.filled(A::WIDTH - 1) } else { half });
        }
        let (mut batch, mut portable) = (vec![0; addrs.len()], vec![0; addrs.len()]);
        let reader = self.image.reader();
        reader.lookup_batch(ID, &addrs, &mut batch);
        reader.lookup_batch_portable(ID, &addrs, &mut portable);
        for (at, addr) in addrs.iter().enumerate() {
            let single = reader.lookup(ID, *addr).unwrap_or(0);
            let table = self.table.lookup(*addr).map_or(0, |(_, value)| value);
            assert_eq!([single, batch[at], portable[at], table], [exact.lookup(*addr); 4], "{addr:?}");
        }
    }
}

/// A file with `content`, always the same one; in memory where the system has a place for that.
pub fn file(content: &[u8]) -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let memory = PathBuf::from("/dev/shm");
        let directory = if memory.is_dir() { memory } else { std::env::temp_dir() };
        directory.join(format!("trieline-fuzz-{}", std::process::id()))
    });
    std::fs::write(path, content).expect("a temporary file can be written");
    path.clone()
}
