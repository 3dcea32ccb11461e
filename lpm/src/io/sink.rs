//! Where an exporter's bytes go: a file that appears whole or not at all, or standard output.

use flate2::write::GzEncoder;
use std::boxed::Box;
use std::format;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A file being written beside its place, which [`Sink::finish`] moves there; dropped before that, it is gone.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("table.txt.gz");
/// use std::io::Write;
/// use trieline_lpm::io::Sink;
/// let mut sink = Sink::create(&path)?;
/// writeln!(sink, "192.0.2.0/24 7")?;
/// assert!(!path.exists());
/// sink.finish()?;
/// assert!(path.exists());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Sink {
    inner: Inner,
}

#[derive(Debug)]
enum Inner {
    Stdout(BufWriter<io::Stdout>),
    File(Box<Pending>),
    Done,
}

#[derive(Debug)]
struct Pending {
    file: Packed,
    temporary: PathBuf,
    path: PathBuf,
}

#[derive(Debug)]
enum Packed {
    Plain(BufWriter<File>),
    Gzip(GzEncoder<BufWriter<File>>),
}

impl Sink {
    /// Begins to write `path`: `-` is standard output; a name that ends in `.gz` is packed by gzip.
    pub fn create(path: &Path) -> io::Result<Self> {
        Self::open(path, path.extension().is_some_and(|extension| extension == "gz"))
    }

    /// As [`Sink::create`], but never packed: a file that is to be mapped.
    pub fn create_plain(path: &Path) -> io::Result<Self> {
        Self::open(path, false)
    }

    fn open(path: &Path, is_packed: bool) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self { inner: Inner::Stdout(BufWriter::with_capacity(1 << 16, io::stdout())) });
        }
        // A link stays a link: what it names is replaced.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.into());
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "no file name"));
        };
        let is_special = fs::metadata(&path).is_ok_and(|at| !at.is_file() && !at.is_dir());
        let (temporary, file) = if is_special {
            // A device or a pipe cannot be replaced.
            (path.clone(), OpenOptions::new().write(true).open(&path)?)
        } else {
            temporary(&path, &name)?
        };
        let file = BufWriter::with_capacity(1 << 16, file);
        let file = if is_packed {
            Packed::Gzip(GzEncoder::new(file, flate2::Compression::default()))
        } else {
            Packed::Plain(file)
        };
        Ok(Self { inner: Inner::File(Box::new(Pending { file, temporary, path })) })
    }

    /// Writes the rest, waits until the file is on the disk, and puts it in its place.
    pub fn finish(mut self) -> io::Result<()> {
        match std::mem::replace(&mut self.inner, Inner::Done) {
            Inner::Stdout(mut out) => out.flush(),
            Inner::File(pending) => {
                let Pending { file, temporary, path } = *pending;
                let finished = match file {
                    Packed::Plain(file) => Ok(file),
                    Packed::Gzip(file) => file.finish(),
                };
                let written = finished.and_then(|file| {
                    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    if temporary == path {
                        return Ok(());
                    }
                    file.sync_all()?;
                    fs::rename(&temporary, &path)?;
                    sync_directory(&path)
                });
                if written.is_err() && temporary != path {
                    let _ = fs::remove_file(&temporary);
                }
                written
            }
            Inner::Done => Ok(()),
        }
    }
}

/// A new file beside `path`. Never one that is there, nor the target of a link there. In a directory that others may write to, another user
/// could have made it for us.
fn temporary(path: &Path, name: &str) -> io::Result<(PathBuf, File)> {
    /// Two savers in one process have two names.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut tries = 0;
    loop {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}.{nth}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).open(&temporary) {
            // An earlier process of this number was killed.
            Err(error) if error.kind() == ErrorKind::AlreadyExists && tries < TRIES => tries += 1,
            file => return Ok((temporary, file?)),
        }
    }
}

/// Names that a saver tries.
const TRIES: u32 = 1000;

