//! Where functions and static probes lie in an ELF file: offsets in the file, as uprobes want them.

use std::fs::File;
use std::path::Path;

use object::elf::STT_FUNC;
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, ReadCache, SymbolFlags};

use crate::runtime::GO_SECTION;

/// A static probe's note: `NT_STAPSDT`, of the name `stapsdt` (SystemTap, "UserSpaceProbeImplementation").
const NOTES: &str = ".note.stapsdt";
const NOTE_NAME: &[u8] = b"stapsdt\0";
const NOTE_TYPE: u32 = 3;
/// Where its addresses were counted from; a file that was prelinked has moved since.
const BASE: &str = ".stapsdt.base";
/// Names shown in an error.
const NAMES_SHOWN: usize = 3;

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offset {
    /// Of the instruction.
    pub(super) code: u64,
    /// Offset of the two bytes that the kernel adds one to while a probe listens; 0: none.
    pub(super) semaphore: u64,
}

/// A file, as far as it is read.
type Elf<'a> = object::File<'a, &'a ReadCache<File>>;

/// Opens a file and looks in it. Errors are in words and lack the file's name.
fn within<T>(path: &Path, look: impl FnOnce(&Elf<'_>) -> Result<T, String>) -> Result<T, String> {
    let text = |error: std::io::Error| error.to_string();
    if !path.metadata().map_err(text)?.is_file() {
        return Err("expected a file".into());
    }
    let cache = ReadCache::new(File::open(path).map_err(text)?);
    let elf = Elf::parse(&cache).map_err(|error| format!("not an ELF file ({error})"))?;
    if !elf.is_64() || !elf.is_little_endian() {
        return Err("expected an ELF file of 64 bits".into());
    }
    look(&elf)
}

/// Where an address of the running program lies in the file.
fn in_file(elf: &Elf<'_>, address: u64) -> Option<u64> {
    elf.segments().find_map(|segment| {
        let (at, bytes) = segment.file_range();
        let inside = address.checked_sub(segment.address()).filter(|inside| *inside < bytes)?;
        Some(at + inside)
    })
}

/// The place so many bytes into a function, or where it returns.
pub(super) fn function(path: &Path, name: &str, inside: u64, is_return: bool) -> Result<Offset, String> {
    within(path, |elf| {
        if is_return && elf.section_by_name(GO_SECTION).is_some() {
            return Err(
                "%return: a program of Go moves its stacks, and a return that is watched would crash it"
                    .into(),
            );
        }
        let symbols = || elf.symbols().chain(elf.dynamic_symbols());
        let is_function =
            |flags| matches!(flags, SymbolFlags::Elf { st_info, .. } if st_info.st_type() == STT_FUNC);
        let functions = || symbols().filter(|symbol| symbol.is_definition() && is_function(symbol.flags()));
        let mut found: Vec<(u64, u64)> = functions()
            .filter(|symbol| symbol.name() == Ok(name))
            .map(|symbol| (symbol.address(), symbol.size()))
            .collect();
        found.sort_unstable();
        found.dedup();
        match found[..] {
            [(_, bytes)] if bytes > 0 && inside >= bytes => {
                Err(format!("+{inside}: the function {name} has {bytes} bytes"))
            }
            [(address, _)] => {
                let code = address
                    .checked_add(inside)
                    .and_then(|address| in_file(elf, address))
                    .ok_or("its code is not in the file")?;
                Ok(Offset { code, semaphore: 0 })
            }
            [] => {
                let stripped = if elf.symbols().next().is_none() {
                    " (it is stripped: only the functions that it exports are known)"
                } else {
                    ""
                };
                let names = functions().filter_map(|symbol| symbol.name().ok());
                Err(format!("no function `{name}`{stripped}{}", nearest(name, names)))
            }
            _ => Err(format!("{} functions have the name {name}", found.len())),
        }
    })
}

/// All places of a static probe.
pub(super) fn statics(path: &Path, provider: &str, name: &str) -> Result<Vec<Offset>, String> {
    within(path, |elf| {
        let section = elf.section_by_name(NOTES).ok_or("it has no static probes")?;
        let notes = section.data().map_err(|error| error.to_string())?;
        let moved_to = elf.section_by_name(BASE).map(|section| section.address());
        let mut known = Vec::new();
        let mut found = Vec::new();
        for note in Notes(notes) {
            let note = note.ok_or_else(|| format!("its section {NOTES} is damaged"))?;
            let full = format!("{}:{}", note.provider, note.name);
            if (note.provider, note.name) == (provider, name) {
                let moved = |address: u64| match moved_to {
                    Some(base) => address.wrapping_add(base).wrapping_sub(note.base),
                    None => address,
                };
                let offset = |address: u64| {
                    in_file(elf, moved(address)).ok_or_else(|| format!("{full} is not in the file"))
                };
                let semaphore = if note.semaphore == 0 { 0 } else { offset(note.semaphore)? };
                found.push(Offset { code: offset(note.code)?, semaphore });
            }
            known.push(full);
        }
        if found.is_empty() {
            let wanted = format!("{provider}:{name}");
            let names = nearest(&wanted, known.iter().map(String::as_str));
            return Err(format!("no static probe `{wanted}`{names}"));
        }
        Ok(found)
    })
}

/// A static probe.
struct Note<'a> {
    code: u64,
    base: u64,
    semaphore: u64,
    provider: &'a str,
    name: &'a str,
}

