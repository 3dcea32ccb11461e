//! The programs of `drops.bpf.c`: which of them this kernel can run, attached and pinned.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::btf::types::FuncProto;
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use libbpf_rs::{Link, MapCore, ObjectBuilder, OpenMapMut};

use super::counts::NO_DEVICE;
use super::maps::generated::types::{tl_drops_of, tl_fates};
use super::maps::{COUNTS, Maps, SOURCES};
use crate::xdp::error::{Error, Result};
use crate::xdp::load::{Log, load_error};
use crate::xdp::pins;
use crate::xdp::sys;

/// The programs, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);
static OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o")).len() }> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/drops.bpf.o")));

/// The section of the instance that the programs count for.
const INSTANCE: &str = ".rodata.drops";
/// The names of links' pins begin with it; the tracepoint and the program's tag follow.
const LINK: &str = "drops-";

/// A tracepoint, the program at it, and the arguments that the program takes.
struct Hook {
    tracepoint: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
}

const HOOKS: [Hook; 3] = [
    Hook {
        tracepoint: "xdp_devmap_xmit",
        program: "tl_devmap_xmit",
        arguments: &["net_device *", "net_device *", "int", "int", "int"],
    },
    // Linux had other arguments before 5.13.
    Hook {
        tracepoint: "xdp_redirect_err",
        program: "tl_redirect_err",
        arguments: &[
            "net_device *",
            "bpf_prog *",
            "void *",
            "int",
            "bpf_map_type",
            "unsigned int",
            "unsigned int",
        ],
    },
    Hook {
        tracepoint: "xdp_exception",
        program: "tl_exception",
        arguments: &["net_device *", "bpf_prog *", "unsigned int"],
    },
];

/// Loads the programs over new or pinned maps, and attaches each unless the same is attached. Returns the maps, and why some tracepoints
/// have no program.
pub(super) fn start(pins: &Path) -> Result<(Maps, Option<String>)> {
    let unfit = unfit()?;
    if unfit.len() == HOOKS.len() {
        return Err(Error::argument(unfit.join("; ")));
    }
    let log = Log::start();
    let failed = |error| load_error(error, "the programs that count drops", &log);
    let mut object = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(failed)?;
    let instance = instance(pins)?;
    for mut map in object.maps_mut() {
        match map.name().to_str() {
            Some(INSTANCE) => {
                let place = map.initial_value_mut().and_then(|value| value.first_chunk_mut());
                *place.ok_or_else(|| Error::argument("the BPF object has no room for its instance"))? =
                    instance;
            }
            Some(name @ (COUNTS | SOURCES)) => reuse(pins, name, &mut map)?,
            _ => {}
        }
    }
    for mut program in object.progs_mut() {
        let hook = HOOKS.iter().find(|hook| program.name() == hook.program);
        program
            .set_autoload(hook.is_some_and(|hook| !unfit.iter().any(|why| why.starts_with(hook.tracepoint))));
    }
    let object = object.load().map_err(failed)?;
    let map = |name: &str| -> Result<OwnedFd> {
        let fail = |e| Error::kernel(format!("cannot pin the map {name}"), e);
        let map = object.maps().find(|map| map.name() == name);
        let map = map.ok_or_else(|| Error::argument(format!("the BPF object has no map {name}")))?;
        let path = pins.join(name);
        if !path.exists() {
            sys::pin(map.as_fd(), &path).map_err(fail)?;
        }
        map.as_fd().try_clone_to_owned().map_err(fail)
    };
    let maps = Maps { counts: map(COUNTS)?, sources: map(SOURCES)? };
    make_no_device(&maps.counts)?;
    let mut missing = unfit;
    for hook in &HOOKS {
        let Some(program) =
            object.progs_mut().find(|program| program.name() == hook.program && program.autoload())
        else {
            continue;
        };
        let tag =
            sys::program_tag(program.as_fd()).map_err(|e| Error::kernel("cannot read a program's tag", e))?;
        if let Err(why) = attach(pins, hook, &tag, || program.attach()) {
            missing.push(format!("{}: {why}", hook.tracepoint));
        }
    }
    if missing.len() == HOOKS.len() {
        return Err(Error::argument(missing.join("; ")));
    }
    Ok((maps, (!missing.is_empty()).then(|| missing.join("; "))))
}

