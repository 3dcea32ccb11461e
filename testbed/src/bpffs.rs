//! A BPF file system of a test's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A BPF file system of a test's own, unmounted at the end.
pub struct BpfFs(PathBuf);

impl BpfFs {
    /// Mounts it at a folder for temporary files.
    #[track_caller]
    pub fn mount() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tlbpf-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        let none: Option<&std::ffi::CStr> = None;
        rustix::mount::mount("bpf", &path, "bpf", rustix::mount::MountFlags::empty(), none).unwrap();
        Self(path)
    }

    /// Where it is.
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