/// The notes of a section, those of other kinds passed over; `None` ends it: it is damaged.
struct Notes<'a>(&'a [u8]);

impl<'a> Iterator for Notes<'a> {
    type Item = Option<Note<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            match self.note() {
                Some(None) => {}
                Some(note) => return Some(note),
                None => {
                    self.0 = &[];
                    return Some(None);
                }
            }
        }
        None
    }
}

impl<'a> Notes<'a> {
    /// The next note, `Some(None)` for one of another kind.
    fn note(&mut self) -> Option<Option<Note<'a>>> {
        let [names, values, kind] = [self.word()?, self.word()?, self.word()?];
        let name = self.take(names)?;
        let mut value = Notes(self.take(values)?);
        if name != NOTE_NAME || kind != NOTE_TYPE {
            return Some(None);
        }
        let [code, base, semaphore] = [value.address()?, value.address()?, value.address()?];
        let [provider, name] = [value.text()?, value.text()?];
        Some(Some(Note { code, base, semaphore, provider, name }))
    }

    fn split<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn word(&mut self) -> Option<u32> {
        self.split().map(u32::from_le_bytes)
    }

    fn address(&mut self) -> Option<u64> {
        self.split().map(u64::from_le_bytes)
    }

    /// So many bytes, and those up to the next multiple of four, which a section's last note may lack.
    fn take(&mut self, bytes: u32) -> Option<&'a [u8]> {
        let (taken, _) = self.0.split_at_checked(bytes as usize)?;
        self.0 = self.0.get(taken.len().next_multiple_of(4)..).unwrap_or_default();
        Some(taken)
    }

    /// Up to the next zero.
    fn text(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(&self.0[..end]).ok()?;
        self.0 = &self.0[end + 1..];
        Some(text)
    }
}

/// The names nearest to one that nothing has: those that contain it first.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    let far = |name: &str| (!name.contains(wanted), strsim::damerau_levenshtein(wanted, name));
    let mut names: Vec<_> = names.map(|name| (far(name), name)).collect();
    names.sort_unstable();
    names.dedup();
    names.truncate(NAMES_SHOWN);
    if names.is_empty() {
        return String::new();
    }
    format!("; nearest: {}", names.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, value: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [owner.len() as u32, value.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        for part in [owner, value] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    fn value(texts: &[u8]) -> Vec<u8> {
        [&[1u64, 2, 3].map(u64::to_le_bytes).concat()[..], texts].concat()
    }

    #[test]
    fn notes_of_other_kinds_are_skipped_and_damaged_ones_reported() {
        let probe = note(NOTE_NAME, NOTE_TYPE, &value(b"relay\0sent\0-4@%eax\0"));
        let section = [note(b"GNU\0", 3, b"12345"), note(NOTE_NAME, 2, b""), probe.clone()].concat();
        let found: Vec<_> = Notes(&section).map(|note| note.map(|n| (n.provider, n.name, n.code))).collect();
        assert_eq!(found, [Some(("relay", "sent", 1))]);
        let unterminated = note(NOTE_NAME, NOTE_TYPE, &value(b"relay\0sent"));
        for damaged in [&probe[..probe.len() - 4], &probe[..11], &unterminated, &[7; 40]] {
            let mut notes = Notes(damaged);
            assert!(notes.next().is_some_and(|note| note.is_none()) && notes.next().is_none(), "{damaged:?}");
        }
    }
}
