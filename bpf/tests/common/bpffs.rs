//! For tests of every box that uses BPF: when to skip, the map types there are, a BPF file system of a test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use trieline_bpf::ImageMapType;

#[path = "../../../tests/src/skip.rs"]
pub mod no_skip;

/// Why the tests of this file cannot run here. TRIELINE_NO_SKIP=1 makes that a failure.
pub fn skip(what: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return false;
    }
    no_skip::skip(&format!("{what}: needs root"));
    true
}

/// Homes of this kernel. The arena may be missing (Linux 6.1), the array may not.
pub fn map_types() -> Vec<ImageMapType> {
    assert_eq!(ImageMapType::Array.probe(), Ok(()));
    match ImageMapType::Arena.probe() {
        Ok(()) => vec![ImageMapType::Array, ImageMapType::Arena],
        Err(reason) => {
            println!("SKIP: arena: {reason}");
            vec![ImageMapType::Array]
        }
    }
}

/// A BPF file system of a test's own, unmounted at the end.
pub struct BpfFs(PathBuf);

impl BpfFs {
    pub fn mount() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tlbpf-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let none: Option<&std::ffi::CStr> = None;
        rustix::mount::mount("bpf", &path, "bpf", rustix::mount::MountFlags::empty(), none).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH).ok();
        fs::remove_dir(&self.0).ok();
    }
}
