//! Kernel, permissions, memory, and another daemon.

use super::finding::Finding;
use std::fs;
use std::path::Path;
use trieline_bpf::probe::bpf_is_locked_down;
use trieline_router::api::instance::{Instance, has_bpffs, is_hidden, refuse_realtime};
use trieline_router::probe;

/// The oldest kernel that trieline is tested with.
const OLDEST: (u32, u32) = (6, 1);
const SECURE_BOOT: &str = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c";

/// Findings about the host.
pub fn findings(instance: &Instance) -> Vec<Finding> {
    let mut findings = vec![kernel()];
    let probe = probe();
    if !probe.missing_capabilities.is_empty() {
        let what = format!("this process lacks {}", probe.missing_capabilities.join(", "));
        let mend = "run as root; in a container: --cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN, with the host's /sys/fs/bpf";
        findings.push(Finding::no_go("permissions", what, mend));
    } else if bpf_is_locked_down() {
        let what = "the kernel is locked down (confidentiality), which refuses BPF even to root";
        let mend = "boot with lockdown=integrity, or without Secure Boot";
        findings.push(Finding::no_go("lockdown", what, mend));
    } else {
        match (&probe.arena, &probe.array) {
            (Ok(()), _) => findings.push(Finding::go("bpf", "the kernel has BPF arenas")),
            (Err(why), Ok(())) => findings.push(Finding::warn(
                "bpf",
                format!("no BPF arena ({why}); tables take all their memory at once"),
                "a kernel from 6.9 on has arenas; trielined --image SIZE takes less memory",
            )),
            (Err(_), Err(why)) => findings.push(Finding::no_go(
                "bpf",
                format!("no map for the tables: {why}"),
                "a kernel from 6.1 on",
            )),
        }
        if let Err(why) = &probe.redirect {
            findings.push(Finding::no_go(
                "bpf",
                format!("no device maps: {why}"),
                "a kernel with CONFIG_XDP_SOCKETS and CONFIG_BPF_SYSCALL",
            ));
        }
    }
    if !Path::new("/sys/kernel/btf/vmlinux").exists() {
        let what = "the kernel has no BTF: receive handlers of devices stay unknown";
        findings.push(Finding::warn("kernel", what, "a kernel with CONFIG_DEBUG_INFO_BTF=y"));
    }
    // Only the first network namespace has the setting.
    if read("/proc/sys/net/core/bpf_jit_enable").as_deref() == Some("0") {
        findings.push(Finding::warn(
            "kernel",
            "BPF's compiler is off: packets take several times longer",
            "sysctl -w net.core.bpf_jit_enable=1",
        ));
    }
    if fs::read(SECURE_BOOT).is_ok_and(|bytes| bytes.get(4) == Some(&1)) {
        findings.push(Finding::go(
            "kernel",
            "Secure Boot is on, which does not hinder BPF without lockdown=confidentiality",
        ));
    }
    if let Err(error) = refuse_realtime() {
        findings.push(Finding::no_go("kernel", error.to_string(), "boot a kernel without PREEMPT_RT"));
    }
    findings.push(if has_bpffs() {
        Finding::go("bpffs", "a BPF file system is mounted on /sys/fs/bpf")
    } else if is_hidden() {
        Finding::no_go(
            "bpffs",
            "another /sys hides the system's BPF file system, as `ip netns exec` makes it",
            "trieline -n NETNS node check, without ip netns exec",
        )
    } else {
        Finding::warn(
            "bpffs",
            "no BPF file system on /sys/fs/bpf; trielined mounts one",
            "mount -t bpf bpf /sys/fs/bpf",
        )
    });
    if let Some(pid) = instance.runner() {
        let what = format!("trielined already runs in this network namespace (process {pid})");
        findings.push(Finding::no_go("trielined", what, "trieline node status; or systemctl stop trielined"));
    }
    findings
}

fn kernel() -> Finding {
    let release = rustix::system::uname();
    let release = release.release().to_string_lossy().into_owned();
    let what = format!("Linux {release}");
    match is_old(&release) {
        true => Finding::no_go(
            "kernel",
            format!("{what} is older than {}.{}", OLDEST.0, OLDEST.1),
            "boot Linux 6.1 or newer",
        ),
        false => Finding::go("kernel", what),
    }
}

fn is_old(release: &str) -> bool {
    let mut numbers = release.split(['.', '-', '+']).map(|number| number.parse::<u32>());
    matches!((numbers.next(), numbers.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < OLDEST)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// Bytes that processes may take without swapping.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// A finding if the limit of the tables is more than the free memory: a private copy is not made then.
pub fn too_little_memory(image_bytes: u64) -> Option<Finding> {
    let free = available(&read("/proc/meminfo")?)?;
    let short = short(image_bytes, free)?;
    Some(Finding::no_go("memory", short, "trielined --image SIZE, with a smaller SIZE"))
}

fn short(image_bytes: u64, free: u64) -> Option<String> {
    let what = format!(
        "the tables may take {} MiB, and {} MiB are free; nothing was built",
        image_bytes >> 20,
        free >> 20
    );
    (free < image_bytes).then_some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernels_are_known() {
        for (release, old) in [
            ("5.15.0-91-generic", true),
            ("6.0.9", true),
            ("6.1.0", false),
            ("6.18-rc1", false),
            ("x", false),
        ] {
            assert_eq!(is_old(release), old, "{release}");
        }
    }

    #[test]
    fn memory_is_compared_with_the_limit() {
        let free = available("MemTotal: 9 kB\nMemAvailable:    1024 kB\n");
        assert_eq!(free, Some(1 << 20));
        assert!(short(2 << 20, 1 << 20).is_some() && short(1 << 20, 1 << 20).is_none());
    }
}
