//! The abilities of this kernel and this process with BPF maps, with the reason for each that is missing.

use rustix::thread::{CapabilitySet, capabilities};

use crate::error::Error;
use crate::image_map::{ImageMap, ImageMapType};

/// Size of the map type that is tried.
const TRIAL_BYTES: u64 = 1 << 16;

impl ImageMapType {
    /// Whether this kernel has it and this process may use it; if not, why. Leaves nothing behind.
    pub fn probe(self) -> std::result::Result<(), String> {
        match ImageMap::create(self, TRIAL_BYTES) {
            Ok(_) => Ok(()),
            // The error of a kernel that does not know this type of map.
            Err(Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {
                Err(match self {
                    ImageMapType::Arena => {
                        "this kernel has none (Linux 6.9 or newer with CONFIG_BPF_JIT)".into()
                    }
                    ImageMapType::Array => {
                        "this kernel has none (trieline is tested on Linux 6.1 and newer)".into()
                    }
                })
            }
            Err(Error::Kernel { source, .. }) if source.raw_os_error() == Some(libc::ENOSYS) => {
                Err("this kernel has no BPF (CONFIG_BPF_SYSCALL)".into())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Capabilities this process lacks. CAP_SYS_ADMIN stands for the two BPF ones.
pub fn missing_capabilities() -> Vec<&'static str> {
    let Ok(sets) = capabilities(None) else { return Vec::new() };
    let has = |capability| sets.effective.contains(capability);
    let mut missing = Vec::new();
    if !has(CapabilitySet::SYS_ADMIN) {
        if !has(CapabilitySet::BPF) {
            missing.push("CAP_BPF");
        }
        if !has(CapabilitySet::PERFMON) {
            missing.push("CAP_PERFMON");
        }
    }
    if !has(CapabilitySet::NET_ADMIN) {
        missing.push("CAP_NET_ADMIN");
    }
    missing
}

/// Whether the kernel refuses BPF even to root.
pub fn bpf_is_locked_down() -> bool {
    std::fs::read_to_string("/sys/kernel/security/lockdown")
        .is_ok_and(|text| text.contains("[confidentiality]"))
}
