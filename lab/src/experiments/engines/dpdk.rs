//! DPDK's FIB libraries, where they are installed. A few lines of C are compiled when the experiment runs and loaded, so that no binary of
//! trieline depends on DPDK.

use std::{
    collections::HashSet,
    ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void},
    hash::Hash,
    process::Command,
    sync::OnceLock,
};

use libloading::Library;
use trieline_lpm::Prefix;

use super::{
    engine::{BATCH, Change, Mode, Subject},
    traffic::Stream,
};
use crate::{measure::thread_seconds, tables::generate::Wide};

const SOURCE: &str = include_str!("../../../dpdk/fib.c");
/// Memory that DPDK is given: two FIBs of a full table at a time. Without hugetlb pages it takes only what it touches.
const MEGABYTES: c_int = 1536;
/// Hugetlb pages of this many bytes are reserved for it.
const HUGETLB_BYTES: u64 = 2 << 20;
const RESERVED: &str = "/proc/sys/vm/nr_hugepages";

type Create = unsafe extern "C" fn(c_int, c_uint, c_int, *mut c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Set = unsafe extern "C" fn(*mut c_void, *const c_void, c_int, c_uint) -> c_int;
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_void, *mut u64, c_int);

/// The functions of one family.
#[derive(Clone, Copy)]
struct Calls {
    create: Create,
    free: Free,
    set: Set,
    lookup: Lookup,
}

/// DPDK's environment, started in this process. Once started it stays.
pub struct Dpdk {
    v4: Calls,
    v6: Calls,
    bytes: unsafe extern "C" fn() -> c_ulonglong,
    /// Its version and its pages.
    pub about: String,
    _library: Library,
}

/// DPDK, started at the first call, on whose thread it then belongs; or why there is none. The thread's CPUs are as before.
pub fn get() -> Result<&'static Dpdk, String> {
    static DPDK: OnceLock<Result<Dpdk, String>> = OnceLock::new();
    DPDK.get_or_init(|| {
        let cpus = rustix::thread::sched_getaffinity(None).map_err(|error| error.to_string())?;
        let started = start();
        rustix::thread::sched_setaffinity(None, &cpus).map_err(|error| error.to_string())?;
        started
    })
    .as_ref()
    .map_err(Clone::clone)
}

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

fn start() -> Result<Dpdk, String> {
    if !has_avx512() {
        return Err("this CPU has no AVX-512".into());
    }
    let library = compile()?;
    let hugetlb = free_hugetlb_megabytes() >= MEGABYTES as u64;
    // SAFETY: the names and types are those of lab/dpdk/fib.c; the library is kept as long as the pointers.
    unsafe {
        let get = |name: &str| library.get::<*const c_void>(name.as_bytes()).map_err(|e| e.to_string());
        let calls = |family: &str| -> Result<Calls, String> {
            let symbol = |what: &str| get(&format!("tl_fib{family}{what}"));
            Ok(Calls {
                create: std::mem::transmute::<*const c_void, Create>(*symbol("")?),
                free: std::mem::transmute::<*const c_void, Free>(*symbol("_free")?),
                set: std::mem::transmute::<*const c_void, Set>(*symbol("_set")?),
                lookup: std::mem::transmute::<*const c_void, Lookup>(*symbol("_lookup")?),
            })
        };
        let (v4, v6) = (calls("4")?, calls("6")?);
        let bytes = *library
            .get::<unsafe extern "C" fn() -> c_ulonglong>(b"tl_bytes")
            .map_err(|error| error.to_string())?;
        let begin = *library
            .get::<unsafe extern "C" fn(c_int, c_int) -> c_int>(b"tl_start")
            .map_err(|error| error.to_string())?;
        let version = *library
            .get::<unsafe extern "C" fn() -> *const c_char>(b"tl_version")
            .map_err(|error| error.to_string())?;
        let errno = begin(MEGABYTES, c_int::from(hugetlb));
        if errno != 0 {
            let why = std::io::Error::from_raw_os_error(errno);
            return Err(format!("DPDK's environment does not start: {why}"));
        }
        let pages = if hugetlb { "hugetlb pages of 2 MiB" } else { "pages of 4 KiB (--no-huge)" };
        let about = format!("{}, {pages}", CStr::from_ptr(version()).to_string_lossy());
        Ok(Dpdk { v4, v6, bytes, about, _library: library })
    }
}

