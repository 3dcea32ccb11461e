//! The pins of an instance: their names in its directory, opening and removing them.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{tl_image_map_type, tl_instance, tl_limits};
use crate::xdp::sys::{self, MapShape};
use trieline_bpf::ImageMapType;

pub(crate) const VERSION: u32 = tl_limits::TL_INTF_VERSION.0;
pub(crate) const IMAGE_VERSION: u32 = tl_limits::TL_INTF_IMAGE.0;
pub(crate) const IMAGE: &str = "image";
pub(crate) const INSTANCE: &str = "instance";
/// The section of the heartbeat, which is a map without a declaration, and its pin. No file in a BPF file system has a dot in
/// its name.
const HEARTBEAT_SECTION: &str = ".data.heartbeat";
pub(crate) const HEARTBEAT: &str = "life";
const LINK: &str = "link-";
const ARRAY: u32 = 2;

// The names of the maps that `maps.bpf.h` declares, and the list `DECLARED`.
include!(concat!(env!("OUT_DIR"), "/map_names.rs"));

/// Name of the pin of a map that has this name in the object; `None`: it is not pinned with the others.
pub(crate) fn pin_of(map: &str) -> Option<&'static str> {
    match map {
        HEARTBEAT_SECTION => Some(HEARTBEAT),
        _ => DECLARED.into_iter().find(|name| *name == map),
    }
}

pub(crate) fn link_path(pins: &Path, ifindex: u32) -> PathBuf {
    pins.join(format!("{LINK}{ifindex}"))
}

/// Opens a pin.
pub(crate) fn open(pins: &Path, name: &str) -> Result<Option<OwnedFd>> {
    sys::get(&pins.join(name))
        .map_err(|e| Error::kernel(format!("cannot open the pin {}", pins.join(name).display()), e))
}

/// Opens a pin that must be there.
pub(crate) fn need(pins: &Path, name: &str) -> Result<OwnedFd> {
    open(pins, name)?.ok_or_else(|| Error::Pins {
        map: name.into(),
        what: "is missing".into(),
        path: pins.into(),
    })
}

/// Pinned links with their devices; `None` for one whose device is gone.
pub(crate) fn links(pins: &Path) -> Result<Vec<(PathBuf, OwnedFd, Option<u32>)>> {
    let fail = |error| Error::kernel(format!("cannot read {}", pins.display()), error);
    let mut links = Vec::new();
    for entry in fs::read_dir(pins).map_err(fail)? {
        let path = entry.map_err(fail)?.path();
        let is_link = path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(LINK));
        if is_link && let Some(link) = sys::get(&path).map_err(fail)? {
            let device = sys::link_device(link.as_fd()).map_err(fail)?;
            links.push((path, link, device));
        }
    }
    links.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(links)
}

/// Removes every pin of a directory, in no order, and the directory. A link whose pin was the last to hold it is detached. Another process
/// may do the same meanwhile: to a trielined that starts, detached pins are left ones ([`sweep`]).
pub(crate) fn remove(pins: &Path) -> Result<()> {
    clear(pins)?;
    match fs::remove_dir(pins) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(|error| Error::kernel(format!("cannot remove {}", pins.display()), error)),
    }
}

/// Removes every pin of a directory, but not the directory, which may be locked.
pub(crate) fn clear(pins: &Path) -> Result<()> {
    let fail = |error| Error::kernel(format!("cannot remove old pins in {}", pins.display()), error);
    let entries = match fs::read_dir(pins) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(fail)?,
    };
    for entry in entries {
        match fs::remove_file(entry.map_err(fail)?.path()) {
            // Another process removed it in between.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(fail)?,
        }
    }
    Ok(())
}

/// Where tables are made that are to take the place of others, and where those are for the moment between.
pub(crate) fn aside(pins: &Path) -> PathBuf {
    let mut name = pins.as_os_str().to_owned();
    name.push("-aside"); // no dot: a BPF file system refuses it
    name.into()
}

/// Removes tables that an owner made aside, or replaced, when it ended in between. A link that is pinned there is pinned
/// in `pins`, too.
pub fn abandon(pins: &Path) -> Result<()> {
    let aside = aside(pins);
    if aside.is_dir() { remove(&aside) } else { Ok(()) }
}

/// Two directories change places at one stroke.
pub(crate) fn exchange(one: &Path, other: &Path) -> Result<()> {
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    let cwd = rustix::fs::CWD;
    rustix::fs::renameat_with(cwd, one, cwd, other, flags).map_err(|e| {
        Error::kernel(format!("cannot exchange {} and {}", one.display(), other.display()), e.into())
    })
}

