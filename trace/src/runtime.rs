//! Runtimes whose threads take turns with messages: what a thread of theirs sends need not be what it has received.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use object::read::ReadCache;
use object::read::elf::{FileHeader, SectionHeader};

/// The runtime that moves messages between a process's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Goroutines.
    Go,
    /// Tasks of tokio.
    Tokio,
    /// Processes of Erlang's virtual machine.
    Erlang,
    /// The program could not be read in time.
    Unknown,
}

/// A section that programs of Go have, even stripped ones.
pub(crate) const GO_SECTION: &str = ".go.buildinfo";
/// Names of threads, as far as the kernel keeps them: tokio's of each release.
const TOKIO_THREADS: [&str; 2] = ["tokio-runtime-w", "tokio-rt-worker"];
/// A constant of programs with tokio: the place in tokio's source of a panic, behind the folder of that source.
const RUNTIME_SOURCE: &[u8] = b"/src/runtime/";
const TOKIO: &[u8] = b"tokio";
/// Bytes of such a path that are looked at, and bytes of a program that are read at once.
const PATH_MAX: usize = 128;
const READ_AT_ONCE: u64 = 1 << 20;
/// A program that takes longer to read has an unknown runtime.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Erlang's virtual machine, of each flavour (`beam.smp`, `beam.debug.smp`).
const ERLANG: &str = "beam";

impl Runtime {
    /// All of them.
    pub const ALL: [Runtime; 4] = [Runtime::Go, Runtime::Tokio, Runtime::Erlang, Runtime::Unknown];

    /// The name in outputs.
    pub fn name(self) -> &'static str {
        ["go", "tokio", "erlang", "unknown"][self as usize]
    }

    /// The runtime of a process, by its program and its threads; `None`: none that is known, or the process is gone.
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
        Runtime::of_program(File::open(folder.join("exe")).ok()?)
    }

    /// That of a program.
    fn of_program(program: File) -> Option<Runtime> {
        let file = ReadCache::new(program);
        let constants = {
            let elf = object::elf::FileHeader64::<object::Endianness>::parse(&file).ok()?;
            let endian = elf.endian().ok()?;
            let sections = elf.sections(endian, &file).ok()?;
            if sections.section_by_name(endian, GO_SECTION.as_bytes()).is_some() {
                return Some(Runtime::Go);
            }
            let (_, constants) = sections.section_by_name(endian, b".rodata")?;
            constants.file_range(endian)?
        };
        has_source(file.into_inner(), constants).then_some(Runtime::Tokio)
    }
}

fn has_thread(process: &Path, names: &[&str]) -> bool {
    let tasks = process.join("task").read_dir().into_iter().flatten().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|name| {
        let name = name.trim_end();
        names.iter().any(|known| name.starts_with(known))
    })
}

/// Whether tokio's source is named in that part of the file.
fn has_source(mut file: File, (begin, length): (u64, u64)) -> bool {
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(begin)).is_err() {
        return false;
    }
    let mut file = file.take(length);
    loop {
        // A path that lies across the end of what was read before is looked at again.
        let kept = bytes.len().min(PATH_MAX);
        bytes.drain(..bytes.len() - kept);
        match (&mut file).take(READ_AT_ONCE).read_to_end(&mut bytes) {
            Ok(1..) if is_named(&bytes) => return true,
            Ok(1..) => {}
            Ok(0) | Err(_) => return false,
        }
    }
}

/// Whether there is a path of tokio's source: from a registry (`tokio-1.38.0/`), or from a copy (`tokio/`).
fn is_named(constants: &[u8]) -> bool {
    memchr::memmem::find_iter(constants, RUNTIME_SOURCE).any(|at| {
        let folder = &constants[at.saturating_sub(PATH_MAX)..at];
        let folder = folder.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let behind = &constants[at + RUNTIME_SOURCE.len()..];
        let file = behind.iter().take_while(|byte| byte.is_ascii_lowercase() || b"_/".contains(byte)).count();
        let is_version = |rest: &[u8]| rest.first().is_some_and(u8::is_ascii_digit);
        // Constants that lie side by side, as these here, make up a path without a file's name.
        file > 0
            && behind[file..].starts_with(b".rs")
            && (folder.ends_with(TOKIO) || folder.strip_prefix(b"tokio-").is_some_and(is_version))
    })
}

