//! Points B and C in functions of the processes themselves, by uprobes: which functions, where those lie, and attaching to them.
//!
//! Where the bytes at a socket say nothing (TLS) the functions that move them in the clear do. A broker's own queue lies between two
//! functions of its own.

mod elf;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::{Link, ProgramMut, UprobeOpts};

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::record::Point;

/// The programs.
pub(crate) const RECEIVED: &str = "function_received";
pub(crate) const SENT: &str = "function_sent";

/// The kernel's mark behind the name of a mapped file once the name is another file's.
const DELETED: &str = " (deleted)";

/// A point in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// [`Point::Received`] or [`Point::Sent`].
    pub point: Point,
    /// An absolute path, or the name of a file that the process has mapped.
    pub file: PathBuf,
    /// The place in the file.
    pub place: ProbeAt,
}

/// A place in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeAt {
    /// In a function.
    Function {
        /// As the file's symbols have it.
        name: String,
        /// Bytes behind its first; an instruction must begin there.
        offset: u64,
        /// Where it returns, with its value as the bytes moved; a value of 0 or less means no message.
        is_return: bool,
    },
    /// A static probe (USDT), at all of its places.
    Static {
        /// Whose.
        provider: String,
        /// Which.
        name: String,
    },
}

impl Probe {
    /// From `POINT=FILE:FUNCTION[+OFFSET][%return]`.
    pub fn function(text: &str) -> std::result::Result<Probe, String> {
        let wrong = || {
            format!(
                "`{text}`: expected POINT=FILE:FUNCTION, FUNCTION+OFFSET or FUNCTION%return with POINT received or sent, as in \
                 received=libssl.so.3:SSL_read%return"
            )
        };
        let (point, rest) = point(text).ok_or_else(wrong)?;
        let (file, function) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let (function, is_return) = match function.strip_suffix("%return") {
            Some(function) => (function, true),
            None => (function, false),
        };
        let (name, offset) = match function.split_once('+') {
            Some((name, offset)) if !is_return => (name, number(offset).ok_or_else(wrong)?),
            Some(_) => return Err(wrong()),
            None => (function, 0),
        };
        if file.is_empty() || name.is_empty() || name.contains('%') {
            return Err(wrong());
        }
        Ok(Probe {
            point,
            file: file.into(),
            place: ProbeAt::Function { name: name.into(), offset, is_return },
        })
    }

    /// From `POINT=FILE:PROVIDER:NAME`.
    pub fn usdt(text: &str) -> std::result::Result<Probe, String> {
        let parts = || {
            let (point, rest) = point(text)?;
            let (rest, name) = rest.rsplit_once(':')?;
            let (file, provider) = rest.rsplit_once(':')?;
            let is_whole = ![file, provider, name].contains(&"");
            let place = ProbeAt::Static { provider: provider.into(), name: name.into() };
            is_whole.then(|| Probe { point, file: file.into(), place })
        };
        parts().ok_or_else(|| {
            format!(
                "`{text}`: expected POINT=FILE:PROVIDER:NAME with POINT received or sent, as in \
                 sent=/usr/sbin/broker:broker:message_sent"
            )
        })
    }

    /// Refuses what leaves a point open.
    pub(crate) fn check(probes: &[Probe]) -> Result<()> {
        let has = |point| probes.iter().any(|probe| probe.point == point);
        if probes.iter().any(|probe| !matches!(probe.point, Point::Received | Point::Sent)) {
            return Err(Error::Argument("invalid point of a function: expected received or sent".into()));
        }
        for (point, other) in [(Point::Received, Point::Sent), (Point::Sent, Point::Received)] {
            if !has(point) {
                let (point, other) = (point.name(), other.name());
                return Err(Error::Argument(format!(
                    "no function in which a message is {point}: expected {point}=FILE:… and {other}"
                )));
            }
        }
        Ok(())
    }

    /// Its places for one process, or for all (`None`).
    fn find(&self, process: Option<u32>, must_be_mapped: bool) -> Result<Vec<Site>> {
        let path = self.path(process, must_be_mapped)?;
        let offsets = match &self.place {
            ProbeAt::Function { name, offset, is_return } => {
                elf::function(&path, name, *offset, *is_return).map(|at| vec![at])
            }
            ProbeAt::Static { provider, name } => elf::statics(&path, provider, name),
        };
        let offsets = offsets.map_err(|error| self.wrong(&error))?;
        let is_return = matches!(self.place, ProbeAt::Function { is_return: true, .. });
        let site = |offset| Site { point: self.point, process: None, path: path.clone(), offset, is_return };
        Ok(offsets.into_iter().map(site).collect())
    }

    /// The file's path here, also if the process is in a container or the file's name is another's by now.
    fn path(&self, process: Option<u32>, must_be_mapped: bool) -> Result<PathBuf> {
        let Some(process) = process else {
            if !self.file.is_absolute() {
                return Err(self.wrong("expected an absolute path; a name is looked up with one process"));
            }
            return Ok(self.file.clone());
        };
        let root = Path::new("/proc").join(process.to_string());
        if let Ok(below) = self.file.strip_prefix("/") {
            let path = root.join("root").join(below);
            let wanted = fs::metadata(&path).map_err(|error| self.wrong(&error.to_string()))?;
            if !must_be_mapped {
                return Ok(path);
            }
            let is_it = |link: &Path, _: &OsStr| {
                fs::metadata(link).is_ok_and(|it| (it.dev(), it.ino()) == (wanted.dev(), wanted.ino()))
            };
            if let Some((link, _)) = mapped(&root, is_it)? {
                return Ok(link);
            }
        } else if self.file.components().count() != 1 {
            return Err(
                self.wrong("expected an absolute path, or the name of a file that the process has mapped")
            );
        }
        let called = self.file.file_name().unwrap_or_default();
        let other = mapped(&root, |_, name| name == called)?;
        match other {
            Some((link, _)) if !self.file.is_absolute() => Ok(link),
            Some((_, target)) => {
                Err(self.wrong(&format!("process {process} has not mapped it, but {}", target.display())))
            }
            None => Err(self.wrong(&format!("process {process} has mapped no such file"))),
        }
    }

