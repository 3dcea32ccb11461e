//! Parts of the kernel that may be missing. Asked for one that is, the kernel starts `modprobe`, each time.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// A part, and the modules that bring it.
#[derive(Debug)]
pub struct Part {
    modules: &'static [&'static str],
    missing: AtomicBool,
}

impl Part {
    /// Nothing is known of it yet.
    pub const fn new(modules: &'static [&'static str]) -> Self {
        Self { modules, missing: AtomicBool::new(false) }
    }

    /// Whether it was found missing, and none of its modules was loaded since. Then trielined sends it no requests.
    pub fn is_missing(&self) -> bool {
        let loaded = |module: &&str| Path::new("/sys/module").join(module).exists();
        self.missing.load(Ordering::Relaxed) && !self.modules.iter().any(loaded)
    }

    /// It was found to be missing.
    pub fn miss(&self) {
        self.missing.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_part_is_requested_once_its_module_is_loaded() {
        let (gone, there) = (Part::new(&["no_such_module"]), Part::new(&["no_such_module", "kernel"]));
        assert!(!gone.is_missing());
        gone.miss();
        there.miss();
        assert!(gone.is_missing());
        // /sys/module/kernel is always there.
        assert!(!there.is_missing());
    }
}