/// Runtimes of processes. A thread of its own reads the programs: that may take as long as the disk does, and records come meanwhile.
#[derive(Debug)]
pub(crate) struct Runtimes {
    known: HashMap<u32, Look>,
    next: u64,
    questions: Sender<(u32, u64)>,
    answers: Receiver<(u32, u64, Option<Runtime>)>,
    waits_since: Option<Instant>,
}

/// The state of the search in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// Its program is being read, for the question of this number.
    Asked(u64),
    Found(Option<Runtime>),
    /// It has been passed on.
    Passed,
}

impl Default for Runtimes {
    fn default() -> Self {
        let (questions, asked) = channel();
        let (answer, answers) = channel();
        let look = move || {
            for (process, number) in asked {
                if answer.send((process, number, Runtime::of(process))).is_err() {
                    return;
                }
            }
        };
        // Without a thread there are no answers, and no runtime is known.
        let _ = Builder::new().name("trace-runtimes".into()).spawn(look);
        Runtimes { known: HashMap::new(), next: 0, questions, answers, waits_since: None }
    }
}

impl Runtimes {
    /// Whether the runtime of a process is known by now. `wait`: it is in any case.
    pub(crate) fn is_known(&mut self, process: u32, wait: bool) -> bool {
        let Runtimes { known, next, questions, .. } = self;
        let look = known.entry(process).or_insert_with(|| {
            *next += 1;
            let _ = questions.send((process, *next));
            Look::Asked(*next)
        });
        if !matches!(look, Look::Asked(_)) {
            return true;
        }
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        loop {
            self.answers.try_iter().for_each(|(of, number, runtime)| {
                if let Some(look) = self.known.get_mut(&of).filter(|look| **look == Look::Asked(number)) {
                    *look = Look::Found(runtime);
                }
            });
            let look = self.known.entry(process).or_insert(Look::Found(None));
            if matches!(look, Look::Asked(_)) && since.elapsed() > LOOK_MAX {
                *look = Look::Found(Some(Runtime::Unknown));
            }
            if !matches!(look, Look::Asked(_)) {
                self.waits_since = None;
                return true;
            }
            if !wait {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// That of a process, if it was found and not passed on.
    pub(crate) fn new_one(&mut self, process: u32) -> Option<Option<Runtime>> {
        let look = self.known.get_mut(&process)?;
        let Look::Found(runtime) = *look else { return None };
        *look = Look::Passed;
        Some(runtime)
    }

    /// The process has ended, so its number may become another's; or it has begun another program.
    pub(crate) fn forget(&mut self, process: u32) {
        self.known.remove(&process);
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
        let program = |path: &str| Runtime::of_program(File::open(path).unwrap());
        assert_eq!([program("/bin/sh"), program("/etc/passwd")], [None, None]);
    }

    #[test]
    fn tokio_is_known_by_where_it_panics() {
        // Put together here, as this program is not to be taken for one.
        let path = |before: &str, folder: &str| format!("{before}/{folder}/src/runtime/scheduler/mod.rs");
        for [before, folder] in [
            ["/registry/src/index", "tokio-1.38.0"],
            ["/registry", "tokio-2.0.0-alpha"],
            ["vendor", "tokio"],
            ["/checkouts/tokio-0123/4567", "tokio"],
        ] {
            assert!(is_named(path(before, folder).as_bytes()), "{before} {folder}");
        }
        for [before, folder] in [["", "tokio-uring"], ["", "other"], ["tokio-1.38.0", "other"]] {
            assert!(!is_named(path(before, folder).as_bytes()), "{before} {folder}");
        }
        assert!(!is_named(path("", "tokio").replace(".rs", ".txt").as_bytes()));
        assert!(!is_named(path("", "tokio").replace("scheduler/mod", "").as_bytes()), "no file");
        let traits = path("", "tokio-1.38.0").replace("runtime", "io");
        assert!(!is_named(traits.as_bytes()), "its traits alone move nothing");
    }

    #[test]
    fn paths_are_found_wherever_they_lie() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("constants");
        for at in [0, READ_AT_ONCE as usize - 20, READ_AT_ONCE as usize, 3 * READ_AT_ONCE as usize + 5] {
            let mut bytes = vec![b'x'; at];
            bytes.extend(["/", "tokio", "/src/run", "time/task.rs"].concat().as_bytes());
            let length = bytes.len() as u64;
            bytes.extend([b'x'; 1000]);
            std::fs::write(&path, &bytes).unwrap();
            let has = |length| has_source(File::open(&path).unwrap(), (0, length));
            assert!(has(length) && !has(length - 1), "{at}");
        }
    }
}
