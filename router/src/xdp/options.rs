//! The options that a dataplane is made or taken over with, and their differences from the pins.

use std::os::fd::AsFd;
use std::path::PathBuf;

use crate::xdp::error::{Error, Result};
use crate::xdp::layout::tl_instance;
use crate::xdp::pins;
use crate::xdp::sys;
use trieline_bpf::{ImageMap, ImageMapType};

/// Options of the dataplane to make or take over.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directory of this instance's pins in a BPF file system; made when missing.
    pub pins: PathBuf,
    /// Map type of the image; `None`: the arena where the kernel has one. Taken over from pinned maps.
    pub map_type: Option<ImageMapType>,
    /// Size of the image, a power of two. An arena takes memory only as it fills; an array takes it all.
    pub image_bytes: u64,
    /// Prefix tables there can be.
    pub tables: u32,
    /// Actions there can be. A restart needs the old and the new ones at once.
    pub actions: u32,
    /// Adjacencies there can be, likewise.
    pub adjacencies: u32,
    /// Rules there can be in policies, and one more.
    pub rules: u32,
    /// Whether the program takes frames of several buffers, as drivers have them. In generic mode there are none. But what such a program
    /// passes is a copy that has lost its link header, which the kernel's headends of whole frames need.
    pub frags: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pins: "/sys/fs/bpf/trieline".into(),
            map_type: None,
            image_bytes: 256 << 20,
            tables: 1024,
            actions: 65536,
            adjacencies: 65536,
            rules: 4096,
            frags: true,
        }
    }
}

/// How what is pinned differs from what these options ask of this version; `None`: it does not, or nothing is pinned. A start
/// would replace it. Changes nothing.
pub fn difference(options: &Options) -> Result<Option<String>> {
    let look = || {
        let Some(instance) = pins::instance(&options.pins)? else { return Ok(()) };
        adopt_image(options, &instance)?;
        let sized = [
            (pins::ACTIONS, options.actions),
            (pins::ADJACENCIES, options.adjacencies),
            (pins::RULES, options.rules),
        ];
        for (name, entries) in sized {
            let map = pins::need(&options.pins, name)?;
            let shape =
                sys::map_shape(map.as_fd()).map_err(|e| Error::kernel("cannot read a pinned map", e))?;
            if shape.entries != entries {
                let what = format!("has {} entries, not {entries}", shape.entries);
                return Err(Error::Pins { map: name.into(), what, path: options.pins.clone() });
            }
        }
        Ok(())
    };
    match look() {
        Ok(()) => Ok(None),
        Err(Error::Pins { map, what, .. }) => Ok(Some(format!("pinned `{map}` {what}"))),
        Err(error) => Err(error),
    }
}

/// The options by which [`crate::Dataplane::open`] takes the pins over. `None` if the pins are as `options` ask for, or are not of this
/// version and network namespace.
pub fn pinned_options(options: &Options) -> Result<Option<Options>> {
    let pins = options.pins.as_path();
    if !pins.is_dir() || difference(options)?.is_none() {
        return Ok(None);
    }
    let netns =
        sys::netns_cookie().map_err(|e| Error::kernel("cannot read the network namespace's cookie", e))?;
    let instance = match pins::instance(pins) {
        Ok(Some(instance)) if instance.netns == netns => instance,
        Ok(_) | Err(Error::Pins { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let entries = |name| {
        let shape = sys::map_shape(pins::need(pins, name)?.as_fd());
        Ok::<u32, Error>(shape.map_err(|e| Error::kernel("cannot read a pinned map", e))?.entries)
    };
    Ok(Some(Options {
        pins: options.pins.clone(),
        map_type: Some(pins::map_type_of(&instance)),
        image_bytes: instance.image_bytes,
        tables: instance.tables,
        actions: entries(pins::ACTIONS)?,
        adjacencies: entries(pins::ADJACENCIES)?,
        rules: entries(pins::RULES)?,
        frags: instance.frags != 0,
    }))
}

pub(crate) fn create_image(options: &Options) -> Result<ImageMap> {
    if options.tables == 0 || options.actions < 2 || options.adjacencies == 0 || options.rules < 2 {
        return Err(Error::argument(
            "tables and adjacencies must be at least 1, actions and rules at least 2",
        ));
    }
    Ok(ImageMap::choose(options.map_type, options.image_bytes)?)
}

pub(crate) fn adopt_image(options: &Options, instance: &tl_instance) -> Result<ImageMap> {
    let differs = |map: &str, what: String| Error::Pins { map: map.into(), what, path: options.pins.clone() };
    if options.map_type.is_some_and(|map_type| map_type != pins::map_type_of(instance)) {
        return Err(differs(
            pins::IMAGE,
            format!("is in an {}; the configuration has another map type", pins::map_type_of(instance)),
        ));
    }
    // Without an arena the array is as large as it can be.
    let wanted = options.image_bytes.min(pins::map_type_of(instance).max_bytes());
    if instance.image_bytes != wanted {
        return Err(differs(pins::IMAGE, format!("has {} bytes, not {wanted}", instance.image_bytes)));
    }
    if instance.tables != options.tables {
        return Err(differs(
            pins::IMAGE,
            format!("was made for {} tables, not {}", instance.tables, options.tables),
        ));
    }
    // The places of SID hooks take programs of one kind only.
    if (instance.frags != 0) != options.frags {
        return Err(differs(pins::SID_HOOK_PROGRAMS, "is of the other mode, native or generic".into()));
    }
    let fd =
        pins::open(&options.pins, pins::IMAGE)?.ok_or_else(|| differs(pins::IMAGE, "is missing".into()))?;
    ImageMap::adopt(fd)?.ok_or_else(|| differs(pins::IMAGE, "is of another kind".into()))
}
