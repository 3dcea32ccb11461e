//! The permissions of this process to use BPF, with the reason for each that is missing.

use rustix::thread::{CapabilitySet, capabilities};

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
