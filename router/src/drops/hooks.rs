//! The programs of `drops.bpf.c`: which of them this kernel can run, attached and pinned.

use std::os::fd::AsFd;
use std::path::Path;
use std::{fs, io};

use libbpf_rs::btf::types::FuncProto;
use libbpf_rs::btf::{Btf, BtfKind, BtfType};
use libbpf_rs::{MapCore, Object, ObjectBuilder, OpenMap, ProgramMut};

use super::maps::generated::types::tl_drops_of;
use super::maps::{Maps, PINNED};
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
/// The names of links' pins begin with it; the tracepoint, the program's tag and the generation follow.
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

/// The one hook whose program needs no `bpf_probe_read_kernel`, which the kernel withholds under lockdown.
const SENT: &str = "xdp_devmap_xmit";

/// Why a tracepoint has no program that counts.
type Missing = (&'static str, String);

/// Loads the programs over new or pinned maps, and attaches them unless all of the same are attached. Returns the maps, and why some
/// tracepoints have no program.
pub(super) fn start(pins: &Path) -> Result<(Maps, Option<String>)> {
    let mut missing = unfit()?;
    let fit = |hook: &&Hook| !missing.iter().any(|(tracepoint, _)| *tracepoint == hook.tracepoint);
    let hooks: Vec<&Hook> = HOOKS.iter().filter(fit).collect();
    if hooks.is_empty() {
        return Err(Error::argument(text(&missing).unwrap_or_default()));
    }
    let instance = instance(pins)?;
    let object = match load(pins, &hooks, &instance) {
        Err(error) => {
            let (sent, others): (Vec<&Hook>, Vec<&Hook>) =
                hooks.into_iter().partition(|hook| hook.tracepoint == SENT);
            if sent.is_empty() || others.is_empty() {
                return Err(error);
            }
            let Ok(object) = load(pins, &sent, &instance) else { return Err(error) };
            tracing::debug!(%error, "the kernel refuses programs that count drops");
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            missing.extend(others.iter().map(|hook| (hook.tracepoint, why.clone())));
            object
        }
        loaded => loaded?,
    };
    for map in object.maps() {
        let Some(name) = PINNED.into_iter().find(|name| map.name() == *name) else { continue };
        if !pins.join(name).exists() {
            sys::pin(map.as_fd(), &pins.join(name))
                .map_err(|e| Error::kernel(format!("cannot pin the map {name}"), e))?;
        }
    }
    let maps = Maps::open(pins)?.ok_or_else(|| Error::argument("the maps of drops are not pinned"))?;
    attach(pins, &maps, &object, instance.generation, &mut missing)?;
    if missing.len() == HOOKS.len() {
        return Err(Error::argument(text(&missing).unwrap_or_default()));
    }
    Ok((maps, text(&missing)))
}

/// The maps of programs that count already, if this version can read them. Else it removes what is pinned.
pub(super) fn keep(pins: &Path) -> Option<Maps> {
    let counts = || -> Result<Option<Maps>> {
        let object = ObjectBuilder::default().open_memory(&OBJECT.0);
        let object = object.map_err(|e| Error::argument(e.to_string()))?;
        if !object.maps().map(|map| is_pinned(pins, &map)).collect::<Result<Vec<_>>>()?.contains(&false)
            && let Some(maps) = Maps::open(pins)?
        {
            let attached = !links(pins, &generation_suffix(maps.generation()?))?.is_empty();
            return Ok(attached.then_some(maps));
        }
        Ok(None)
    };
    let kept = counts().ok().flatten();
    if kept.is_none()
        && let Err(error) = remove_all(pins)
    {
        tracing::warn!(%error, "drops of an earlier start stay pinned; trielined does not count them");
    }
    kept
}

/// The tracepoints that have no program that counts.
pub(super) fn missing(pins: &Path, maps: &Maps) -> Result<Option<String>> {
    let attached = links(pins, &generation_suffix(maps.generation()?))?;
    let is_missing = |hook: &&Hook| {
        let prefix = format!("{LINK}{}-", hook.tracepoint);
        !attached.iter().any(|name| name.starts_with(&prefix))
    };
    let missing = HOOKS.iter().filter(is_missing);
    Ok(text(&missing.map(|hook| (hook.tracepoint, "no program is attached".into())).collect::<Vec<_>>()))
}

fn text(missing: &[Missing]) -> Option<String> {
    let lines = missing.iter().map(|(tracepoint, why)| format!("{tracepoint}: {why}"));
    (!missing.is_empty()).then(|| lines.collect::<Vec<_>>().join("; "))
}

/// The facts that tell this instance's packets from others', as the programs have them. Each start has another generation.
fn instance(pins: &Path) -> Result<tl_drops_of> {
    let netns =
        sys::netns_cookie().map_err(|e| Error::kernel("cannot read the network namespace's cookie", e))?;
    let counters = pins::need(pins, pins::COUNTERS)?;
    let counters =
        sys::map_id(counters.as_fd()).map_err(|e| Error::kernel("cannot read the number of a map", e))?;
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let generation = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
    Ok(tl_drops_of { netns, generation, counters, reserved: 0 })
}

/// Loads the programs of these hooks, over the pinned maps if all of them are pinned and have this version's shape. Else it removes what
/// is pinned.
fn load(pins: &Path, hooks: &[&Hook], instance: &tl_drops_of) -> Result<Object> {
    let log = Log::start();
    let failed = |error| load_error(error, "the programs that count drops", &log);
    let mut object = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(failed)?;
    let pinned = object.maps().map(|map| is_pinned(pins, &map)).collect::<Result<Vec<_>>>()?;
    let reused = !pinned.contains(&false);
    if !reused && remove_all(pins)? {
        tracing::warn!("the pinned counts of drops are of another version; they start at 0");
    }
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if name == INSTANCE {
            let place = map.initial_value_mut().and_then(|value| value.first_chunk_mut());
            *place.ok_or_else(|| Error::argument("the BPF object has no room for its instance"))? =
                bytes(instance);
        } else if reused && PINNED.contains(&name.as_str()) {
            let fail = |e| Error::kernel(format!("cannot use the pinned {name}"), io::Error::other(e));
            map.reuse_fd(pins::need(pins, &name)?.as_fd()).map_err(fail)?;
        }
    }
    for mut program in object.progs_mut() {
        program.set_autoload(hooks.iter().any(|hook| program.name() == hook.program));
    }
    object.load().map_err(failed)
}

