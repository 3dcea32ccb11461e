//! Map types of the image: a BPF arena or a memory-mapped BPF array, created, opened and mapped.
//!
//! [`ImageMap::create`] makes a map type, [`ImageMap::place`] gives it to an opened object that includes `trieline/bpf.h`.

#![warn(clippy::arithmetic_side_effects, reason = "unsafe code relies on sizes that do not wrap")]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use libbpf_rs::libbpf_sys::{BPF_F_SLEEPABLE, BPF_PROG_TYPE_SYSCALL};
use libbpf_rs::{MapType, Object, OpenObject};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use trieline_lpm::Memory;

use crate::deferred;
use crate::error::{Error, Result};
use crate::probe::missing_capabilities;
use crate::sys::{self, MapShape};

const ARENA: u32 = 33;
const ARRAY: u32 = 2;
const MMAPABLE: u32 = 1 << 10;
/// First address of an arena. Its low half is zero, so that an offset in the image is the low half of a pointer.
const ARENA_AT: u64 = 1 << 44;
/// Arenas one process can have mapped at the same time.
const ARENA_SLOTS: u64 = 256;
const PAGE: u64 = 4096;
/// The verifier follows offsets below 2^29.
const ARRAY_MAX: u64 = 1 << 29;
const ARENA_MAX: u64 = 1 << 32;
/// Size of the map type that is tried.
const TRIAL_BYTES: u64 = 1 << 16;

/// The map types that an image can live in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImageMapType {
    /// BPF arena (Linux 6.9): up to 4 GiB, pages are filled when first touched.
    Arena,
    /// Memory-mapped BPF array of one element (older than what the program needs; tested on Linux 6.1). It has up to 512 MiB, all of it
    /// taken at once.
    Array,
}