/// Compiles and loads the C lines.
fn compile() -> Result<Library, String> {
    let flags = |what: &str| -> Result<Vec<String>, String> {
        let output = Command::new("pkg-config")
            .args([what, "libdpdk"])
            .output()
            .map_err(|error| format!("pkg-config does not start: {error}"))?;
        if !output.status.success() {
            return Err("pkg-config finds no libdpdk (Debian: libdpdk-dev)".into());
        }
        Ok(String::from_utf8_lossy(&output.stdout).split_whitespace().map(str::to_owned).collect())
    };
    let (cflags, libs) = (flags("--cflags")?, flags("--libs")?);
    let directory = tempfile::tempdir().map_err(|error| format!("a temporary directory: {error}"))?;
    let (source, object) = (directory.path().join("fib.c"), directory.path().join("libfib.so"));
    std::fs::write(&source, SOURCE).map_err(|error| format!("{}: {error}", source.display()))?;
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let output = Command::new(&compiler)
        .args(["-O3", "-shared", "-fPIC"])
        .args(cflags)
        .arg("-o")
        .args([&object, &source])
        .args(libs)
        .output()
        .map_err(|error| format!("{} does not start: {error}", compiler.display()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("lab/dpdk/fib.c does not compile here: {}", errors.lines().next().unwrap_or("")));
    }
    // SAFETY: a library just made from our own source; DPDK's constructors only register things.
    unsafe { Library::new(&object) }.map_err(|error| error.to_string())
}

