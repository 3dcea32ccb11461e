//! A table inside the kernel, filled and looked up by BPF programs: LPM_TRIE, or a trieline image in either home.

use std::{fs, os::fd::AsRawFd, time::Instant};

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use serde::Serialize;
use trieline_bpf::{Home, ImageMap};
use trieline_lpm::{HeapMemory, Image, NoReaders, Prefix, Table};

use crate::{
    error::{During, Error, Result},
    measure::{Span, monotonic_ns},
    object::{self, Compiled, compiled, get, types},
    tables::generate::Wide,
};

/// Programs look up as whole packets or in a loop of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// A whole XDP program for each packet.
    Packet,
    /// Independent lookups in a loop inside one program.
    Loop,
}

impl Mode {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Packet => "packet",
            Mode::Loop => "loop",
        }
    }
}

/// Which structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// BPF_MAP_TYPE_LPM_TRIE.
    LpmTrie,
    /// A trieline image.
    Trieline(Home),
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
    pub fn home(self) -> &'static str {
        match self {
            Which::LpmTrie => "map",
            Which::Trieline(Home::Arena) => "arena",
            Which::Trieline(Home::Array) => "array",
        }
    }

    fn compiled(self) -> Compiled {
        match self {
            Which::LpmTrie => compiled!("tables_rival"),
            Which::Trieline(Home::Arena) => compiled!("tables_arena"),
            Which::Trieline(Home::Array) => compiled!("tables_array"),
        }
    }
}

/// A filled structure with its programs.
pub struct Structure {
    /// Which.
    pub which: Which,
    /// Memory of the table: an image's blocks, or what the kernel charges for the map.
    pub bytes: u64,
    /// How long filling took, in milliseconds.
    pub fill_ms: f64,
    family: u8,
    object: Object,
    /// The image's map must outlive the programs' use of it.
    _image: Option<ImageMap>,
}

impl Structure {
    /// Makes one, fills it with `prefixes` (the value of the n-th is n + 1) and gives its programs `addresses` (network order).
    pub fn fill<A: Wide>(which: Which, prefixes: &[Prefix<A>], addresses: &[u8]) -> Result<Structure> {
        let compiled = which.compiled();
        let mut open = compiled.open()?;
        let valued = || prefixes.iter().zip(1u32..).map(|(prefix, value)| (*prefix, value));
        let mut image_map = None;
        let mut fill_ms = 0.0;
        let mut bytes = 0;
        match which {
            Which::Trieline(home) => {
                let map = ImageMap::create(home, image_bytes(prefixes)?).map_err(failed)?;
                map.place(&mut open).map_err(failed)?;
                // No program runs yet, so nobody reads.
                let mut image = Image::create(map.memory(), NoReaders::default(), 1).map_err(failed)?;
                let began = Instant::now();
                Table::create(&mut image, 0, valued()).map_err(failed)?;
                fill_ms = began.elapsed().as_secs_f64() * 1e3;
                bytes = image.stats().used;
                image_map = Some(map);
            }
            Which::LpmTrie => {
                for mut map in open.maps_mut() {
                    if map.name() == trie_name(A::FAMILY) {
                        let count = prefixes.len().max(1) as u32;
                        map.set_max_entries(count).during(|| "sizing the LPM_TRIE".into())?;
                    }
                }
            }
        }
        let object = compiled.load(open)?;
        if which == Which::LpmTrie {
            let map = compiled.map(&object, trie_name(A::FAMILY))?;
            let began = Instant::now();
            let (mut keys, mut values) = (Vec::new(), Vec::new());
            for (prefix, value) in valued() {
                keys.extend(u32::from(prefix.len()).to_ne_bytes());
                let wide = prefix.addr().widen().to_be_bytes();
                keys.extend(&wide[..usize::from(A::WIDTH / 8)]);
                values.extend(value.to_ne_bytes());
            }
            if !prefixes.is_empty() {
                map.update_batch(&keys, &values, prefixes.len() as u32, MapFlags::ANY, MapFlags::ANY)
                    .during(|| format!("filling the LPM_TRIE with {} prefixes", prefixes.len()))?;
            }
            fill_ms = began.elapsed().as_secs_f64() * 1e3;
            bytes = charged(&map);
        }
        object::write(&compiled.map(&object, ".bss.addresses")?, addresses)?;
        Ok(Structure { which, bytes, fill_ms, family: A::FAMILY, object, _image: image_map })
    }