    fn wrong(&self, why: &str) -> Error {
        Error::Argument(format!("{}: {why}", self.file.display()))
    }
}

fn point(text: &str) -> Option<(Point, &str)> {
    let (point, rest) = text.split_once('=')?;
    [Point::Received, Point::Sent].into_iter().find(|known| known.name() == point).map(|point| (point, rest))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The first file that a process has mapped and that is wanted: as the kernel has it open, and its name. `is_it` gets the same path, and
/// the last part of the name.
fn mapped(process: &Path, is_it: impl Fn(&Path, &OsStr) -> bool) -> Result<Option<(PathBuf, PathBuf)>> {
    let folder = process.join("map_files");
    let unread = |source| Error::File { path: folder.clone(), source };
    for entry in fs::read_dir(&folder).map_err(unread)? {
        let link = entry.map_err(unread)?.path();
        // A mapping that went away meanwhile is none.
        let Ok(target) = fs::read_link(&link) else { continue };
        let name = target.file_name().unwrap_or_default();
        let name = name.to_str().and_then(|name| name.strip_suffix(DELETED)).map_or(name, OsStr::new);
        if is_it(&link, name) {
            return Ok(Some((link, target)));
        }
    }
    Ok(None)
}

/// Where a program is attached.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    point: Point,
    /// Only in this one; `None`: in all that map the file.
    process: Option<u32>,
    path: PathBuf,
    offset: elf::Offset,
    is_return: bool,
}

/// All places of a trace's probes. Processes that are named pay alone; with their descendants, as others are traced by, all pay that map the
/// file.
pub(crate) fn find(probes: &[Probe], filter: &Filter) -> Result<Vec<Site>> {
    let mut sites = Vec::new();
    for probe in probes {
        match filter.processes[..] {
            [] => sites.extend(probe.find(None, false)?),
            [first, ..] if filter.descendants => sites.extend(probe.find(Some(first), false)?),
            _ => {
                for &process in &filter.processes {
                    let own = probe.find(Some(process), true)?;
                    sites.extend(own.into_iter().map(|site| Site { process: Some(process), ..site }));
                }
            }
        }
    }
    Ok(sites)
}

/// Attaches a program to its places; the links end it.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    sites: &[Site],
    links: &mut Vec<Link>,
) -> std::result::Result<(), libbpf_rs::Error> {
    let point = if program.name() == RECEIVED { Point::Received } else { Point::Sent };
    for site in sites.iter().filter(|site| site.point == point) {
        let options = UprobeOpts {
            ref_ctr_offset: site.offset.semaphore as usize,
            cookie: u64::from(site.is_return),
            retprobe: site.is_return,
            ..UprobeOpts::default()
        };
        let process = site.process.map_or(-1, |process| process as i32);
        links.push(program.attach_uprobe_with_opts(
            process,
            &site.path,
            site.offset.code as usize,
            options,
        )?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_a_point_a_file_and_a_name() {
        let at =
            |text: &str| Probe::function(text).map(|probe| (probe.point, probe.file, probe.place)).unwrap();
        let place =
            |name: &str, offset, is_return| ProbeAt::Function { name: name.into(), offset, is_return };
        assert_eq!(
            at("received=libssl.so.3:SSL_read%return"),
            (Point::Received, "libssl.so.3".into(), place("SSL_read", 0, true))
        );
        assert_eq!(at("sent=/a:b:c+0x1f"), (Point::Sent, "/a:b".into(), place("c", 31, false)));
        let bad = ["", "sent", "sent=/a", "sent=:f", "sent=/a:", "queued=/a:f", "sent=/a:f+", "sent=/a:f+-1"];
        for bad in bad.into_iter().chain(["sent=/a:f+4%return", "sent=/a:f%entry", "sent=/a:%return", "/a:f"])
        {
            assert!(Probe::function(bad).unwrap_err().contains("FUNCTION%return"), "{bad}");
        }
        let usdt = Probe::usdt("sent=/b:relay:out").unwrap();
        assert_eq!(usdt.place, ProbeAt::Static { provider: "relay".into(), name: "out".into() });
        for bad in ["sent=/b:out", "sent=/b::out", "sent=/b:relay:", "sent=:relay:out", "in=/b:relay:out"] {
            assert!(Probe::usdt(bad).unwrap_err().contains("PROVIDER:NAME"), "{bad}");
        }
    }

    #[test]
    fn both_points_are_wanted() {
        let probe = |text| Probe::function(text).unwrap();
        let says = |probes: &[Probe]| Probe::check(probes).unwrap_err().to_string();
        assert!(says(&[probe("sent=/a:f")]).contains("expected received="));
        assert!(says(&[probe("received=/a:f")]).contains("expected sent="));
        Probe::check(&[probe("sent=/a:f"), probe("received=/a:f"), probe("sent=/a:g")]).unwrap();
    }
}