/// A field of /proc/meminfo: kB, or pages.
fn meminfo(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Megabytes of free hugetlb pages of the default size.
fn free_hugetlb_megabytes() -> u64 {
    meminfo("HugePages_Free:") * meminfo("Hugepagesize:") / 1024
}

/// Hugetlb pages reserved for the time of a run.
pub struct Pages {
    before: String,
}

/// Reserves the hugetlb pages that DPDK is used to, if there are too few, memory is plenty and the process may (root).
pub fn reserve_pages() -> Option<Pages> {
    let missing = (MEGABYTES as u64).saturating_sub(free_hugetlb_megabytes()) << 20;
    let is_plenty = meminfo("MemAvailable:") * 1024 > 4 * missing;
    if missing == 0 || !is_plenty || meminfo("Hugepagesize:") * 1024 != HUGETLB_BYTES || !has_avx512() {
        return None;
    }
    let before = std::fs::read_to_string(RESERVED).ok()?;
    let pages: u64 = before.trim().parse().ok()?;
    let reserved = Pages { before };
    std::fs::write(RESERVED, (pages + missing.div_ceil(HUGETLB_BYTES)).to_string()).ok()?;
    Some(reserved)
}

impl Drop for Pages {
    fn drop(&mut self) {
        // Those that DPDK still holds go when the process ends.
        let _ = std::fs::write(RESERVED, &self.before);
    }
}

/// A filled FIB.
pub struct Fib {
    calls: Calls,
    handle: *mut c_void,
    bytes: u64,
    total: u64,
    seconds: f64,
}

impl Fib {
    /// A FIB of entries of 2 or 4 bytes with the n-th prefix leading to the n-th value, or why there is none.
    pub fn build<A: Wide + Hash>(
        dpdk: &Dpdk,
        entry: u64,
        prefixes: &[Prefix<A>],
        values: &[u32],
    ) -> Result<Fib, String> {
        let calls = if A::FAMILY == 4 { dpdk.v4 } else { dpdk.v6 };
        // Half a next hop is DPDK's mark of a second table.
        let largest = (1u64 << (8 * entry - 1)) - 1;
        if values.iter().any(|value| u64::from(*value) > largest) {
            return Err(format!("entries of {entry} bytes hold next hops up to {largest}"));
        }
        let mut groups = groups(prefixes) + 64;
        if A::FAMILY == 6 {
            // It reserves more tables than it then uses, by its own count of those that a prefix may need. A full table takes
            // about 6 times as many, and changes to it more and more.
            groups *= 8;
        }
        // Its RIB takes a node for each branch beside one for each route.
        let nodes = prefixes.len() + branches(prefixes) + 1024;
        loop {
            if groups as u64 > largest {
                return Err(format!(
                    "{groups} tables of 256 are needed, entries of {entry} bytes name {largest}"
                ));
            }
            let began = thread_seconds();
            let mut fib = Fib::create(dpdk, calls, entry, groups, nodes)?;
            let failed = prefixes.iter().zip(values).find_map(|(prefix, value)| {
                let code = fib.set(prefix, *value);
                (code != 0).then_some(code)
            });
            match failed {
                None => {
                    fib.seconds = thread_seconds() - began;
                    fib.bytes = entry * ((1 << 24) + 256 * groups as u64);
                    // SAFETY: a function without arguments of the library that `dpdk` keeps.
                    fib.total = unsafe { (dpdk.bytes)() } - fib.total;
                    return Ok(fib);
                }
                Some(code) if code == -rustix::io::Errno::NOSPC.raw_os_error() && A::FAMILY == 6 => {
                    groups = groups * 5 / 4;
                }
                Some(code) => {
                    let why = std::io::Error::from_raw_os_error(-code);
                    return Err(format!("a route is refused: {why}"));
                }
            }
        }
    }

    fn create(dpdk: &Dpdk, calls: Calls, entry: u64, groups: usize, nodes: usize) -> Result<Fib, String> {
        let mut errno = 0;
        // SAFETY: the library's functions with their own types; DPDK is started, and this is its thread or one like it.
        unsafe {
            let total = (dpdk.bytes)();
            let handle = (calls.create)(entry as c_int, groups as c_uint, nodes as c_int, &mut errno);
            if handle.is_null() {
                let why = std::io::Error::from_raw_os_error(errno);
                return Err(format!("the FIB cannot be made: {why}"));
            }
            Ok(Fib { calls, handle, bytes: 0, total, seconds: 0.0 })
        }
    }

    /// 0 as value deletes. DPDK's code: 0 or a negative errno.
    fn set<A: Wide>(&mut self, prefix: &Prefix<A>, value: u32) -> c_int {
        let wide = prefix.addr().widen();
        let (wire, host) = (wide.to_be_bytes(), (wide >> 96) as u32);
        let address: *const c_void = match A::FAMILY {
            4 => (&raw const host).cast(),
            _ => (&raw const wire).cast(),
        };
        // SAFETY: a live FIB of this family, and an address of its size.
        unsafe { (self.calls.set)(self.handle, address, prefix.len().into(), value) }
    }

    /// The addresses as this family's call takes them, and their size.
    fn addresses<A: Wide>(stream: &Stream<A>) -> (*const u8, usize) {
        match A::FAMILY {
            4 => (stream.addrs.as_ptr().cast(), 4),
            _ => (stream.wire.as_ptr().cast(), 16),
        }
    }
}

impl Drop for Fib {
    fn drop(&mut self) {
        // SAFETY: made by `create` and not freed before.
        unsafe { (self.calls.free)(self.handle) }
    }
}

impl<A: Wide> Subject<A> for Fib {
    fn pass(&self, mode: Mode, stream: &Stream<A>, count: usize) -> u64 {
        let (addresses, size) = Self::addresses(stream);
        let mut next_hops = [0u64; BATCH];
        let mut sum = 0;
        let lookup = self.calls.lookup;
        let step = if mode == Mode::Batch { BATCH } else { 1 };
        if mode != Mode::Dependent {
            for at in (0..count / step * step).step_by(step) {
                // SAFETY: the stream has at least `count` addresses, and there is room for the answers of a batch.
                unsafe {
                    let from = addresses.add(at * size).cast();
                    lookup(self.handle, from, next_hops.as_mut_ptr(), step as c_int);
                }
                sum += next_hops[..step].iter().sum::<u64>();
            }
            return sum;
        }
        let none = std::hint::black_box(0u32);
        let mut answer = 0;
        for at in 0..count {
            // The stream's own bytes, in whichever order they are: nothing is mixed in, but only after the answer.
            let mut address = [0u8; 16];
            // SAFETY: as above; an address is 4 or 16 bytes.
            unsafe {
                addresses.add(at * size).copy_to_nonoverlapping(address.as_mut_ptr(), size);
                address = u128::from_ne_bytes(address).stirred(answer & none).to_ne_bytes();
                lookup(self.handle, address.as_ptr().cast(), next_hops.as_mut_ptr(), 1);
            }
            answer = next_hops[0] as u32;
            sum += next_hops[0];
        }
        sum
    }

    fn answers(&self, stream: &Stream<A>, values: &mut [u32]) {
        let (addresses, size) = Self::addresses(stream);
        let mut next_hops = [0u64; BATCH];
        for (at, values) in values.chunks_mut(BATCH).enumerate() {
            // SAFETY: the stream has an address for each value.
            unsafe {
                let from = addresses.add(at * BATCH * size).cast();
                (self.calls.lookup)(self.handle, from, next_hops.as_mut_ptr(), values.len() as c_int);
            }
            values.iter_mut().zip(next_hops).for_each(|(value, next_hop)| *value = next_hop as u32);
        }
    }

    fn batches(&self) -> bool {
        true
    }

    fn updates(&self) -> bool {
        true
    }

    fn change(&mut self, changes: &[Change<A>]) -> usize {
        changes.iter().filter(|(prefix, value)| self.set(prefix, value.unwrap_or(0)) == 0).count()
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn bytes_total(&self) -> Option<u64> {
        Some(self.total)
    }

    fn build_seconds(&self) -> Option<f64> {
        Some(self.seconds)
    }
}

/// How many tables of 256 the prefixes need behind the first 24 bits.
fn groups<A: Wide + Hash>(prefixes: &[Prefix<A>]) -> usize {
    (24..A::WIDTH)
        .step_by(8)
        .map(|bits| {
            let longer = prefixes.iter().filter(|prefix| prefix.len() > bits);
            longer.map(|prefix| prefix.addr().masked(bits)).collect::<HashSet<_>>().len()
        })
        .sum()
}

/// How many branches of their tree the prefixes (in order) have where none of them ends.
fn branches<A: Wide + Hash>(prefixes: &[Prefix<A>]) -> usize {
    let branch = |pair: &[Prefix<A>]| {
        let common = pair[0].addr().common_bits(pair[1].addr()).min(pair[0].len()).min(pair[1].len());
        Prefix::truncated(pair[0].addr(), common)
    };
    let all: HashSet<_> = prefixes.windows(2).map(branch).collect();
    all.iter().filter(|branch| prefixes.binary_search(branch).is_err()).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_and_second_tables_are_counted() {
        let prefixes: [Prefix<u32>; 5] =
            ["10.0.0.0/8", "10.0.0.0/25", "10.0.1.0/32", "10.0.1.1/32", "11.0.0.0/8"]
                .map(|text| text.parse().unwrap());
        // 10.0.0.0/23, 10.0.1.0/31 and 10.0.0.0/7; 10.0.0.0/8 is a prefix itself.
        assert_eq!((branches(&prefixes), groups(&prefixes)), (3, 2));
    }
}
