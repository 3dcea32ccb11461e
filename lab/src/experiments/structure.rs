//! A table inside the kernel, filled and looked up by BPF programs: LPM_TRIE, or a trieline image in either map type.

use std::{fs, os::fd::AsRawFd, time::Instant};

use libbpf_rs::{Map, MapCore, MapFlags, Object, ProgramInput};
use serde::{Deserialize, Serialize};
use trieline_bpf::{ImageMap, ImageMapType};
use trieline_lpm::{Address, HeapMemory, Image, NoReaders, Prefix, Table};

use crate::{
    error::{During, Error, Result},
    generator::ADDRESSES,
    measure::{Span, monotonic_ns},
    object::{self, Compiled, compiled, get, types},
    tables::kinds::{Drawn, Endpoint4, Entry},
};

/// Programs look up as whole packets or in a loop of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A whole XDP program for each packet.
    Packet,
    /// The same, the value being an index into the program's own array of structs (16 bytes), whose element is read too.
    Struct,
    /// Independent lookups in a loop inside one program.
    Loop,
    /// So many at once in such a loop, each batch dependent on the one before; one of them: each lookup on the one before.
    Batch1,
    /// Two at once.
    Batch2,
    /// Four.
    Batch4,
    /// Eight.
    Batch8,
}

impl Mode {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Packet => "packet",
            Mode::Struct => "struct",
            Mode::Loop => "loop",
            Mode::Batch1 => "batch1",
            Mode::Batch2 => "batch2",
            Mode::Batch4 => "batch4",
            Mode::Batch8 => "batch8",
        }
    }
}

/// Which structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// BPF_MAP_TYPE_LPM_TRIE.
    LpmTrie,
    /// A trieline image.
    Trieline(ImageMapType),
}

impl Which {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Which::LpmTrie => "lpm_trie",
            Which::Trieline(_) => "trieline",
        }
    }

    /// Where it lives, in results.
    pub fn map_type(self) -> &'static str {
        match self {
            Which::LpmTrie => "map",
            Which::Trieline(ImageMapType::Arena) => "arena",
            Which::Trieline(ImageMapType::Array) => "array",
        }
    }

    fn compiled(self) -> Compiled {
        match self {
            Which::LpmTrie => compiled!("tables_rival"),
            Which::Trieline(ImageMapType::Arena) => compiled!("tables_arena"),
            Which::Trieline(ImageMapType::Array) => compiled!("tables_array"),
        }
    }
}

/// A key that the programs of tables.bpf.c know.
pub trait Looked: Drawn {
    /// How their names end.
    const PROGRAMS: &'static str;
    /// Bytes of one in their list of addresses.
    const SLOT: usize;
}

impl Looked for u32 {
    const PROGRAMS: &'static str = "4";
    const SLOT: usize = 4;
}

impl Looked for u128 {
    const PROGRAMS: &'static str = "6";
    const SLOT: usize = 16;
}

impl Looked for Endpoint4 {
    const PROGRAMS: &'static str = "48";
    const SLOT: usize = 8;
}

/// The first sixteen bytes of a key in network order, then zeros.
fn network_order<A: Address>(key: A) -> [u8; 16] {
    (u128::from(key.word_at(0)) << 64 | u128::from(key.word_at(64))).to_be_bytes()
}

/// A key as LPM_TRIE has it: the prefix length in host order, then the bytes.
pub fn trie_key<A: Looked>(prefix: &Prefix<A>) -> impl Iterator<Item = u8> + use<A> {
    let bytes = network_order(prefix.addr()).into_iter().take(usize::from(A::WIDTH / 8));
    u32::from(prefix.len()).to_ne_bytes().into_iter().chain(bytes)
}

/// A filled structure with its programs.
pub struct Structure {
    /// Which.
    pub which: Which,
    /// Memory of the table: an image's blocks, or what the kernel charges for the map.
    pub bytes: u64,
    /// How long filling took, in milliseconds.
    pub fill_ms: f64,
    /// How the names of the programs in use end.
    programs: &'static str,
    object: Object,
    /// The image that [`Structure::trieline`] made; it must outlive the programs' use of it.
    _image: Option<ImageMap>,
}

impl Structure {
    /// An LPM_TRIE with `entries`, whose programs look `addresses` up.
    pub fn lpm_trie<A: Looked>(entries: &[Entry<A>], addresses: &[A]) -> Result<Structure> {
        let which = Which::LpmTrie;
        let compiled = which.compiled();
        let mut open = compiled.open()?;
        for mut map in open.maps_mut() {
            if map.name() == trie_name::<A>().as_str() {
                map.set_max_entries(entries.len().max(1) as u32)
                    .during(|| "cannot size the LPM_TRIE".into())?;
            }
        }
        let object = compiled.load(open)?;
        let mut structure =
            Structure { which, bytes: 0, fill_ms: 0.0, programs: A::PROGRAMS, object, _image: None };
        let began = Instant::now();
        let map = structure.trie()?;
        fill_trie(&map, entries)?;
        let (bytes, fill_ms) = (charged(&map), began.elapsed().as_secs_f64() * 1e3);
        (structure.bytes, structure.fill_ms) = (bytes, fill_ms);
        structure.look_up(addresses)?;
        Ok(structure)
    }