    /// Times `count` lookups.
    pub fn time(&self, mode: Mode, count: u32) -> Result<Timed> {
        match mode {
            Mode::Packet => self.packets("packet", count),
            Mode::Loop => self.looped("loop", count),
        }
    }

    /// The same program without its lookup.
    pub fn time_empty(&self, mode: Mode, count: u32) -> Result<Timed> {
        match mode {
            Mode::Packet => self.packets("empty", count),
            Mode::Loop => self.looped("loop_empty", count),
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

    fn packets(&self, program: &str, count: u32) -> Result<Timed> {
        let mut packet = vec![0u8; 64];
        let (protocol, version) = if self.family == 4 { ([8, 0], 0x45) } else { ([0x86, 0xdd], 0x60) };
        packet[12..14].copy_from_slice(&protocol);
        packet[14] = version;
        let timed = self.run(program, &packet, count, count)?;
        // The clock is read at the start of the first packet and of the last: between them lie one less.
        Ok(Timed { lookups: timed.lookups.max(2) - 1, ..timed })
    }

    fn looped(&self, program: &str, count: u32) -> Result<Timed> {
        self.run(program, &[0; 64], count, 1)
    }

    fn run(&self, program: &str, packet: &[u8], count: u32, repeat: u32) -> Result<Timed> {
        let compiled = self.which.compiled();
        let section = compiled.map(&self.object, ".bss.lookups")?;
        let mut bytes = vec![0; size_of::<types::lab_lookups>()];
        let limit = std::mem::offset_of!(types::lab_lookups, limit);
        bytes[limit..limit + 8].copy_from_slice(&u64::from(count).to_ne_bytes());
        object::write(&section, &bytes)?;
        let name = format!("{program}{}", self.family);
        let program = compiled.program_mut(&self.object, &name)?;
        let input = ProgramInput { data_in: Some(packet), repeat, ..Default::default() };
        let called = monotonic_ns();
        let output = program.test_run(input).during(|| format!("running {name} of {}", compiled.name))?;
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
        Ok(Timed { span: Span::new(readings, || format!("{name} of {}", compiled.name))?, lookups: done })
    }
}

/// How long some lookups took.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// By the clocks of program and caller.
    pub span: Span,
    /// Lookups between the program's readings.
    pub lookups: u64,
}

impl Timed {
    /// Nanoseconds a lookup.
    pub fn ns(&self) -> f64 {
        self.span.inside.as_nanos() as f64 / self.lookups as f64
    }
}

const XDP_DROP: u32 = 1;

fn failed(error: impl std::error::Error) -> Error {
    // The cause says what the kernel refused.
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    Error::Image(format!("{error}{cause}"))
}

fn trie_name(family: u8) -> &'static str {
    if family == 4 { "trie4" } else { "trie6" }
}

/// The size of home that a table needs: measured in ordinary memory first, so that none is too small or far too large.
fn image_bytes<A: Wide>(prefixes: &[Prefix<A>]) -> Result<u64> {
    let generous = (prefixes.len() as u64 * 64 + (8 << 20)).next_power_of_two();
    let mut image =
        Image::create(HeapMemory::new(generous as usize), NoReaders::default(), 1).map_err(failed)?;
    Table::create(&mut image, 0, prefixes.iter().zip(1u32..).map(|(prefix, value)| (*prefix, value)))
        .map_err(failed)?;
    Ok((image.stats().claimed + (1 << 18)).next_power_of_two())
}

/// What the kernel charges for a map.
fn charged(map: &impl MapCore) -> u64 {
    let path = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("memlock:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}
