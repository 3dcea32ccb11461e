//! The tables that others have: a `BPF_MAP_TYPE_LPM_TRIE`, opened by its pin or its number and read as a whole.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use crate::error::{Error, Result};
use crate::key::KeyType;
use crate::sys::{self, MapShape};
use crate::value::ValueType;

const LPM_TRIE: u32 = 11;
/// The length before the key's bytes: `struct bpf_lpm_trie_key`.
const LENGTH: usize = 4;
const BATCH: u32 = 4096;
/// Readings, until two say the same.
const READINGS: usize = 3;
/// The kernel's own errno for what a type of map lacks.
const ENOTSUPP: i32 = 524;

/// An existing LPM trie.
pub struct LpmTrie {
    fd: OwnedFd,
    shape: MapShape,
    name: String,
    keys: Option<KeyType>,
    values: ValueType,
}

impl fmt::Debug for LpmTrie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LpmTrie")
            .field("name", &self.name)
            .field("shape", &self.shape)
            .finish_non_exhaustive()
    }
}

/// The entries of a trie, in the kernel's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    key: usize,
    value: usize,
    keys: Vec<u8>,
    values: Vec<u8>,
}

impl Entries {
    /// Prefix length in bits, key bytes in network order (those behind the length say nothing), and value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u32, &[u8], &[u8])> {
        self.keys.chunks_exact(self.key).zip(self.values.chunks_exact(self.value)).map(|(key, value)| {
            let (length, key) = key.split_at(LENGTH);
            (u32::from_ne_bytes(length.first_chunk().copied().unwrap_or_default()), key, value)
        })
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.keys.len() / self.key
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

/// A reading of a trie.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The entries.
    pub entries: Entries,
    /// Set if it never held still: how many entries the reading before had.
    pub changing: Option<usize>,
}

impl LpmTrie {
    /// The trie pinned at `path`.
    pub fn pinned(path: &Path) -> Result<Self> {
        let refuse =
            |what: String| Error::Argument(format!("{}: {what}; expected a pinned LPM trie", path.display()));
        match std::fs::metadata(path) {
            Err(error) => return Err(Error::kernel(path.display().to_string(), error)),
            Ok(there) if there.is_dir() => return Err(refuse("a directory".into())),
            Ok(_) if !crate::pins::is_bpffs(path) => {
                return Err(refuse("the file is not a pin (not in bpffs)".into()));
            }
            Ok(_) => {}
        }
        let fail = |error| Error::kernel(format!("cannot open the pin {}", path.display()), error);
        let fd = sys::get(path).map_err(fail)?.ok_or_else(|| fail(io::ErrorKind::NotFound.into()))?;
        // Other pinned objects open as well.
        let object = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).map_err(fail)?;
        match object.to_string_lossy().rsplit(':').next() {
            Some("bpf-map") => Self::of(fd, &path.display().to_string()),
            kind => Err(refuse(format!("a pinned {}", kind.unwrap_or("object").replace('_', " ")))),
        }
    }

    /// The trie of this number, as `bpftool map` shows it.
    pub fn by_id(id: u32) -> Result<Self> {
        let fail = |error| Error::kernel(format!("cannot open the BPF map {id}"), error);
        let fd = sys::map_by_id(id).map_err(fail)?;
        let fd = fd.ok_or_else(|| {
            Error::Argument(format!("no BPF map has the id {id}; `bpftool map` lists them"))
        })?;
        Self::of(fd, &format!("BPF map {id}"))
    }

    fn of(fd: OwnedFd, what: &str) -> Result<Self> {
        let fail = |error| Error::kernel(format!("cannot read the shape of {what}"), error);
        let shape = sys::map_shape(fd.as_fd()).map_err(fail)?;
        if shape.kind != LPM_TRIE {
            return Err(Error::Argument(format!(
                "{what}: a map of type {}; expected lpm_trie",
                sys::map_kind(shape.kind)
            )));
        }
        let names = sys::map_names(fd.as_fd()).map_err(fail)?;
        let keys = KeyType::of(names.btf, names.key, shape.key as usize);
        Ok(Self { values: ValueType::of(names.btf, names.value), keys, fd, shape, name: names.name })
    }

    /// Width of its keys, bits.
    pub fn key_bits(&self) -> u32 {
        8 * (self.shape.key - LENGTH as u32)
    }

    /// The map's name; may be empty.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parts of its keys; `None` if the map's BTF does not name them.
    pub fn keys(&self) -> Option<&KeyType> {
        self.keys.as_ref()
    }

    /// The type of its values.
    pub fn values(&self) -> &ValueType {
        &self.values
    }

    /// Reads it until two readings in a row are the same, at most three times. A program or a process may change it meanwhile: then
    /// [`Reading::changing`] is set. The entries are then the last reading, which perhaps never stood there at one moment. O(entries).
    pub fn read(&self) -> Result<Reading> {
        let mut last = self.once()?;
        for _ in 1..READINGS {
            let next = self.once()?;
            if next == last {
                return Ok(Reading { entries: next, changing: None });
            }
            last = next;
        }
        let before = last.len();
        let entries = self.once()?;
        let changing = (entries != last).then_some(before);
        Ok(Reading { entries, changing })
    }

    fn once(&self) -> Result<Entries> {
        let fail = |error| Error::kernel(format!("cannot read the entries of map `{}`", self.name), error);
        match self.in_batches() {
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | ENOTSUPP)) =>
            {
                self.one_by_one().map_err(fail)
            }
            entries => entries.map_err(fail),
        }
    }

    fn none(&self) -> Entries {
        let (key, value) = (self.shape.key as usize, self.shape.value as usize);
        Entries { key, value, keys: Vec::new(), values: Vec::new() }
    }

    fn in_batches(&self) -> io::Result<Entries> {
        let mut all = self.none();
        let (mut keys, mut values, mut from) = (Vec::new(), Vec::new(), None);
        loop {
            let (read, next) =
                sys::map_lookup_batch(self.fd.as_fd(), from.as_deref(), BATCH, &mut keys, &mut values)?;
            all.keys.extend_from_slice(&keys[..read * all.key]);
            all.values.extend_from_slice(&values[..read * all.value]);
            if next.is_none() || self.is_too_many(&all) {
                return Ok(all);
            }
            from = next;
        }
    }

    fn one_by_one(&self) -> io::Result<Entries> {
        let mut all = self.none();
        let mut value = vec![0; all.value];
        let mut key = sys::map_next_key(self.fd.as_fd(), None)?;
        while let Some(at) = key {
            // Gone meanwhile: the second reading will tell.
            if sys::map_lookup(self.fd.as_fd(), &at, &mut value)? {
                all.keys.extend_from_slice(&at);
                all.values.extend_from_slice(&value);
            }
            if self.is_too_many(&all) {
                break;
            }
            key = sys::map_next_key(self.fd.as_fd(), Some(&at))?;
        }
        Ok(all)
    }

    /// If the entry that it should go on from is gone, the kernel starts from the first entry again. So a map that loses entries all the time
    /// would never be read to its end.
    fn is_too_many(&self, all: &Entries) -> bool {
        all.keys.len() > 2 * self.shape.entries as usize * all.key
    }
}