    /// A trieline image in `map_type`, of `size` bytes, with `entries` as its first table.
    pub fn trieline<A: Looked>(
        map_type: ImageMapType,
        size: u64,
        entries: &[Entry<A>],
        addresses: &[A],
    ) -> Result<Structure> {
        let map = ImageMap::create(map_type, size).map_err(failed)?;
        // No program runs yet, so the image has no readers.
        let mut image = Image::create(map.memory(), NoReaders::default(), 1).map_err(failed)?;
        let began = Instant::now();
        Table::create(&mut image, 0, entries.iter().copied()).map_err(failed)?;
        let fill_ms = began.elapsed().as_secs_f64() * 1e3;
        let mut structure = Structure::over(&map, addresses)?;
        structure.bytes = image.stats().used;
        structure.fill_ms = fill_ms;
        structure._image = Some(map);
        Ok(structure)
    }

    /// The programs over an image that the caller fills and changes.
    pub fn over<A: Looked>(map: &ImageMap, addresses: &[A]) -> Result<Structure> {
        let which = Which::Trieline(map.map_type());
        let compiled = which.compiled();
        let mut open = compiled.open()?;
        map.place(&mut open).map_err(failed)?;
        let object = compiled.load(open)?;
        let structure =
            Structure { which, bytes: 0, fill_ms: 0.0, programs: A::PROGRAMS, object, _image: None };
        structure.look_up(addresses)?;
        Ok(structure)
    }

    /// The LPM_TRIE in use; an error where there is none.
    pub fn trie(&self) -> Result<Map<'_>> {
        self.which.compiled().map(&self.object, &format!("trie{}", self.programs))
    }

    /// Gives the programs the addresses that they look up, over and over when they are fewer than [`ADDRESSES`].
    pub fn look_up<A: Looked>(&self, addresses: &[A]) -> Result<()> {
        let all = addresses.iter().cycle().take(if addresses.is_empty() { 0 } else { ADDRESSES });
        let bytes: Vec<u8> = all.flat_map(|key| network_order(*key).into_iter().take(A::SLOT)).collect();
        object::write(&self.which.compiled().map(&self.object, ".bss.addresses")?, &bytes)
    }

    /// Fills the array that [`Mode::Struct`] reads: each element holds its own number. An LPM_TRIE has no need of one.
    pub fn fill_structs(&self) -> Result<()> {
        if self.which == Which::LpmTrie {
            return Ok(());
        }
        let count = ADDRESSES as u32;
        let keys: Vec<u8> = (0..count).flat_map(u32::to_ne_bytes).collect();
        let values: Vec<u8> = (0..count).flat_map(|n| [n, 0, 0, 0].map(u32::to_ne_bytes)).flatten().collect();
        let map = self.which.compiled().map(&self.object, "structs")?;
        map.update_batch(&keys, &values, count, MapFlags::ANY, MapFlags::ANY)
            .during(|| "cannot fill the array of structs".into())
    }

    /// Times `count` lookups.
    pub fn time(&self, mode: Mode, count: u32) -> Result<Timed> {
        match mode {
            Mode::Packet => self.packets("packet", count),
            Mode::Struct => self.packets("struct", count),
            Mode::Loop => self.looped("loop", count),
            _ => self.looped(&format!("{}_", mode.name()), count),
        }
    }

    /// The same program without its lookup.
    pub fn time_empty(&self, mode: Mode, count: u32) -> Result<Timed> {
        match mode {
            Mode::Packet | Mode::Struct => self.packets("empty", count),
            _ => self.looped("loop_empty", count),
        }
    }

    /// Each address's answer, 0 = none.
    pub fn answers(&self, count: u32) -> Result<Vec<u32>> {
        self.looped("answer", count)?;
        let bytes = object::read(&self.which.compiled().map(&self.object, ".bss.answers")?)?;
        let words =
            bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        Ok(words.take(count as usize).collect())
    }

    /// Times one change, by the LPM_TRIE's programs, of each of the first `count` addresses: `update`, which gives them `value`, or
    /// `delete`. An error unless the map takes every one.
    pub fn change(&self, program: &str, count: u32, value: u32) -> Result<Timed> {
        let timed = self.run(program, &[0; 64], (count, 1), value)?;
        if timed.sum == u64::from(count) {
            return Ok(timed);
        }
        Err(Error::Refused {
            structure: self.which.name().into(),
            count: count as usize - timed.sum as usize,
        })
    }

    fn packets(&self, program: &str, count: u32) -> Result<Timed> {
        let mut packet = vec![0u8; 64];
        let (protocol, version) = if self.programs == "6" { ([0x86, 0xdd], 0x60) } else { ([8, 0], 0x45) };
        packet[12..14].copy_from_slice(&protocol);
        packet[14] = version;
        let timed = self.run(program, &packet, (count, count), 0)?;
        // The clock is read at the start of the first packet and of the last: between them lie one less.
        Ok(Timed { lookups: timed.lookups.max(2) - 1, ..timed })
    }

    fn looped(&self, program: &str, count: u32) -> Result<Timed> {
        self.run(program, &[0; 64], (count, 1), 0)
    }

    /// Runs a program `repeat` times for `count` lookups or changes.
    fn run(&self, program: &str, packet: &[u8], (count, repeat): (u32, u32), value: u32) -> Result<Timed> {
        let compiled = self.which.compiled();
        let section = compiled.map(&self.object, ".bss.lookups")?;
        let mut bytes = vec![0; size_of::<types::lab_lookups>()];
        for (at, word) in [
            (std::mem::offset_of!(types::lab_lookups, limit), count),
            (std::mem::offset_of!(types::lab_lookups, value), value),
        ] {
            bytes[at..at + 8].copy_from_slice(&u64::from(word).to_ne_bytes());
        }
        object::write(&section, &bytes)?;
        let name = format!("{program}{}", self.programs);
        let program = compiled.program_mut(&self.object, &name)?;
        let input = ProgramInput { data_in: Some(packet), repeat, ..Default::default() };
        let called = monotonic_ns();
        let output = program.test_run(input).during(|| format!("cannot run {name} of {}", compiled.name))?;
        let returned = monotonic_ns();
        let bytes = object::read(&section)?;
        let done = get!(bytes, lab_lookups.done);
        if output.return_value != XDP_DROP || done != u64::from(count) {
            return Err(Error::Object {
                object: compiled.name,
                part: format!("working {name}: {done} of {count} lookups, verdict {}", output.return_value),
            });
        }
        let readings =
            [called, get!(bytes, lab_lookups.first_ns), get!(bytes, lab_lookups.last_ns), returned];
        let span = Span::new(readings, || format!("{name} of {}", compiled.name))?;
        Ok(Timed { span, lookups: done, sum: get!(bytes, lab_lookups.sum) })
    }
}

