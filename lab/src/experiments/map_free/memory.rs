//! The memory that is freed: a filled LPM_TRIE, or an image with a table, alone or beside a live one.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapInfo, MapType, libbpf_sys::bpf_map_create_opts};
use trieline_bpf::{ImageMap, ImageMemory, ReaderGrace};
use trieline_lpm::{Address, Image, Table};

use crate::{
    Error, Result,
    error::During,
    experiments::structure::{Which, failed, fill_trie, trie_key},
    tables::kinds::Entry,
};

/// The part that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    /// The whole map.
    Map,
    /// One table of an image in which another stays.
    Table,
}

impl What {
    /// As in a row.
    pub fn name(self) -> &'static str {
        match self {
            What::Map => "map",
            What::Table => "table",
        }
    }
}

/// Filled and in nobody's use.
pub enum Held {
    /// LPM_TRIE, which one file descriptor refers to.
    Trie(MapHandle),
    /// An image.
    Image(Box<Tables>),
}

/// An image in its map type, with what the writer knows of it.
pub struct Tables {
    map: ImageMap,
    image: Image<ImageMemory, ReaderGrace>,
    live: Option<Table<u32>>,
    table: Table<u32>,
    /// Bytes in use before the table that will go.
    before: u64,
}

/// The table that stays, and the one that goes.
const LIVE: u32 = 0;
const GOES: u32 = 1;
/// How many entries are asked for again.
const CHECKED: usize = 1000;

impl Held {
    /// Fills one; `size` is the image's, `live` what stays beside it.
    pub fn fill(
        which: Which,
        size: u64,
        entries: &[Entry<u32>],
        live: &[Entry<u32>],
        grace: &ReaderGrace,
    ) -> Result<Held> {
        let held = match which {
            Which::LpmTrie => {
                let options = bpf_map_create_opts {
                    sz: size_of::<bpf_map_create_opts>() as _,
                    map_flags: 1, // BPF_F_NO_PREALLOC, which LPM_TRIE asks for
                    ..Default::default()
                };
                let count = entries.len().max(1) as u32;
                let map = MapHandle::create(MapType::LpmTrie, Some("lab_free"), 8, 4, count, &options)
                    .during(|| format!("cannot make an LPM_TRIE of {count} entries"))?;
                fill_trie(&map, entries)?;
                Held::Trie(map)
            }
            Which::Trieline(map_type) => {
                let map = ImageMap::create(map_type, size).map_err(failed)?;
                let mut image = Image::create(map.memory(), grace.clone(), 2).map_err(failed)?;
                let kept = (!live.is_empty())
                    .then(|| Table::create(&mut image, LIVE, live.iter().copied()).map_err(failed));
                let kept = kept.transpose()?;
                let before = image.stats().used;
                let table = Table::create(&mut image, GOES, entries.iter().copied()).map_err(failed)?;
                Held::Image(Box::new(Tables { map, image, live: kept, table, before }))
            }
        };
        held.check(entries, live)?;
        Ok(held)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Held::Trie(map) => map.as_fd(),
            Held::Image(tables) => tables.map.fd(),
        }
    }

    /// The map's number, by which others find it as long as it is there.
    pub fn id(&self) -> Result<u32> {
        Ok(MapInfo::new(self.fd()).during(|| "cannot read a map's number".into())?.info.id)
    }

    /// Bytes that the image's table takes; none for an LPM_TRIE, whose nodes are not counted.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Held::Trie(_) => None,
            Held::Image(tables) => Some(tables.image.stats().used - tables.before),
        }
    }

    /// Asks for some entries, evenly spread, in each table.
    fn check(&self, entries: &[Entry<u32>], live: &[Entry<u32>]) -> Result<()> {
        let spread = |of: usize| (0..CHECKED.min(of)).map(move |n| n * of / CHECKED.min(of));
        match self {
            Held::Trie(map) => {
                for (prefix, value) in spread(entries.len()).map(|n| &entries[n]) {
                    let key: Vec<u8> = trie_key(prefix).collect();
                    let got =
                        map.lookup(&key, MapFlags::ANY).during(|| format!("cannot look {prefix} up"))?;
                    let got = got.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
                    expect("lpm_trie", prefix.to_string(), got.unwrap_or(0), *value)?;
                }
            }
            Held::Image(tables) => {
                for (id, entries) in [(GOES, entries), (LIVE, live)] {
                    for (prefix, value) in spread(entries.len()).map(|n| &entries[n]) {
                        let got = answer(&tables.image, id, prefix.addr());
                        expect("trieline", prefix.to_string(), got, *value)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Lets all of it go: the writer's copy, the mapping, the map. How long the mapping and the file descriptor took.
    pub fn free_map(self) -> Option<Duration> {
        match self {
            Held::Trie(map) => {
                drop(map);
                None
            }
            Held::Image(tables) => {
                let Tables { map, image, live, table, .. } = *tables;
                drop((live, table, image));
                let began = Instant::now();
                drop(map);
                Some(began.elapsed())
            }
        }
    }

    /// Lets the one table go, and waits until its memory can be used again. Returns the part that stays.
    pub fn free_table(self) -> Result<Staying> {
        match self {
            Held::Trie(_) => {
                Err(Error::Refused { structure: "lpm_trie, which has but one table".into(), count: 1 })
            }
            Held::Image(tables) => {
                let Tables { map, mut image, live, table, before } = *tables;
                image.remove_table(GOES).map_err(failed)?;
                image.synchronize();
                drop(table);
                Ok(Staying { _map: map, image, _live: live, before })
            }
        }
    }
}

/// The image after a table has gone.
pub struct Staying {
    _map: ImageMap,
    image: Image<ImageMemory, ReaderGrace>,
    _live: Option<Table<u32>>,
    before: u64,
}

impl Staying {
    /// Whether the one table is gone, the other answers as before, and no memory is kept.
    pub fn check(&self, gone: &[Entry<u32>], live: &[Entry<u32>]) -> Result<()> {
        for (id, entries, there) in [(GOES, gone, false), (LIVE, live, true)] {
            for (prefix, value) in entries.iter().step_by(entries.len() / CHECKED + 1) {
                let got = answer(&self.image, id, prefix.addr());
                expect("trieline", prefix.to_string(), got, if there { *value } else { 0 })?;
            }
        }
        let stats = self.image.stats();
        let kept = stats.used.abs_diff(self.before) + stats.limbo;
        if kept == 0 {
            return Ok(());
        }
        Err(Error::Image(format!("{kept} bytes are kept of a table that was removed; expected none")))
    }
}

fn answer<A: Address>(image: &Image<ImageMemory, ReaderGrace>, id: u32, address: A) -> u32 {
    image.reader().table(id).and_then(|table| table.lookup(address)).unwrap_or(0)
}

fn expect(structure: &str, address: String, got: u32, expected: u32) -> Result<()> {
    if got == expected {
        return Ok(());
    }
    Err(Error::Mismatch {
        structure: structure.to_owned(),
        table: "that is freed".into(),
        address,
        got,
        expected,
        differing: 1,
        checked: CHECKED as u64,
    })
}
