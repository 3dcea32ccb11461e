//! Opens the lab's compiled BPF objects and reads the structs of intf.h out of their sections.

use libbpf_rs::{Map, MapCore, MapFlags, MapMut, Object, ObjectBuilder, OpenObject, Program, ProgramMut};

use crate::error::{During, Error, Result};

/// An object file as bytes, aligned as ELF wants it.
#[repr(C, align(16))]
pub(crate) struct Aligned<T: ?Sized>(pub T);

/// A compiled object.
#[derive(Clone, Copy)]
pub(crate) struct Compiled {
    pub name: &'static str,
    pub bytes: &'static [u8],
}

macro_rules! compiled {
    ($name:literal) => {{
        static BYTES: &$crate::object::Aligned<[u8]> =
            &$crate::object::Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")));
        $crate::object::Compiled { name: $name, bytes: &BYTES.0 }
    }};
}
pub(crate) use compiled;

/// Reads or writes a field of a struct that BTF describes, in the bytes of a section.
macro_rules! get {
    ($bytes:expr, $struct:ident . $field:ident) => {
        $crate::object::word(&$bytes, std::mem::offset_of!($crate::object::types::$struct, $field))
    };
}
pub(crate) use get;

/// The structs of intf.h, made from the BTF of the compiled programs.
#[allow(
    missing_docs,
    dead_code,
    clippy::all,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]
mod generated {
    pub mod generator {
        include!(concat!(env!("OUT_DIR"), "/generator.skel.rs"));
    }
    pub mod traffic {
        include!(concat!(env!("OUT_DIR"), "/traffic.skel.rs"));
    }
    pub mod flows {
        include!(concat!(env!("OUT_DIR"), "/flows.skel.rs"));
    }
    pub mod queues {
        include!(concat!(env!("OUT_DIR"), "/queues.skel.rs"));
    }
    pub mod rss {
        include!(concat!(env!("OUT_DIR"), "/rss.skel.rs"));
    }
    pub mod livelock {
        include!(concat!(env!("OUT_DIR"), "/livelock.skel.rs"));
    }
    pub mod redirects {
        include!(concat!(env!("OUT_DIR"), "/redirects.skel.rs"));
    }
    pub mod sinks {
        include!(concat!(env!("OUT_DIR"), "/sinks.skel.rs"));
    }
    pub mod trace {
        include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
    }
    pub mod tables {
        include!(concat!(env!("OUT_DIR"), "/tables_rival.skel.rs"));
    }
}
pub(crate) mod types {
    pub(crate) use super::generated::{
        flows::types::lab_flows_run,
        generator::types::lab_run,
        livelock::types::lab_offer,
        queues::types::lab_count,
        redirects::types::lab_redirects,
        rss::types::{lab_rss_fields, lab_rss_flow, lab_rss_run},
        sinks::types::lab_sink,
        tables::types::lab_lookups,
        trace::types::{lab_hooks, lab_noted},
        traffic::types::{lab_arrival, lab_flow, lab_pace, lab_tally, lab_template},
    };
}

/// Eight bytes of a section at an offset; 0 outside.
pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

impl Compiled {
    pub(crate) fn open(self) -> Result<OpenObject> {
        let mut builder = ObjectBuilder::default();
        let _ = builder.name(self.name);
        builder.open_memory(self.bytes).during(|| format!("cannot open the object {}", self.name))
    }

    pub(crate) fn load(self, open: OpenObject) -> Result<Object> {
        open.load().during(|| format!("cannot load the programs of {}", self.name))
    }

    pub(crate) fn program<'o>(self, object: &'o Object, name: &str) -> Result<Program<'o>> {
        object
            .progs()
            .find(|program| program.name() == name)
            .ok_or_else(|| Error::Object { object: self.name, part: format!("program {name}") })
    }

    /// A program that can be attached.
    pub(crate) fn program_mut<'o>(self, object: &'o Object, name: &str) -> Result<ProgramMut<'o>> {
        object
            .progs_mut()
            .find(|program| program.name() == name)
            .ok_or_else(|| Error::Object { object: self.name, part: format!("program {name}") })
    }

    /// A map, or a section by the end of its name (`.bss.run`).
    pub(crate) fn map<'o>(self, object: &'o Object, name: &str) -> Result<Map<'o>> {
        object
            .maps()
            .find(|map| map.name().to_string_lossy().ends_with(name))
            .ok_or_else(|| Error::Object { object: self.name, part: format!("map {name}") })
    }

    #[allow(dead_code, reason = "not every program that includes this file writes maps")]
    pub(crate) fn map_mut<'o>(self, object: &'o mut Object, name: &str) -> Result<MapMut<'o>> {
        object
            .maps_mut()
            .find(|map| map.name().to_string_lossy().ends_with(name))
            .ok_or_else(|| Error::Object { object: self.name, part: format!("map {name}") })
    }
}

/// The bytes of a section.
pub(crate) fn read(section: &impl MapCore) -> Result<Vec<u8>> {
    let bytes = section
        .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
        .during(|| format!("cannot read section {}", section.name().to_string_lossy()))?;
    Ok(bytes.unwrap_or_default())
}

/// Overwrites a section: `bytes`, then zeros.
pub(crate) fn write(section: &impl MapCore, bytes: &[u8]) -> Result<()> {
    let mut whole = bytes.to_vec();
    whole.resize(section.value_size() as usize, 0);
    section
        .update(&0u32.to_ne_bytes(), &whole, MapFlags::ANY)
        .during(|| format!("cannot write section {}", section.name().to_string_lossy()))
}