fn bytes(of: &tl_drops_of) -> [u8; size_of::<tl_drops_of>()] {
    let mut bytes = [0; size_of::<tl_drops_of>()];
    let parts = [of.netns.to_ne_bytes(), of.generation.to_ne_bytes()].into_iter().flatten();
    let parts = parts.chain(of.counters.to_ne_bytes()).chain(of.reserved.to_ne_bytes());
    bytes.iter_mut().zip(parts).for_each(|(place, byte)| *place = byte);
    bytes
}

/// Whether a map of the object is pinned in this version's shape, or needs no pin.
fn is_pinned(pins: &Path, map: &OpenMap<'_>) -> Result<bool> {
    let name = map.name().to_string_lossy().into_owned();
    if !PINNED.contains(&name.as_str()) {
        return Ok(true);
    }
    let Some(pinned) = pins::open(pins, &name)? else { return Ok(false) };
    let is = sys::map_shape(pinned.as_fd())
        .map_err(|e| Error::kernel(format!("cannot use the pinned {name}"), e))?;
    let must = (map.map_type() as u32, map.key_size(), map.value_size(), map.max_entries());
    Ok((is.kind, is.key, is.value, is.entries) == must)
}

/// Attaches the loaded programs and pins the links, unless exactly these are attached. All are replaced by one store: those of before count
/// until then, these from then on. The kernel detaches those of before some time after their pins are gone.
fn attach(
    pins: &Path,
    maps: &Maps,
    object: &Object,
    generation: u64,
    missing: &mut Vec<Missing>,
) -> Result<()> {
    let mut programs = Vec::new();
    for hook in &HOOKS {
        let is_loaded = |program: &ProgramMut<'_>| program.name() == hook.program && program.autoload();
        if let Some(program) = object.progs_mut().find(is_loaded) {
            let tag = sys::program_tag(program.as_fd())
                .map_err(|e| Error::kernel("cannot read a program's tag", e))?;
            programs.push((hook.tracepoint, program, format!("{LINK}{}-{tag}", hook.tracepoint)));
        }
    }
    let current = generation_suffix(maps.generation()?);
    let mut attached = links(pins, &current)?;
    attached.sort();
    let mut must: Vec<String> = programs.iter().map(|(.., name)| format!("{name}{current}")).collect();
    must.sort();
    if attached == must {
        return remove_links(pins, Some(&current)).map(drop);
    }
    let suffix = generation_suffix(generation);
    for (tracepoint, program, name) in programs {
        let link = program.attach().map_err(|e| format!("cannot attach a program: {e}"));
        let pinned = link.and_then(|link| {
            sys::pin(link.as_fd(), &pins.join(format!("{name}{suffix}")))
                .map_err(|e| format!("cannot pin a link: {e}"))
        });
        if let Err(why) = pinned {
            missing.push((tracepoint, why));
        }
    }
    if missing.len() < HOOKS.len() {
        maps.set_generation(generation)?;
        remove_links(pins, Some(&suffix))?;
    }
    Ok(())
}

/// The end of the names of the links of a generation.
fn generation_suffix(generation: u64) -> String {
    format!("-{generation:x}")
}

/// The names of pinned links that end so.
fn links(pins: &Path, suffix: &str) -> Result<Vec<String>> {
    let fail = |e| Error::kernel(format!("cannot read {}", pins.display()), e);
    let mut links = Vec::new();
    for entry in fs::read_dir(pins).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name().to_string_lossy().into_owned();
        if name.starts_with(LINK) && name.ends_with(suffix) {
            links.push(name);
        }
    }
    Ok(links)
}

/// Removes the links of all generations but one; whether there were any.
fn remove_links(pins: &Path, but: Option<&str>) -> Result<bool> {
    let mut links = links(pins, "")?;
    links.retain(|name| but.is_none_or(|but| !name.ends_with(but)));
    links.iter().try_for_each(|name| remove(&pins.join(name)))?;
    Ok(!links.is_empty())
}

/// Removes the links, then the maps; whether there were any.
fn remove_all(pins: &Path) -> Result<bool> {
    let mut any = remove_links(pins, None)?;
    for path in PINNED.map(|name| pins.join(name)).iter().filter(|path| path.exists()) {
        remove(path)?;
        any = true;
    }
    Ok(any)
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(|e| Error::kernel(format!("cannot remove {}", path.display()), e))
}

/// The tracepoints that this kernel does not have with the arguments that the programs take, each with the difference.
fn unfit() -> Result<Vec<Missing>> {
    let btf = Btf::from_vmlinux().map_err(|e| {
        Error::kernel("this kernel does not describe its tracepoints (BTF)", io::Error::other(e))
    })?;
    let unfit = HOOKS.iter().filter_map(|hook| {
        let found = arguments(&btf, hook.tracepoint);
        let why = match &found {
            Some(found) if found == hook.arguments => return None,
            Some(found) => format!("has the arguments ({})", found.join(", ")),
            None => "does not exist".to_owned(),
        };
        Some((hook.tracepoint, format!("{why} in this kernel")))
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