/// Waits until the directory that `path` is in has its new name on the disk.
fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match File::open(directory.unwrap_or(Path::new("."))).and_then(|directory| directory.sync_all()) {
        // One that we may write to and not read, or a file system that has no such call: the name is there all the same.
        Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => Ok(()),
        done => done,
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.inner {
            Inner::Stdout(out) => out.write(bytes),
            Inner::File(pending) => match &mut pending.file {
                Packed::Plain(file) => file.write(bytes),
                Packed::Gzip(file) => file.write(bytes),
            },
            Inner::Done => Ok(0),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.inner {
            Inner::Stdout(out) => out.flush(),
            Inner::File(pending) => match &mut pending.file {
                Packed::Plain(file) => file.flush(),
                Packed::Gzip(file) => file.flush(),
            },
            Inner::Done => Ok(()),
        }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Inner::File(pending) = &self.inner
            && pending.temporary != pending.path
        {
            let _ = fs::remove_file(&pending.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("table");
        let mut sink = Sink::create(&path).unwrap();
        sink.write_all(b"half").unwrap();
        drop(sink);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        let mut sink = Sink::create(&path).unwrap();
        sink.write_all(b"whole").unwrap();
        sink.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        std::os::unix::fs::symlink(&path, directory.path().join("link")).unwrap();
        let mut sink = Sink::create(&directory.path().join("link")).unwrap();
        sink.write_all(b"other").unwrap();
        sink.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"other");
        assert!(fs::symlink_metadata(directory.path().join("link")).unwrap().is_symlink());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(Sink::create(Path::new("/no/such/directory/file")).is_err());
        let mut sink = Sink::create(Path::new("/dev/null")).unwrap();
        sink.write_all(b"gone").unwrap();
        sink.finish().unwrap();
    }

    #[test]
    fn nothing_that_lies_there_is_written_to() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("table"), directory.path().join("other"));
        fs::write(&other, "keep").unwrap();
        // Laid where a saver would write, for all names that it could choose next.
        for nth in 0..64 {
            let name = format!(".table.{}.{nth}", std::process::id());
            std::os::unix::fs::symlink(&other, directory.path().join(name)).unwrap();
        }
        let name = format!(".table.{}", std::process::id());
        std::os::unix::fs::symlink(&other, directory.path().join(name)).unwrap();
        // Two at a time, in one process.
        let (mut one, mut two) = (Sink::create(&path).unwrap(), Sink::create(&path).unwrap());
        one.write_all(b"one").unwrap();
        two.write_all(b"two, longer").unwrap();
        one.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"one");
        two.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two, longer");
        assert_eq!(fs::read(&other).unwrap(), b"keep");
    }

    /// A file that is in its place after a loss of power is whole. Its bytes reach the disk, then its new name, then the directory.
    #[cfg(target_os = "linux")]
    #[test]
    fn bytes_reach_the_disk_before_the_name() {
        const NAME: &str = "io::sink::tests::bytes_reach_the_disk_before_the_name";
        const TRACED: &str = "TRIELINE_TEST_SINK";
        // The same test, traced: it saves a file there.
        if let Some(path) = std::env::var_os(TRACED) {
            let mut sink = Sink::create_plain(Path::new(&path)).unwrap();
            sink.write_all(b"whole").unwrap();
            return sink.finish().unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        let place = fs::canonicalize(directory.path()).unwrap();
        let (path, calls) = (place.join("table"), place.join("calls"));
        let done = std::process::Command::new("strace")
            .args(["-f", "-y", "-e", "trace=/^(fsync|rename.*)$", "-o"])
            .arg(&calls)
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", NAME])
            .env(TRACED, &path)
            .output()
            .expect("strace is needed to see what reaches the disk");
        assert!(done.status.success(), "{}", std::string::String::from_utf8_lossy(&done.stderr));
        let calls = fs::read_to_string(&calls).unwrap();
        let place = place.display();
        let expected = [
            ("fsync(", format!("<{place}/.table.")),
            ("rename", format!("\"{place}/table\"")),
            ("fsync(", format!("<{place}>)")),
        ];
        let made: std::vec::Vec<_> = calls.lines().filter(|call| call.contains(" = 0")).collect();
        assert_eq!(made.len(), expected.len(), "{calls}");
        for (call, (name, what)) in made.iter().zip(expected) {
            assert!(call.contains(name) && call.contains(&what), "expected {name} {what} in order: {calls}");
        }
    }
}