impl ImageMapType {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Arena, Self::Array];

    /// Its name: `arena` or `array`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arena => "arena",
            Self::Array => "array",
        }
    }

    /// Largest image.
    pub fn max_bytes(self) -> u64 {
        match self {
            ImageMapType::Arena => ARENA_MAX,
            ImageMapType::Array => ARRAY_MAX,
        }
    }

    /// Whether this kernel has it and this process may use it; if not, why. Leaves nothing behind.
    pub fn probe(self) -> std::result::Result<(), String> {
        match ImageMap::create(self, TRIAL_BYTES) {
            Ok(_) => Ok(()),
            // The error of a kernel that does not know this type of map.
            Err(Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                Err(match self {
                    ImageMapType::Arena => {
                        "this kernel has none (Linux 6.9 or newer with CONFIG_BPF_JIT)".into()
                    }
                    ImageMapType::Array => {
                        "this kernel has none (trieline is tested on Linux 6.1 and newer)".into()
                    }
                })
            }
            Err(Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::ENOSYS) => {
                Err("this kernel has no BPF (CONFIG_BPF_SYSCALL)".into())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

impl fmt::Display for ImageMapType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ImageMapType {
    type Err = String;

    /// The map type of a name; if there is none, the error in words.
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let known = Self::ALL.into_iter().find(|map_type| map_type.name() == name);
        known.ok_or_else(|| format!("invalid {name:?} for the map type: expected arena or array"))
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for ImageMapType {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for ImageMapType {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Memory of a BPF map in this process.
#[derive(Debug)]
pub struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread. It is only read and written by atomic operations or by the one
// owner of the records.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `bytes` of a memory-mapped array.
    pub fn of_array(fd: BorrowedFd<'_>, bytes: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes.next_multiple_of(PAGE)).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses a free address.
        let at = unsafe {
            mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, fd, 0)
        }?;
        Ok(Self { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Maps an arena at the address that it needs.
    fn of_arena(fd: BorrowedFd<'_>, bytes: u64, address: u64) -> io::Result<Self> {
        let bytes = usize::try_from(bytes).map_err(io::Error::other)?;
        let flags = MapFlags::SHARED | MapFlags::FIXED_NOREPLACE;
        // SAFETY: NOREPLACE never unmaps anything that is there.
        let at = unsafe {
            mmap(address as usize as *mut _, bytes, ProtFlags::READ | ProtFlags::WRITE, flags, fd, 0)
        }?;
        // A child that shared an arena's pages would outlive the kernel's list of them.
        // SAFETY: the range was just mapped; the advice changes nothing for this process.
        unsafe { madvise(at, bytes, Advice::LinuxDontFork) }?;
        Ok(Self { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// The first `count` 64-bit words.
    ///
    /// # Panics
    ///
    /// If the mapping is shorter.
    pub fn words64(&self, count: usize) -> &[AtomicU64] {
        assert!(
            count.checked_mul(size_of::<AtomicU64>()).is_some_and(|bytes| bytes <= self.bytes),
            "{count} words in a mapping of {} bytes",
            self.bytes
        );
        // SAFETY: mapped until drop, page-aligned, long enough; these words are only accessed atomically.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr().cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by this value and nothing borrowed from it is left.
        if let Err(error) = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) } {
            tracing::warn!(%error, "munmap");
        }
    }
}

/// The bytes of the image, mapped into this process.
#[derive(Clone, Debug)]
pub struct ImageMemory(Arc<Mapping>);

// SAFETY: the kernel zeroes the pages of both maps. The mapping is page-aligned, readable and writable, and stays where it is
// until the last clone is dropped. This crate hands its bytes out only here, as atomics.
unsafe impl Memory for ImageMemory {
    fn words(&self) -> &[AtomicU32] {
        // SAFETY: see above.
        unsafe { std::slice::from_raw_parts(self.0.at.as_ptr().cast(), self.0.bytes / 4) }
    }
}

/// The BPF map that is an image's map type, mapped into this process.
#[derive(Debug)]
pub struct ImageMap {
    fd: OwnedFd,
    map_type: ImageMapType,
    bytes: u64,
    memory: ImageMemory,
}

impl ImageMap {
    /// A new map type of `bytes`, a power of two from 64 KiB to [`ImageMapType::max_bytes`].
    ///
    /// Never fork (without exec) a process that has an arena mapped.
    pub fn create(map_type: ImageMapType, bytes: u64) -> Result<Self> {
        if !bytes.is_power_of_two() || bytes < 1 << 16 || bytes > map_type.max_bytes() {
            return Err(Error::Argument(format!(
                "image size {bytes}: must be a power of two from 65536 to {} ({map_type})",
                map_type.max_bytes()
            )));
        }
        let fail = |what: &str| {
            let what = format!("{what} of {} MiB for the image", bytes >> 20);
            move |error| Error::kernel(what, error)
        };
        match map_type {
            ImageMapType::Arena => {
                for slot in 0..ARENA_SLOTS {
                    let extra = ARENA_AT | slot << 32;
                    let shape = MapShape {
                        kind: ARENA,
                        entries: (bytes / PAGE) as u32,
                        flags: MMAPABLE,
                        extra,
                        ..Default::default()
                    };
                    let fd =
                        sys::map_create("image", shape, None).map_err(fail("cannot make a BPF arena"))?;
                    match Mapping::of_arena(fd.as_fd(), bytes, extra) {
                        Ok(mapping) => {
                            return Ok(Self { fd, map_type, bytes, memory: ImageMemory(Arc::new(mapping)) });
                        }
                        // This process has another arena there.
                        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => continue,
                        Err(error) => return Err(fail("cannot map a BPF arena")(error)),
                    }
                }
                Err(Error::Full { what: "arena in this process", capacity: ARENA_SLOTS as u32 })
            }
            ImageMapType::Array => {
                let shape = MapShape {
                    kind: ARRAY,
                    key: 4,
                    value: bytes as u32,
                    entries: 1,
                    flags: MMAPABLE,
                    ..Default::default()
                };
                let fd = sys::map_create("image", shape, None).map_err(fail("cannot make a BPF array"))?;
                let mapping = Mapping::of_array(fd.as_fd(), bytes).map_err(fail("cannot map a BPF array"))?;
                Ok(Self { fd, map_type, bytes, memory: ImageMemory(Arc::new(mapping)) })
            }
        }
    }

    /// A new map for an image: of `map_type`, or an arena where the kernel has one, else an array, then of at most 512 MiB.
    pub fn choose(map_type: Option<ImageMapType>, bytes: u64) -> Result<Self> {
        let chosen = map_type.unwrap_or(ImageMapType::Arena);
        let reason = match chosen.probe() {
            Err(reason) if missing_capabilities().is_empty() => reason,
            // Without the capabilities a trial fails too; the error of creating names the missing ones.
            _ => return Self::create(chosen, bytes),
        };
        if map_type.is_some() {
            return Err(Error::Argument(format!("{chosen} as map type of the image: {reason}")));
        }
        Self::create(ImageMapType::Array, bytes.min(ImageMapType::Array.max_bytes())).map_err(|error| {
            match error {
                Error::Permission { .. } | Error::Lockdown { .. } => error,
                error => Error::NoMapType { arena: reason, array: error.to_string() },
            }
        })
    }

    /// Maps the map type that is pinned at `path`: to give it to a program while another process, or none, changes its tables.
    pub fn pinned(path: &Path) -> Result<Self> {
        let fail = |error| Error::kernel(format!("cannot open the pin {}", path.display()), error);
        let fd = sys::get(path).map_err(fail)?.ok_or_else(|| Error::NotPinned { path: path.into() })?;
        if !sys::is_map(fd.as_fd()) {
            return Err(Error::Pinned { path: path.into(), what: "no map, but a program or a link".into() });
        }
        let shape = sys::map_shape(fd.as_fd()).map_err(fail)?;
        Self::adopt(fd)?.ok_or_else(|| Error::Pinned {
            path: path.into(),
            what: format!(
                "a map of type {} with {} elements of {} bytes",
                shape.kind, shape.entries, shape.value
            ),
        })
    }

    /// Maps an existing map type. `None` when the map is neither.
    pub fn adopt(fd: OwnedFd) -> Result<Option<Self>> {
        let shape =
            sys::map_shape(fd.as_fd()).map_err(|e| Error::kernel("cannot read the image's map", e))?;
        let failed = |e: io::Error| match e.raw_os_error() {
            Some(libc::EEXIST) => Error::Argument(format!(
                "the image must be mapped at {:#x}, and this process has something there already",
                shape.extra
            )),
            _ => Error::kernel("cannot map the image", e),
        };
        let (map_type, bytes, mapping) = match shape.kind {
            ARENA => {
                let bytes = u64::from(shape.entries) * PAGE;
                (
                    ImageMapType::Arena,
                    bytes,
                    Mapping::of_arena(fd.as_fd(), bytes, shape.extra).map_err(failed)?,
                )
            }
            ARRAY if shape.entries == 1 && shape.flags & MMAPABLE != 0 => {
                let bytes = u64::from(shape.value);
                (ImageMapType::Array, bytes, Mapping::of_array(fd.as_fd(), bytes).map_err(failed)?)
            }
            _ => return Ok(None),
        };
        Ok(Some(Self { fd, map_type, bytes, memory: ImageMemory(Arc::new(mapping)) }))
    }

    /// Bytes of it that are in memory.
    pub fn resident(&self) -> io::Result<u64> {
        let pages = (self.bytes / PAGE) as usize;
        let mut states = vec![0u8; pages];
        // SAFETY: the range is mapped, and `states` has a byte for each of its pages.
        let ret = unsafe {
            libc::mincore(self.memory.0.at.as_ptr().cast(), self.bytes as usize, states.as_mut_ptr())
        };
        if ret < 0 {
            return Err(io::Error::last_os_error());
        }
        let resident = states.iter().filter(|state| **state & 1 == 1).count() as u64;
        Ok(resident.saturating_mul(PAGE))
    }

    /// The map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// The map type.
    pub fn map_type(&self) -> ImageMapType {
        self.map_type
    }

    /// Size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes, for [`trieline_lpm::Image`].
    pub fn memory(&self) -> ImageMemory {
        self.memory.clone()
    }

    /// Makes an opened object that includes `trieline/bpf.h`, compiled for this map type, use this map.
    pub fn place(&self, object: &mut OpenObject) -> Result<()> {
        let fail = |e: libbpf_rs::Error| Error::Kernel {
            operation: "cannot place the image".into(),
            source: io::Error::other(e),
        };
        let shape = sys::map_shape(self.fd()).map_err(|e| Error::kernel("cannot read the image's map", e))?;
        let mut placed = false;
        for mut map in object.maps_mut() {
            match (self.map_type, map.name().to_str()) {
                (ImageMapType::Arena, Some("tl_tables")) if map.map_type() == MapType::Arena => {
                    map.set_max_entries(shape.entries).map_err(fail)?;
                    map.set_map_extra(shape.extra).map_err(fail)?;
                    map.reuse_fd(self.fd()).map_err(fail)?;
                    placed = true;
                }
                (ImageMapType::Array, Some(".bss.tl_tables")) => {
                    // First the size, so that libbpf's own mapping of the section has it too; it is never touched.
                    map.set_value_size(shape.value).map_err(fail)?;
                    map.reuse_fd(self.fd()).map_err(fail)?;
                    placed = true;
                }
                (ImageMapType::Array, Some(".rodata.tl_mask")) => {
                    map.set_initial_value(&shape.value.saturating_sub(1).to_ne_bytes()).map_err(fail)?;
                }
                _ => {}
            }
        }
        if placed {
            Ok(())
        } else {
            Err(Error::Argument(format!("the BPF object has no place for an image in an {}", self.map_type)))
        }
    }

    /// Refuses a loaded object in which a program uses this map and may sleep: grace periods do not wait for it.
    ///
    /// Known by its section, its type or its flag. Also a program that hands a callback to a work queue or to a task (`bpf_wq`,
    /// `bpf_task_work`), by the kernel function that it calls.
    pub fn check(&self, object: &Object) -> Result<()> {
        let fail = |error| Error::kernel("cannot read a program's maps", error);
        let own = sys::map_id(self.fd()).map_err(fail)?;
        for program in object.progs() {
            let section = program.section().to_string_lossy();
            let is_sleepable = section.split('/').next().is_some_and(|kind| kind.ends_with(".s"))
                || program.prog_type() as u32 == BPF_PROG_TYPE_SYSCALL
                || program.flags() & BPF_F_SLEEPABLE != 0;
            // One that was left out of the load has no descriptor.
            let is_loaded = program.as_fd().as_raw_fd() >= 0;
            if !is_loaded || !sys::program_maps(program.as_fd()).map_err(fail)?.contains(&own) {
                continue;
            }
            let why = match deferred::deferring(program.insns())? {
                _ if is_sleepable => "is sleepable".into(),
                Some(function) => format!("calls {function}, whose callback may sleep,"),
                None => continue,
            };
            return Err(Error::Argument(format!(
                "program `{}` ({section}) {why} and looks tables up; grace periods do not wait for it: expected \
                 programs that cannot sleep",
                program.name().to_string_lossy()
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn more_words_than_an_address_space_has() {
        let bytes = PAGE as usize;
        // SAFETY: the kernel chooses a free address.
        let at = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let mapping = Mapping { at: NonNull::new(at.unwrap().cast()).unwrap(), bytes };
        assert_eq!([0, 1, 512].map(|count| mapping.words64(count).len()), [0, 1, 512]);
        // Of the last four, eight times as many wrap to 0, 8, 4096 and nearly all.
        const WRAPS: usize = usize::MAX / 8 + 1;
        for count in [513, 1 << 28, WRAPS, WRAPS + 1, WRAPS + 512, usize::MAX] {
            let refused = catch_unwind(AssertUnwindSafe(|| mapping.words64(count).len())).unwrap_err();
            let said = refused.downcast_ref::<String>().unwrap();
            assert!(said.contains("words in a mapping of 4096 bytes"), "{count}: {said}");
        }
    }
}