/// Takes the XDP program off every device of an instance and removes all that is pinned; works without a daemon. How many
/// devices.
pub fn detach_all(pins: &Path) -> Result<u32> {
    match fs::metadata(pins) {
        Ok(found) if found.is_dir() => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Error::kernel(format!("cannot read {}", pins.display()), error));
        }
        _ => return Err(Error::NotPinned { path: pins.into() }),
    }
    let links = match links(pins) {
        // Another process removed them in between.
        Err(_) if !pins.exists() => return Err(Error::NotPinned { path: pins.into() }),
        links => links?,
    };
    let mut devices = 0;
    for (_, link, device) in links {
        if device.is_some() {
            sys::link_detach(link.as_fd()).map_err(|e| Error::kernel("cannot detach a link", e))?;
            devices += 1;
        }
    }
    abandon(pins)?;
    remove(pins)?;
    Ok(devices)
}

/// Removes the pins beside `pins` without an owner whose devices are all gone, as those of a deleted network namespace. Removes `pins`
/// itself, too, if it is such and of a version that this program cannot read. How many instances.
pub fn sweep(pins: &Path) -> Result<u32> {
    let Some(parent) = pins.parent().filter(|parent| parent.is_dir()) else { return Ok(0) };
    let mut swept = 0;
    for entry in
        fs::read_dir(parent).map_err(|e| Error::kernel(format!("cannot read {}", parent.display()), e))?
    {
        let Ok(entry) = entry else { continue };
        let other = entry.path();
        if !other.is_dir() || (other == pins && instance(&other).is_ok()) {
            continue;
        }
        // Pins that another process is making or taking over are locked.
        let Ok(_claim) = trieline_bpf::pins::own_now(&other) else { continue };
        if links(&other).is_ok_and(|links| links.iter().all(|(_, _, device)| device.is_none())) {
            remove(&other)?;
            swept += 1;
        }
    }
    Ok(swept)
}

/// The instance record, if one is pinned.
pub(crate) fn instance(pins: &Path) -> Result<Option<tl_instance>> {
    let Some(fd) = open(pins, INSTANCE)? else { return Ok(None) };
    let shape =
        sys::map_shape(fd.as_fd()).map_err(|e| Error::kernel("cannot read the pinned instance", e))?;
    let expected = MapShape {
        kind: ARRAY,
        key: 4,
        value: size_of::<tl_instance>() as u32,
        entries: 1,
        flags: shape.flags,
        extra: shape.extra,
    };
    if shape != expected {
        return Err(other_version(pins));
    }
    let mut bytes = [0u8; size_of::<tl_instance>()];
    sys::map_lookup(fd.as_fd(), &0u32.to_ne_bytes(), &mut bytes)
        .map_err(|e| Error::kernel("cannot read the pinned instance", e))?;
    // SAFETY: a struct of integers, all of whose bit patterns are valid, of just this size.
    let instance: tl_instance = unsafe { std::mem::transmute(bytes) };
    if instance.version != VERSION {
        return Err(other_version(pins));
    }
    if instance.image_version != IMAGE_VERSION {
        return Err(Error::Pins {
            map: IMAGE.into(),
            what: format!(
                "is of version {}, this trieline reads version {IMAGE_VERSION}",
                instance.image_version
            ),
            path: pins.into(),
        });
    }
    Ok(Some(instance))
}

fn other_version(pins: &Path) -> Error {
    Error::Pins {
        map: INSTANCE.into(),
        what: "was made by another version of trieline".into(),
        path: pins.into(),
    }
}

/// Pins the maker of these maps; the last pin, so that its presence means that all are there.
pub(crate) fn pin_instance(pins: &Path, instance: tl_instance) -> Result<()> {
    let fail = |e| Error::kernel("cannot pin the instance", e);
    let shape = MapShape {
        kind: ARRAY,
        key: 4,
        value: size_of::<tl_instance>() as u32,
        entries: 1,
        ..Default::default()
    };
    let fd = sys::map_create("instance", shape, None).map_err(fail)?;
    // SAFETY: a struct of integers without padding (4 + 4 + 8 + 8 + 4 + 4 bytes).
    let bytes: [u8; size_of::<tl_instance>()] = unsafe { std::mem::transmute(instance) };
    sys::map_update(fd.as_fd(), &0u32.to_ne_bytes(), &bytes).map_err(fail)?;
    sys::pin(fd.as_fd(), &pins.join(INSTANCE)).map_err(fail)
}

pub(crate) fn map_type_of(instance: &tl_instance) -> ImageMapType {
    let is_arena = instance.map_type == map_type_number(ImageMapType::Arena);
    if is_arena { ImageMapType::Arena } else { ImageMapType::Array }
}

pub(crate) fn map_type_number(map_type: ImageMapType) -> u32 {
    match map_type {
        ImageMapType::Arena => tl_image_map_type::TL_IMAGE_ARENA.0,
        ImageMapType::Array => tl_image_map_type::TL_IMAGE_ARRAY.0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// `node detach` and the sweep of a trielined that starts may both remove detached pins.
    #[test]
    fn pins_that_another_process_removed_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let pins = root.path().join("pins");
        fs::create_dir(&pins).unwrap();
        fs::write(pins.join("image"), "").unwrap();
        remove(&pins).unwrap();
        assert!(!pins.exists());
        remove(&pins).unwrap();
    }
}
