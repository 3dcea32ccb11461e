//! Gives pages of an arena back to the kernel, a few at a time, so that no CPU is held up for long.

use std::ops::Range;

use libbpf_rs::{Object, ObjectBuilder, ProgramInput};

use crate::error::{Error, Result};
use crate::image_map::{ImageMap, ImageMapType};

/// Pages a call: 1 MiB, some tens of microseconds.
const PAGES: u64 = 256;
const PAGE: u64 = 4096;

/// The kernel takes pages back only from a BPF program: this one.
#[derive(Debug)]
pub(crate) struct Pages(Object);

/// The program, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);
static OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/pages.bpf.o")).len() }> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/pages.bpf.o")));

impl Pages {
    /// Loads it for an arena.
    pub fn load(map: &ImageMap) -> Result<Self> {
        debug_assert_eq!(map.map_type(), ImageMapType::Arena);
        let fail = |error: libbpf_rs::Error| {
            Error::kernel("cannot load the program that gives pages back", std::io::Error::other(error))
        };
        let mut object = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(fail)?;
        map.place(&mut object)?;
        Ok(Self(object.load().map_err(fail)?))
    }

    /// Gives the pages of these byte ranges back; they read as zero from then on.
    pub fn give_back(&mut self, ranges: &[Range<u64>]) -> Result<()> {
        let fail = |error| Error::kernel("cannot give pages back", std::io::Error::other(error));
        let program =
            self.0.progs_mut().next().ok_or_else(|| Error::Argument("no program for pages".into()))?;
        for range in ranges {
            let mut at = range.start;
            while at < range.end {
                let count = ((range.end - at) / PAGE).min(PAGES);
                let mut context = [(at as u32).to_ne_bytes(), (count as u32).to_ne_bytes()].concat();
                let input = ProgramInput { context_in: Some(&mut context), ..Default::default() };
                program.test_run(input).map_err(fail)?;
                at += count * PAGE;
            }
        }
        Ok(())
    }
}
