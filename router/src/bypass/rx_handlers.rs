//! Receive handlers of devices (`netdev_rx_handler_register`): bridges, bonds, macvlans, ipvlans and MACsec take a device's packets by
//! one, before the kernel routes them.

use std::collections::BTreeMap;
use std::io;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use libbpf_rs::{MapCore, Object, ObjectBuilder, ProgramInput};
use trieline_bpf::Mapping;

use crate::xdp::error::{Error, Result};
use crate::xdp::load::{Log, load_error};

/// The program, aligned as ELF wants it.
#[repr(align(8))]
struct Aligned<const N: usize>([u8; N]);
static OBJECT: Aligned<{ include_bytes!(concat!(env!("OUT_DIR"), "/rx_handlers.bpf.o")).len() }> =
    Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/rx_handlers.bpf.o")));

/// The structs of `rx_handlers.bpf.c`, generated from its BTF.
#[allow(
    missing_docs,
    dead_code,
    unused,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/rx_handlers.skel.rs"));
}
use generated::types::{tl_handler, tl_handlers};

const WORDS: usize = size_of::<tl_handler>() / 8;
/// The list of devices can change while the program reads it.
const ATTEMPTS: u32 = 4;

/// Reads the receive handlers of this thread's network namespace.
#[derive(Debug)]
pub struct RxHandlers {
    object: Object,
    found: Mapping,
    room: usize,
}

fn fail(error: libbpf_rs::Error) -> Error {
    Error::kernel("cannot list receive handlers", io::Error::other(error))
}

impl RxHandlers {
    /// Loads the program that lists them. Needs Linux with BTF.
    pub fn load() -> Result<Self> {
        let log = Log::start();
        let opened = ObjectBuilder::default().open_memory(&OBJECT.0);
        let object = opened
            .and_then(|object| object.load())
            .map_err(|error| load_error(error, "the program that lists receive handlers", &log))?;
        let map = object.maps().find(|map| map.name() == "handlers");
        let map = map.ok_or_else(|| Error::argument("the BPF object has no map `handlers`"))?;
        let room = map.max_entries() as usize;
        let found = Mapping::of_array(map.as_fd(), (room * WORDS * 8) as u64)
            .map_err(|error| Error::kernel("cannot map the list of receive handlers", error))?;
        Ok(Self { object, found, room })
    }

    /// Devices whose receive handler takes frames to the device's own MAC address, or may take them, with the handler's name
    /// (`ipvlan_handle_frame`). Macvlans with MAC addresses of their own do not. O(devices of the namespace).
    pub fn taking(&mut self) -> Result<BTreeMap<u32, String>> {
        for _ in 0..ATTEMPTS {
            let mut reported = [0; size_of::<tl_handlers>()];
            let program = self.object.progs_mut().next();
            let program = program.ok_or_else(|| Error::argument("the BPF object has no program"))?;
            let input = ProgramInput { context_in: Some(&mut reported), ..Default::default() };
            program.test_run(input).map_err(fail)?;
            let [found, complete] = [offset_of!(tl_handlers, found), offset_of!(tl_handlers, complete)]
                .map(|at| u32::from_ne_bytes([0, 1, 2, 3].map(|i| reported[at + i])));
            if complete == 1 {
                return Ok(self.listed(found as usize));
            }
        }
        Err(Error::kernel(
            "cannot list receive handlers",
            io::Error::other("too many devices, or they change all the time"),
        ))
    }

    fn listed(&self, found: usize) -> BTreeMap<u32, String> {
        let words = self.found.words64(self.room * WORDS);
        let records = words.chunks_exact(WORDS).take(found);
        let decoded = records.filter_map(|record| {
            let bytes: Vec<u8> =
                record.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect();
            let number = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
            let name =
                bytes[offset_of!(tl_handler, name)..].split(|byte| *byte == 0).next().unwrap_or_default();
            // A symbol of a module ends with its name: `ipvlan_handle_frame [ipvlan]`.
            let name = String::from_utf8_lossy(name).split(' ').next().unwrap_or_default().to_owned();
            (number(offset_of!(tl_handler, takes)) != 0)
                .then(|| (number(offset_of!(tl_handler, ifindex)), name))
        });
        decoded.collect()
    }
}
