//! Tables for anybody's BPF program: one image in a BPF map, its one writer, and the pin that outlives it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use libbpf_rs::{Object, OpenObject};
use trieline_lpm::{Image, Reader};

use crate::error::{Error, Result};
use crate::grace::ReaderGrace;
use crate::image_map::{ImageMap, ImageMapType, ImageMemory};
use crate::pages::Pages;
use crate::{pins, sys};

/// Name of the pin in its directory.
const PIN: &str = "image";

/// Options for new tables.
#[derive(Clone, Debug)]
pub struct Options {
    /// The map type; `None`: an arena where the kernel has one, else an array.
    pub map_type: Option<ImageMapType>,
    /// Size of all tables together, bytes: a power of two from 64 KiB. An arena takes memory only as it fills, up to 4 GiB. An array
    /// takes all of it at once and has at most 512 MiB.
    pub bytes: u64,
    /// Tables there can be, with the ids 0 ... `tables`-1.
    pub tables: u32,
}

impl Default for Options {
    /// 64 MiB, 64 tables: room for a full Internet table several times over.
    fn default() -> Self {
        Self { map_type: None, bytes: 64 << 20, tables: 64 }
    }
}

/// The tables in one BPF map, and the right to change them.
///
/// One process at a time has it for pinned tables; for others it is this value. Fill a table with
/// [`trieline_lpm::Table::create`] on [`Tables::image`]; programs see each change at once.
#[derive(Debug)]
pub struct Tables {
    map: ImageMap,
    image: Image<ImageMemory, ReaderGrace>,
    pages: Option<Pages>,
    /// Of the pin's directory.
    lock: Option<OwnedFd>,
}

impl Tables {
    /// New tables, all of them empty. They go with this value and the programs that use them, unless they are pinned.
    pub fn create(options: &Options) -> Result<Self> {
        let map = ImageMap::choose(options.map_type, options.bytes)?;
        let image = Image::create(map.memory(), ReaderGrace::new()?, options.tables)?;
        Ok(Self { map, image, pages: None, lock: None })
    }

    /// Pins them in `directory` of a BPF file system, made if missing: then they stay, as programs see them, when this process ends.
    ///
    /// Tables have one pin: with a second directory, another process could become their writer there.
    pub fn pin(&mut self, directory: &Path) -> Result<()> {
        if self.lock.is_some() {
            return Err(Error::Argument(format!(
                "{}: these tables are pinned already; expected one pin",
                directory.display()
            )));
        }
        let lock = pins::own(directory)?;
        let path = directory.join(PIN);
        sys::pin(self.map.fd(), &path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Error::PinExists { path },
            _ => Error::kernel(format!("cannot pin {}", path.display()), error),
        })?;
        self.lock = Some(lock);
        Ok(())
    }

    /// Takes over what is pinned in `directory`; [`Error::InUse`] while another process has it.
    ///
    /// Programs go on with the tables as they are. An image holds answers, not prefixes. Before you change a table here, fill it with
    /// [`trieline_lpm::Table::create`], which replaces the old answers for all addresses at once. So the memory must hold both.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(PIN);
        // Before the directory would be made.
        if !path.exists() {
            return Err(Error::NotPinned { path });
        }
        let lock = pins::own(directory)?;
        let map = ImageMap::pinned(&path)?;
        let image = Image::open(map.memory(), ReaderGrace::new()?)?;
        Ok(Self { map, image, pages: None, lock: Some(lock) })
    }

    /// Removes the pin of `directory`, and the directory if nothing else is in it; [`Error::InUse`] while a process, also this one, has
    /// the tables open. Programs that use them keep them.
    pub fn unpin(directory: &Path) -> Result<()> {
        let path = directory.join(PIN);
        // Before the directory would be made.
        if !path.exists() {
            return Err(Error::NotPinned { path });
        }
        let _lock = pins::own(directory)?;
        std::fs::remove_file(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotPinned { path },
            _ => Error::kernel(format!("cannot remove {}", path.display()), error),
        })?;
        let _ = std::fs::remove_dir(directory);
        Ok(())
    }

    /// The writer, for [`trieline_lpm::Table`].
    pub fn image(&mut self) -> &mut Image<ImageMemory, ReaderGrace> {
        &mut self.image
    }

    /// Removes a table, for all addresses at once, beside others that stay. O(chunks), and O(nodes) for one that had at most 4096 prefixes
    /// when it was built. Its memory is used for other tables after a grace period,
    /// which this does not wait for; [`Tables::give_back`] returns it to the kernel.
    pub fn remove(&mut self, id: u32) -> Result<()> {
        Ok(self.image.remove_table(id)?)
    }

    /// Waits for a grace period, then gives what no table uses any more back to the kernel, 1 MiB at a time; how many bytes. An array keeps
    /// its memory: 0. Before tables are dropped for good it makes freeing them a matter of many short calls, not of a long one.
    pub fn give_back(&mut self) -> Result<u64> {
        self.image.synchronize();
        if self.map_type() == ImageMapType::Array {
            return Ok(0);
        }
        let mut pages = match self.pages.take() {
            Some(pages) => pages,
            None => Pages::load(&self.map)?,
        };
        let ranges = self.image.take_unused();
        let given = pages.give_back(&ranges);
        self.pages = Some(pages);
        if given.is_err() {
            self.image.offer_unused(&ranges);
        }
        given?;
        Ok(ranges.iter().map(|range| range.end - range.start).sum())
    }

    /// Looks up as programs do.
    pub fn reader(&self) -> Reader<'_> {
        self.image.reader()
    }

    /// The map.
    pub fn map(&self) -> &ImageMap {
        &self.map
    }

    /// The map type: it decides which of a program's two compilations to load.
    pub fn map_type(&self) -> ImageMapType {
        self.map.map_type()
    }

    /// Loads an object that includes `trieline/bpf.h`, compiled for [`Tables::map_type`], with these tables as its own.
    ///
    /// A program that uses them and may sleep (`SEC("syscall")`, `SEC("….s/…")`, callbacks of work queues and tasks) is refused. Grace periods do not wait for it, so that it
    /// could find memory used for something else.
    pub fn load(&self, mut object: OpenObject) -> Result<Object> {
        self.map.place(&mut object)?;
        let object = object.load().map_err(|error| Error::Kernel {
            operation: "cannot load the BPF object".into(),
            source: io::Error::other(error),
        })?;
        self.map.check(&object)?;
        Ok(object)
    }
}
