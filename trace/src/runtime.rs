//! Runtimes whose threads take turns with messages: what a thread of theirs sends need not be what it has received.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use object::read::elf::{FileHeader, SectionHeader};

/// What moves messages between a process's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Goroutines.
    Go,
    /// Tasks of tokio.
    Tokio,
    /// Processes of Erlang's virtual machine.
    Erlang,
}

/// What programs of Go have, even stripped ones.
pub(crate) const GO_SECTION: &str = ".go.buildinfo";
/// Names of threads, as far as the kernel keeps them: tokio's of each release.
const TOKIO_THREADS: [&str; 2] = ["tokio-runtime-w", "tokio-rt-worker"];
/// What a program with tokio has among its constants: where in tokio's source a panic was.
const TOKIO_SOURCE: (&[u8], &[u8]) = (b"/tokio-1.", b"/src/runtime/");
/// Erlang's virtual machine, of each flavour (`beam.smp`, `beam.debug.smp`).
const ERLANG: &str = "beam";

impl Runtime {
    /// All of them.
    pub const ALL: [Runtime; 3] = [Runtime::Go, Runtime::Tokio, Runtime::Erlang];

    /// The name in outputs.
    pub fn name(self) -> &'static str {
        ["go", "tokio", "erlang"][self as usize]
    }

    /// That of a process, by its program and its threads; `None`: none that is known, or the process is gone.
    pub fn of(process: u32) -> Option<Runtime> {
        let folder = PathBuf::from("/proc").join(process.to_string());
        let name = folder.join("exe").read_link().unwrap_or_default();
        let name = name.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == ERLANG || name.starts_with("beam.") {
            return Some(Runtime::Erlang);
        }
        if has_thread(&folder, &TOKIO_THREADS) {
            return Some(Runtime::Tokio);
        }
        let mut program = Vec::new();
        File::open(folder.join("exe")).and_then(|mut file| file.read_to_end(&mut program)).ok()?;
        Runtime::of_program(&program)
    }

    /// That of a program, by its bytes.
    fn of_program(program: &[u8]) -> Option<Runtime> {
        let elf = object::elf::FileHeader64::<object::Endianness>::parse(program).ok()?;
        let endian = elf.endian().ok()?;
        let sections = elf.sections(endian, program).ok()?;
        if sections.section_by_name(endian, GO_SECTION.as_bytes()).is_some() {
            return Some(Runtime::Go);
        }
        let constants = sections
            .section_by_name(endian, b".rodata")
            .and_then(|(_, section)| section.data(endian, program).ok())
            .unwrap_or_default();
        has_source(constants, TOKIO_SOURCE).then_some(Runtime::Tokio)
    }
}

fn has_thread(process: &Path, names: &[&str]) -> bool {
    let tasks = process.join("task").read_dir().into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|name| {
        let name = name.trim_end();
        names.iter().any(|known| name.starts_with(known))
    })
}

/// Whether there is a path with both words in it, and a version's number between them.
fn has_source(constants: &[u8], (first, second): (&[u8], &[u8])) -> bool {
    memchr::memmem::find_iter(constants, first).any(|at| {
        let behind = &constants[at + first.len()..];
        let version = behind.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        version > 0 && behind[version..].starts_with(second)
    })
}

/// Processes that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Runtimes(HashSet<u32>);

impl Runtimes {
    /// The runtime of a process that was not seen before; `None`: it was.
    pub(crate) fn look(&mut self, process: u32) -> Option<Option<Runtime>> {
        self.0.insert(process).then(|| Runtime::of(process))
    }

    /// The process has ended: its number may become another's.
    pub(crate) fn forget(&mut self, process: u32) {
        self.0.remove(&process);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_this_machine() {
        // Neither the test itself nor a shell has any.
        assert_eq!(Runtime::of(std::process::id()), None);
        assert_eq!(Runtime::of(u32::MAX), None);
        let shell = std::fs::read("/bin/sh").unwrap();
        assert_eq!(Runtime::of_program(&shell), None);
        assert_eq!(Runtime::of_program(b"#!/bin/sh"), None);
    }

    #[test]
    fn tokio_is_known_by_where_it_panics() {
        let has = |text: &[u8]| has_source(text, TOKIO_SOURCE);
        // Put together here, as this program is not to be taken for one.
        let path = |version: &str, file: &str| format!("/registry/tokio-{version}{file}");
        assert!(has(path("1.38.0", "/src/runtime/scheduler/mod.rs").as_bytes()));
        assert!(!has(path("1.38.0", "/src/io/mod.rs").as_bytes()), "its traits alone move nothing");
        assert!(!has(path("1.", "/src/runtime/").as_bytes()), "these constants themselves");
    }
}
