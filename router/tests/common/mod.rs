//! The shared parts of the tests: a private BPF file system, and packets run through the loaded program.
#![allow(dead_code)] // each test file uses a part

pub mod cases;
pub mod model;
pub mod netns;
pub mod oracle;
pub mod packet;
pub mod program;
pub mod random;

// Those of a feature lie beside it.
#[path = "../../src/filter/tests/lists.rs"]
pub mod filters;
#[path = "../../src/srv6/tests/model.rs"]
mod model_srv6;
#[path = "../../src/srv6/tests/rfc.rs"]
pub mod rfc;
#[path = "../../src/srv6/tests/cases.rs"]
pub mod srv6;

pub use trieline_testbed::bpffs::BpfFs;

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, libbpf_sys as sys};
use trieline_lpm::{Image, IpPrefix, Table};
use trieline_router::{
    Action, CsidLengths, CsidMap, Dataplane, ImageMapType, LocalAddrBits, Options, PassReason, Port,
    PortFlags, ReaderGrace, Steps, VERDICTS,
};

/// The map types of this kernel. The arena may be missing (Linux 6.1), the array may not.
pub fn map_types() -> Vec<ImageMapType> {
    assert_eq!(ImageMapType::Array.probe(), Ok(()));
    trieline_testbed::probed([ImageMapType::Array, ImageMapType::Arena], ImageMapType::probe)
}

pub fn options(fs: &BpfFs, map_type: ImageMapType) -> Options {
    Options {
        pins: fs.path().join("node"),
        map_type: Some(map_type),
        image_bytes: 16 << 20,
        tables: 8,
        actions: 256,
        adjacencies: 256,
        rules: 64,
        frags: true,
    }
}

/// Number of the loopback device: always there, and what BPF_PROG_TEST_RUN takes a packet to come from when asked for 1.
pub const LO: u32 = 1;
/// MAC address of the port under test.
pub const PORT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// A dataplane whose tables are the test's.
pub struct Bench {
    pub dataplane: Dataplane,
    pub image: Image<trieline_router::ImageMemory, ReaderGrace>,
    pub fs: BpfFs,
}

impl Bench {
    /// `routes` go into table 0 (IPv4) and 1 (IPv6) of a port on `lo` that forwards everything.
    pub fn new(map_type: ImageMapType, routes: &[(&str, Action)]) -> Self {
        let fs = BpfFs::mount();
        let mut dataplane = Dataplane::open(&options(&fs, map_type)).unwrap();
        let tables = dataplane.tables();
        let mut image = Image::create(dataplane.memory(), dataplane.grace(), tables).unwrap();
        let (mut four, mut six, mut own) = (Vec::new(), Vec::new(), LocalAddrBits::default());
        let mut csids = CsidMap::new();
        for (prefix, action) in routes {
            let id = dataplane.actions().alloc().unwrap();
            dataplane.actions().set(id, action).unwrap();
            match prefix.parse().unwrap() {
                IpPrefix::V4(prefix) => {
                    four.push((prefix, id));
                    if *action == Action::Pass(PassReason::Local) {
                        own.add(prefix);
                    }
                }
                IpPrefix::V6(prefix) => {
                    six.push((prefix, id));
                    if let Action::Endpoint { flavours, .. } = action
                        && let Some(CsidLengths { block, node_function }) = flavours.next_csid
                    {
                        csids.insert(prefix, Steps::Next { block, node_function });
                    }
                }
            }
        }
        dataplane.csids().set(&csids).unwrap();
        dataplane.local_addrs().set(&own);
        Table::<u32>::create(&mut image, 0, four).unwrap();
        Table::<u128>::create(&mut image, 1, six).unwrap();
        dataplane.set_port(LO, None, port(ALL)).unwrap();
        dataplane.set_device(LO).unwrap();
        Self { dataplane, image, fs }
    }

    /// An element of one of the array maps, as the program sees it.
    pub fn element(&self, map: &str, index: u32) -> Vec<u8> {
        let map = libbpf_rs::MapHandle::from_pinned_path(self.fs.path().join("node").join(map)).unwrap();
        map.lookup(&index.to_ne_bytes(), libbpf_rs::MapFlags::ANY).unwrap().unwrap()
    }

    /// Overwrites it, past all that the API allows.
    pub fn set_element(&self, map: &str, index: u32, value: &[u8]) {
        let map = libbpf_rs::MapHandle::from_pinned_path(self.fs.path().join("node").join(map)).unwrap();
        map.update(&index.to_ne_bytes(), value, libbpf_rs::MapFlags::ANY).unwrap();
    }

