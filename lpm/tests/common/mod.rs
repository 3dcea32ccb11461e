//! Shared by the suites: the C header as a library, and random tables.
#![allow(dead_code, reason = "each suite uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod sample;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use trieline_lpm::{HeapMemory, Key, Memory};

type Lookup4 = unsafe extern "C" fn(*const u8, u64, u32, u32) -> u32;
type Lookup6 = unsafe extern "C" fn(*const u8, u64, u32, u64, u64) -> u32;

type Lookup = unsafe extern "C" fn(*const u8, u64, u32, u32, *const u8) -> u32;
type Others = unsafe extern "C" fn(*const u8, u64, u32, u32) -> u32;
type Match = unsafe extern "C" fn(*const u8, u64, u32, u32) -> u64;
type Root4 = unsafe extern "C" fn(*const u8, u64, u32, u32) -> u32;
type Finish4 = unsafe extern "C" fn(*const u8, u64, u32, u64, u32, u32) -> u32;

/// `include/trieline/lpm.h`, compiled for this machine.
pub struct Header {
    library: libloading::Library,
    lookup4: Lookup4,
    lookup6: Lookup6,
    lookup: Lookup,
}

impl Header {
    /// Compiles and loads it, once a test binary.
    pub fn get() -> &'static Self {
        static HEADER: OnceLock<Header> = OnceLock::new();
        HEADER.get_or_init(|| {
            let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
            let directory = tempfile::tempdir().unwrap();
            let object = directory.path().join("libheader.so");
            let status = Command::new("cc")
                .args([
                    "-std=gnu11",
                    "-O2",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    "-Wno-unused-parameter",
                    "-fPIC",
                    "-shared",
                ])
                .arg("-I")
                .arg(root.join("include"))
                .arg(root.join("tests/header.c"))
                .arg("-o")
                .arg(&object)
                .status()
                .expect("cc, the C compiler, is needed to test the C header");
            assert!(status.success(), "the C header does not compile");
            // SAFETY: our own library without initialisers, whose functions have these types.
            unsafe {
                let library = libloading::Library::new(&object).unwrap();
                let lookup4 = *library.get::<Lookup4>(b"tl_test_lookup4").unwrap();
                let lookup6 = *library.get::<Lookup6>(b"tl_test_lookup6").unwrap();
                let lookup = *library.get::<Lookup>(b"tl_test_lookup").unwrap();
                Header { library, lookup4, lookup6, lookup }
            }
        })
    }

    pub fn lookup4(&self, memory: &HeapMemory, id: u32, addr: u32) -> Option<u32> {
        let words = memory.words();
        // SAFETY: the header reads so many bytes from there, no more.
        let value = unsafe { (self.lookup4)(words.as_ptr().cast(), words.len() as u64 * 4, id, addr) };
        (value != 0).then_some(value)
    }

    pub fn lookup6(&self, memory: &HeapMemory, id: u32, addr: u128) -> Option<u32> {
        let (words, high, low) = (memory.words(), (addr >> 64) as u64, addr as u64);
        // SAFETY: as above.
        let value = unsafe { (self.lookup6)(words.as_ptr().cast(), words.len() as u64 * 4, id, high, low) };
        (value != 0).then_some(value)
    }

    /// For keys that are neither IPv4 nor IPv6 addresses.
    pub fn lookup<const BITS: u16, const BYTES: usize>(
        &self,
        memory: &HeapMemory,
        id: u32,
        key: Key<BITS, BYTES>,
    ) -> Option<u32> {
        let (words, bytes) = (memory.words(), key.bytes().as_ptr());
        // SAFETY: as above, and of the key it reads the bytes that `BITS` bits have.
        let value = unsafe {
            (self.lookup)(words.as_ptr().cast(), words.len() as u64 * 4, id, u32::from(BITS), bytes)
        };
        (value != 0).then_some(value)
    }

    /// The result in table `id` of any lookup with keys that do not have `bits` bits.
    pub fn others(&self, memory: &HeapMemory, id: u32, bits: u16) -> u32 {
        let words = memory.words();
        // SAFETY: the function has this type, and reads so many bytes from there.
        unsafe {
            let others = self.library.get::<Others>(b"tl_test_others").unwrap();
            others(words.as_ptr().cast(), words.len() as u64 * 4, id, bits.into())
        }
    }

    /// The value and the prefix length for address 0 of a table whose values carry it.
    pub fn matched(&self, memory: &HeapMemory, id: u32, bits: u16) -> (u32, u16) {
        let words = memory.words();
        // SAFETY: as above.
        let matched = unsafe {
            let matched = self.library.get::<Match>(b"tl_test_match").unwrap();
            matched(words.as_ptr().cast(), words.len() as u64 * 4, id, bits.into())
        };
        ((matched >> 32) as u32, matched as u16)
    }

    /// The root's ref for an IPv4 address in the table of root word `word`: what `tl_lookup4_n` loads first.
    pub fn root4(&self, memory: &HeapMemory, word: u32, addr: u32) -> u32 {
        let words = memory.words();
        // SAFETY: as above.
        unsafe {
            let root = self.library.get::<Root4>(b"tl_test_root4").unwrap();
            root(words.as_ptr().cast(), words.len() as u64 * 4, word, addr)
        }
    }

    /// The answer of `tl_lookup4_n` for the address with that ref, and the directory entry that was loaded before; 0 = none.
    pub fn finish4(&self, memory: &HeapMemory, id: u32, entry: u64, root: u32, addr: u32) -> u32 {
        let words = memory.words();
        // SAFETY: as above.
        unsafe {
            let finish = self.library.get::<Finish4>(b"tl_test_finish4").unwrap();
            finish(words.as_ptr().cast(), words.len() as u64 * 4, id, entry, root, addr)
        }
    }

    /// The facts of `tl_test_layout`.
    pub fn layout(&self) -> Vec<u64> {
        // SAFETY: an array and its length, both constant.
        unsafe {
            let len = **self.library.get::<*const u32>(b"tl_test_layout_len").unwrap();
            let first = *self.library.get::<*const u64>(b"tl_test_layout").unwrap();
            std::slice::from_raw_parts(first, len as usize).to_vec()
        }
    }
}
