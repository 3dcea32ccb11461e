//! Loads the XDP program for the image's map type against new or pinned maps.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, ObjectBuilder, OpenObject, PrintLevel, libbpf_sys, set_print};

use crate::xdp::error::{Error, Result};
use crate::xdp::options::Options;
use crate::xdp::pins;
use crate::xdp::sys;
use trieline_bpf::{ImageMap, ImageMapType};

/// The program for each map type, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);
static ARENA_OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/node_arena.bpf.o")).len() }> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/node_arena.bpf.o")));
static ARRAY_OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/node_array.bpf.o")).len() }> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/node_array.bpf.o")));

pub(crate) const PROGRAM: &str = "trieline";
const BEAT: &str = "tl_beat";
/// Lines of a verifier log that an error shows.
const LOG_LINES: usize = 40;

/// The maps of a loaded program, by name.
#[derive(Debug)]
pub(crate) struct Maps(Vec<(&'static str, OwnedFd)>);

impl Maps {
    /// All that have not been taken.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(&'static str, OwnedFd)> {
        self.0.iter()
    }

    /// Takes one out.
    pub(crate) fn take(&mut self, name: &str) -> Result<OwnedFd> {
        let at = self.0.iter().position(|(known, _)| *known == name);
        let at = at.ok_or_else(|| Error::argument(format!("the BPF object has no map `{name}`")))?;
        Ok(self.0.swap_remove(at).1)
    }
}

/// The section of the flow hash's key.
const FLOW: &str = ".rodata.flow";

/// The loaded programs and maps.
pub(crate) struct Loaded {
    pub(crate) maps: Maps,
    /// The XDP program.
    pub(crate) program: OwnedFd,
    /// The program that a heartbeat runs.
    pub(crate) beat: OwnedFd,
}

/// Loads the program against the image and the pinned maps, except for those that `reopen` names, which are made; without `reopen`, makes
/// all maps.
pub(crate) fn load(
    options: &Options,
    image: &ImageMap,
    hash_key: u64,
    reopen: Option<&[&str]>,
) -> Result<Loaded> {
    let log = Log::start();
    let failed = |error: libbpf_rs::Error| load_error(error, "the XDP program", &log);
    let bytes: &[u8] = match image.map_type() {
        ImageMapType::Arena => &ARENA_OBJECT.0,
        ImageMapType::Array => &ARRAY_OBJECT.0,
    };
    let mut builder = ObjectBuilder::default();
    let mut object = builder.name(PROGRAM).and_then(|b| b.open_memory(bytes)).map_err(failed)?;
    image.place(&mut object)?;
    size_maps(options, &mut object, reopen)?;
    if let Some(mut program) = object.progs_mut().find(|program| program.name() == PROGRAM && options.frags) {
        program.set_flags(libbpf_sys::BPF_F_XDP_HAS_FRAGS);
    }
    let mut flow = object.maps_mut().find(|map| map.name() == FLOW);
    let key = flow.as_mut().and_then(|map| map.initial_value_mut()?.first_chunk_mut());
    *key.ok_or_else(|| Error::argument(format!("the BPF object has no section `{FLOW}`")))? =
        hash_key.to_ne_bytes();
    let object = object.load().map_err(failed)?;
    let fail = |e| Error::kernel("cannot keep the loaded maps", e);
    let mut maps = Vec::new();
    for map in object.maps() {
        if let Some(name) = map.name().to_str().and_then(pins::pin_of) {
            maps.push((name, map.as_fd().try_clone_to_owned().map_err(fail)?));
        }
    }
    let program = |name: &str| {
        let program = object.progs().find(|p| p.name() == name);
        let program =
            program.ok_or_else(|| Error::argument(format!("the BPF object has no program `{name}`")))?;
        program.as_fd().try_clone_to_owned().map_err(fail)
    };
    Ok(Loaded { program: program(PROGRAM)?, beat: program(BEAT)?, maps: Maps(maps) })
}

/// Sizes the maps that are to be made, or puts the pinned ones in their place.
fn size_maps(options: &Options, object: &mut OpenObject, reopen: Option<&[&str]>) -> Result<()> {
    let fail = |e: libbpf_rs::Error| Error::kernel("cannot size the maps", io::Error::other(e));
    for mut map in object.maps_mut() {
        let Some(name) = map.name().to_str().and_then(pins::pin_of) else { continue };
        if name == pins::ACTIONS {
            map.set_max_entries(options.actions).map_err(fail)?;
        } else if name == pins::ADJACENCIES {
            map.set_max_entries(options.adjacencies).map_err(fail)?;
        } else if name == pins::RULES {
            map.set_max_entries(options.rules).map_err(fail)?;
        }
        if reopen.is_none_or(|own| own.contains(&name)) {
            continue;
        }
        let differs = |what| Error::Pins { map: name.into(), what, path: options.pins.clone() };
        let fd = pins::open(&options.pins, name)?.ok_or_else(|| differs("is missing".into()))?;
        let is = sys::map_shape(fd.as_fd())
            .map_err(|e| Error::kernel(format!("cannot read the pinned {name}"), e))?;
        let must = [
            ("type", is.kind, map.map_type() as u32),
            ("key size", is.key, map.key_size()),
            ("value size", is.value, map.value_size()),
            ("number of entries", is.entries, map.max_entries()),
        ];
        if let Some((what, is, must)) = must.iter().find(|(_, is, must)| is != must) {
            return Err(differs(format!("{what} is {is}, not {must}")));
        }
        map.reuse_fd(fd.as_fd()).map_err(fail)?;
    }
    Ok(())
}

thread_local! {
    static LOG: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Collects libbpf's messages on this thread, which it would print otherwise.
pub(crate) struct Log;

impl Log {
    pub(crate) fn start() -> Self {
        // For the whole process and for good: a library does not print.
        set_print(Some((PrintLevel::Info, |level, text| {
            let kept = LOG.with_borrow_mut(|log| match log {
                Some(log) => {
                    log.push_str(&text);
                    true
                }
                None => false,
            });
            if !kept {
                match level {
                    PrintLevel::Warn => tracing::warn!("{}", text.trim_end()),
                    _ => tracing::debug!("{}", text.trim_end()),
                }
            }
        })));
        LOG.set(Some(String::new()));
        Log
    }

    /// Its end.
    fn tail(&self) -> String {
        LOG.with_borrow(|log| {
            let lines: Vec<&str> = log.as_deref().unwrap_or_default().lines().collect();
            lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LOG.set(None);
    }
}

/// Loading `program` failed.
pub(crate) fn load_error(error: libbpf_rs::Error, program: &'static str, log: &Log) -> Error {
    let errno = std::iter::successors(Some(&error as &dyn std::error::Error), |e| e.source())
        .find_map(|e| e.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error));
    let source = match (errno, error.kind()) {
        (Some(errno), _) => io::Error::from_raw_os_error(errno),
        (None, libbpf_rs::ErrorKind::PermissionDenied) => io::Error::from_raw_os_error(libc::EPERM),
        (None, _) => io::Error::other(error.to_string()),
    };
    if source.raw_os_error() == Some(libc::EPERM) && !trieline_bpf::probe::missing_capabilities().is_empty() {
        return Error::kernel(format!("cannot load {program}"), source);
    }
    Error::Load { program, log: log.tail(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names in an object, but for sections and the image, whose map only the arena's object declares.
    fn declared(bytes: &[u8]) -> BTreeSet<String> {
        let object = ObjectBuilder::default().open_memory(bytes).unwrap();
        let names = object.maps().map(|map| map.name().to_string_lossy().into_owned());
        names.filter(|name| !name.contains('.') && name != "tl_tables").collect()
    }

    /// A map that only one of the two objects has would be missing from the pins of the other.
    #[test]
    fn each_declared_map_is_pinned_or_scratch_in_both_objects() {
        let listed: BTreeSet<&str> = pins::DECLARED.into_iter().collect();
        for bytes in [&ARENA_OBJECT.0[..], &ARRAY_OBJECT.0[..]] {
            let declared = declared(bytes);
            let (scratch, pinned): (Vec<&str>, Vec<&str>) =
                declared.iter().map(String::as_str).partition(|name| pins::pin_of(name).is_none());
            assert_eq!(pinned.into_iter().collect::<BTreeSet<_>>(), listed);
            assert_eq!(scratch, ["capture_scratch", "scratch_frames"]);
        }
    }

    /// No map has the name of another pin.
    #[test]
    fn pins_have_names_of_their_own() {
        let others = [pins::HEARTBEAT, pins::IMAGE, pins::INSTANCE];
        assert!(others.iter().all(|other| !pins::DECLARED.contains(other)));
        assert_eq!(pins::pin_of(".rodata.flow"), None);
    }
}