    /// Runs one frame through the program.
    pub fn run(&self, frame: &[u8]) -> Outcome {
        let before = self.dataplane.counters().unwrap();
        let (action, output) = test_run(self.dataplane.program(), frame);
        let after = self.dataplane.counters().unwrap();
        let mut counted = Vec::new();
        for ((b, a), verdict) in before.total.iter().zip(&after.total).zip(VERDICTS) {
            for _ in b.packets..a.packets {
                counted.push(verdict.name);
            }
        }
        assert_eq!(counted.len(), 1, "one packet, one counter: {counted:?}");
        Outcome { action, output, counted: counted[0] }
    }
}

pub const ALL: PortFlags = PortFlags {
    forward4: true,
    forward6: true,
    seg6: true,
    tenant: false,
    rpf_loose: false,
    rpf_strict: false,
    filter: false,
    sid_hook: false,
    ecn: false,
    redirects4: false,
    redirects6: false,
    proxy_ndp: false,
    csum_partial: false,
};

pub fn port(flags: PortFlags) -> Port {
    Port { table4: 0, table6: 1, flags, ifindex: LO, mac: PORT_MAC }
}

/// The program's result.
#[derive(Debug)]
pub struct Outcome {
    pub action: u32,
    pub output: Vec<u8>,
    pub counted: &'static str,
}

pub const XDP_DROP: u32 = 1;
pub const XDP_PASS: u32 = 2;
pub const XDP_REDIRECT: u32 = 4;

/// Packets counted under a verdict.
pub fn named(dataplane: &Dataplane, name: &str) -> u64 {
    let counters = dataplane.counters().unwrap();
    counters.total.iter().find(|v| v.name == name).unwrap().packets
}

/// One packet that comes in on `lo`.
pub fn test_run(program: impl AsFd, frame: &[u8]) -> (u32, Vec<u8>) {
    let (action, output, _) = run_times(program, frame, 1);
    (action, output)
}

/// The same packet many times, as the program left it: only for programs that do not change its length. Mean ns.
pub fn repeat_run(program: impl AsFd, frame: &[u8], times: u32) -> u32 {
    run_times(program, frame, times).2
}

fn run_times(program: impl AsFd, frame: &[u8], times: u32) -> (u32, Vec<u8>, u32) {
    let mut output = vec![0u8; frame.len() + 1024];
    let context = sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex: LO, ..Default::default() };
    let mut context_out = context;
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        data_out: output.as_mut_ptr().cast(),
        data_size_out: output.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        ctx_out: (&raw mut context_out).cast(),
        ctx_size_out: size_of::<sys::xdp_md>() as u32,
        repeat: times as i32,
        ..Default::default()
    };
    // SAFETY: every buffer lives through the call and has the length given.
    let ret = unsafe { sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) };
    assert_eq!(ret, 0, "BPF_PROG_TEST_RUN of {} bytes", frame.len());
    output.truncate(options.data_size_out as usize);
    (options.retval, output, options.duration)
}

/// Runs the program on frames that come in by a device of this thread's network namespace, and lets the kernel do what it says.
pub fn live_run(
    program: impl AsFd,
    ifindex: u32,
    frame: &[u8],
    frames: u32,
    batch: u32,
) -> std::io::Result<()> {
    const LIVE_FRAMES: u32 = 1 << 1; // BPF_F_TEST_XDP_LIVE_FRAMES
    let context =
        sys::xdp_md { data_end: frame.len() as u32, ingress_ifindex: ifindex, ..Default::default() };
    let mut options = sys::bpf_test_run_opts {
        sz: size_of::<sys::bpf_test_run_opts>() as sys::size_t,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        ctx_in: (&raw const context).cast(),
        ctx_size_in: size_of::<sys::xdp_md>() as u32,
        repeat: frames as i32,
        flags: LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: frame and context live through the call and have the lengths given.
    let ret = unsafe { sys::bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &mut options) };
    if ret < 0 { Err(std::io::Error::from_raw_os_error(-ret)) } else { Ok(()) }
}

/// Lets the kernel measure the time of BPF programs until this process ends.
pub fn time_programs() -> std::io::Result<()> {
    // SAFETY: a plain call; its descriptor stays open on purpose.
    let ret = unsafe { sys::bpf_enable_stats(sys::BPF_STATS_RUN_TIME) };
    if ret < 0 { Err(std::io::Error::from_raw_os_error(-ret)) } else { Ok(()) }
}