/// How long some lookups took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// By the clocks of program and caller.
    pub span: Span,
    /// Lookups between the program's readings.
    pub lookups: u64,
    /// The sum of all answers, or of the changes that were made.
    pub sum: u64,
}

impl Timed {
    /// Nanoseconds a lookup.
    pub fn ns(&self) -> f64 {
        self.span.inside.as_nanos() as f64 / self.lookups as f64
    }
}

const XDP_DROP: u32 = 1;

/// An error of the product's, with what the kernel refused.
pub(crate) fn failed(error: impl std::error::Error) -> Error {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Error::Image(format!("{error}{cause}"))
}

fn trie_name<A: Looked>() -> String {
    format!("trie{}", A::PROGRAMS)
}

/// Fills an LPM_TRIE by batches, in the order of `entries`.
pub fn fill_trie<A: Looked>(map: &impl MapCore, entries: &[Entry<A>]) -> Result<()> {
    for part in entries.chunks(1 << 20) {
        let keys: Vec<u8> = part.iter().flat_map(|(prefix, _)| trie_key(prefix)).collect();
        let values: Vec<u8> = part.iter().flat_map(|(_, value)| value.to_ne_bytes()).collect();
        map.update_batch(&keys, &values, part.len() as u32, MapFlags::ANY, MapFlags::ANY)
            .during(|| format!("cannot fill the LPM_TRIE with {} prefixes", entries.len()))?;
    }
    Ok(())
}

/// The size of map type that a table needs beside `others` bytes. It is measured in ordinary memory first, so that none is too small or far
/// too large.
pub fn image_bytes<A: Address>(entries: &[Entry<A>], others: u64) -> Result<u64> {
    let generous = (entries.len() as u64 * 64 + (8 << 20)).next_power_of_two().min(1 << 32);
    let mut image =
        Image::create(HeapMemory::new(generous as usize), NoReaders::default(), 1).map_err(failed)?;
    Table::create(&mut image, 0, entries.iter().copied()).map_err(failed)?;
    Ok((image.stats().claimed + (1 << 18) + others).next_power_of_two())
}

/// The bytes that the kernel charges for a map.
fn charged(map: &impl MapCore) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("memlock:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