/// The tracepoints that have no program in an instance's pins.
pub(super) fn missing(pins: &Path) -> Result<Option<String>> {
    let mut missing = Vec::new();
    for hook in &HOOKS {
        if links(pins, hook)?.is_empty() {
            missing.push(format!("{}: no program is attached", hook.tracepoint));
        }
    }
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

/// The facts that tell this instance's packets from others', as the programs have them.
fn instance(pins: &Path) -> Result<[u8; size_of::<tl_drops_of>()]> {
    let netns =
        sys::netns_cookie().map_err(|e| Error::kernel("cannot read the network namespace's cookie", e))?;
    let counters = pins::need(pins, pins::COUNTERS)?;
    let counters =
        sys::map_id(counters.as_fd()).map_err(|e| Error::kernel("cannot read the number of a map", e))?;
    let mut bytes = [0; size_of::<tl_drops_of>()];
    bytes[std::mem::offset_of!(tl_drops_of, netns)..][..8].copy_from_slice(&netns.to_ne_bytes());
    bytes[std::mem::offset_of!(tl_drops_of, counters)..][..4].copy_from_slice(&counters.to_ne_bytes());
    Ok(bytes)
}

/// Puts a pinned map in the place of one that would be made. Removes all pins of counts if it is of another shape.
fn reuse(pins: &Path, name: &str, map: &mut OpenMapMut<'_>) -> Result<()> {
    let Some(pinned) = pins::open(pins, name)? else { return Ok(()) };
    let fail = |e| Error::kernel(format!("cannot use the pinned {name}"), e);
    let is = sys::map_shape(pinned.as_fd()).map_err(fail)?;
    let must = (map.map_type() as u32, map.key_size(), map.value_size(), map.max_entries());
    if (is.kind, is.key, is.value, is.entries) == must {
        return map.reuse_fd(pinned.as_fd()).map_err(|e| fail(std::io::Error::other(e)));
    }
    tracing::warn!(map = name, "the pinned counts of drops are of another version; they start at 0");
    for hook in &HOOKS {
        links(pins, hook)?.iter().try_for_each(|path| remove(path))?;
    }
    [COUNTS, SOURCES]
        .map(|name| pins.join(name))
        .iter()
        .filter(|path| path.exists())
        .try_for_each(|path| remove(path))
}

/// Makes the counters of packets without an output device: the programs make those of devices.
fn make_no_device(counts: &OwnedFd) -> Result<()> {
    let fail = |e| Error::kernel("cannot make the counts of former devices", e);
    let cpus = libbpf_rs::num_possible_cpus().map_err(|e| fail(std::io::Error::other(e)))?;
    let (key, mut none) = (NO_DEVICE.to_ne_bytes(), vec![0; cpus * size_of::<tl_fates>()]);
    if sys::map_lookup(counts.as_fd(), &key, &mut none).map_err(fail)? {
        return Ok(());
    }
    sys::map_update(counts.as_fd(), &key, &none).map_err(fail)
}

/// Attaches a program and pins the link, unless a program with these instructions is attached. Another one goes first, so that no packet
/// counts twice.
fn attach(
    pins: &Path,
    hook: &Hook,
    tag: &str,
    program: impl FnOnce() -> libbpf_rs::Result<Link>,
) -> std::result::Result<(), String> {
    let path = pins.join(format!("{LINK}{}-{tag}", hook.tracepoint));
    let others = links(pins, hook).map_err(|e| e.to_string())?;
    if others == [path.clone()] {
        return Ok(());
    }
    others.iter().try_for_each(|path| remove(path)).map_err(|e| e.to_string())?;
    let link = program().map_err(|e| format!("cannot attach a program: {e}"))?;
    sys::pin(link.as_fd(), &path).map_err(|e| format!("cannot pin a link: {e}"))
}

/// The pinned links of a tracepoint.
fn links(pins: &Path, hook: &Hook) -> Result<Vec<PathBuf>> {
    let fail = |e| Error::kernel(format!("cannot read {}", pins.display()), e);
    let prefix = format!("{LINK}{}-", hook.tracepoint);
    let mut links = Vec::new();
    for entry in fs::read_dir(pins).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&prefix)) {
            links.push(path);
        }
    }
    Ok(links)
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|e| Error::kernel(format!("cannot remove {}", path.display()), e))
}

/// The tracepoints that this kernel does not have with the arguments that the programs take, each with the difference.
fn unfit() -> Result<Vec<String>> {
    let btf = Btf::from_vmlinux().map_err(|e| {
        Error::kernel("this kernel does not describe its tracepoints (BTF)", std::io::Error::other(e))
    })?;
    let unfit = HOOKS.iter().filter_map(|hook| {
        let found = arguments(&btf, hook.tracepoint);
        let why = match &found {
            Some(found) if found == hook.arguments => return None,
            Some(found) => format!("has the arguments ({})", found.join(", ")),
            None => "does not exist".to_owned(),
        };
        Some(format!("{}: {why} in this kernel", hook.tracepoint))
    });
    Ok(unfit.collect())
}

/// The types of a tracepoint's arguments; `None` if this kernel does not have it.
fn arguments(btf: &Btf<'_>, tracepoint: &str) -> Option<Vec<String>> {
    // A pointer to the function that a program at the tracepoint stands for.
    let named: BtfType<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    let function: FuncProto<'_> = named.next_type()?.next_type()?.try_into().ok()?;
    // The first argument is the tracepoint's own.
    function.iter().skip(1).map(|argument| Some(type_name(btf.type_by_id(argument.ty)?))).collect()
}

/// A type in the words of C, without `const` and typedefs.
fn type_name(of: BtfType<'_>) -> String {
    let of = of.skip_mods_and_typedefs();
    match of.kind() {
        BtfKind::Ptr => format!("{} *", of.next_type().map_or_else(|| "void".into(), type_name)),
        BtfKind::Void => "void".into(),
        _ => of.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
    }
}
