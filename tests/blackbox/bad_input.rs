//! A machine that is not as it should be: one line names the cause and the way out, nothing is half-attached, and the kernel forwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary_path, run, run_with, sh};
use trieline_testbed::daemon::{Daemon, Leftovers, Programs, trieline};
use trieline_testbed::{craft, eventually, needs_root};

/// A file system of 16 KiB, unmounted at the end.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        run(&format!("mount -t tmpfs -o size=16k,mode=700 none {}", folder.path().display())).ok();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Leaves no room.
    fn fill(&self) {
        let filler = self.path("filler").display().to_string();
        run_with("dd", &["if=/dev/zero", &format!("of={filler}"), "bs=1k"], "")
            .fails(1, &["No space left on device"]);
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        run(&format!("umount --lazy {}", self.folder.path().display()));
    }
}

/// The program refused with this exit code: one line has these words. Nothing is attached or pinned, and the kernel forwards.
#[track_caller]
fn refused(bed: &Bed, answer: Answer, code: i32, words: &[&str]) {
    let lines = answer.stderr.lines().filter(|line| line.starts_with("trielined: ")).count();
    assert_eq!(lines, 1, "{answer:?}");
    answer.fails(code, words);
    assert!(!bed.node.ip("link show").contains("xdp"), "a program is attached");
    let pins = format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode());
    assert!(!Path::new(&pins).exists(), "{pins} is left");
    assert_eq!(bed.send("10.50.0.1:9", "by the kernel", 5).counts(), (5, 5, 0));
}

/// A full disk under the state folder and under a sample: both are named once, and XDP forwards. Commands that write there fail with the cause.
#[test]
fn a_full_disk_stops_no_packet() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    let (disk, folder) = (SmallDisk::mount(), tempfile::tempdir().expect("a folder"));
    let list: String =
        (0..4000).map(|number| format!("203.{}.{}.0/24\n", number / 250, number % 250)).collect();
    fs::write(folder.path().join("bad"), list).expect("a file");
    let config = folder.path().join("trielined.toml");
    let text = format!(
        "devices = [\"n0\", \"n1\", \"n2\"]\n\
         [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[sid_hook]]\nname = \"look\"\nsid = \"fd00:c::1\"\npcap = \"{}\"\n",
        disk.path("look.pcapng").display()
    );
    fs::write(&config, text).expect("a file");
    let prepare = |command: &mut Command| {
        command.env("STATE_DIRECTORY", disk.folder.path()).arg("--config").arg(&config);
    };
    // (1) the copy of the filter's file finds no room
    let mut daemon = Daemon::launch(Programs::built(), &bed.node, prepare).expect("a daemon");
    daemon.ready(Duration::from_secs(60), || true).expect("ready");
    let named = |what: &str| daemon.log().lines().filter(|line| line.contains(what)).count();
    assert_eq!(named("cannot keep a copy of"), 1, "{}", daemon.log());
    assert!(daemon.log().contains("No space left on device"), "{}", daemon.log());
    // (2) neither do the packets of the sample
    let inside = craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(&[b'x'; 1000])), |_| {});
    let sid = craft::ipv6("fd00::2", "fd00:c::1", (41, &inside), |_| {});
    for _ in 0..300 {
        trieline_testbed::packets::send_ip(&bed.generator, &sid);
    }
    assert!(eventually(20.0, || named("sample has ended") == 1), "{}", daemon.log());
    assert_eq!(bed.send_ip(&sid, b"xxxxxxxx").counts(), (0, 1, 0), "packets to the SID go on");
    bed.becomes("a full disk", "10.50.0.1:9", (0, 5, 0));
    // (3) a reload that writes there, and commands
    disk.fill();
    trieline(&bed.node, "filter reload").ok();
    bed.becomes("reloaded", "10.50.0.1:9", (0, 5, 0));
    for command in ["node report -o", "capture -w"] {
        let file = disk.path("out").display().to_string();
        let words = format!("timeout 20 {} -n {} {command} {file}", binary_path("trieline"), bed.node.name());
        run(&words).fails(1, &["No space left on device"]);
        let _ = fs::remove_file(disk.path("out"));
    }
}

/// One of two devices refuses the program at a first start: the other one does not stay attached.
#[test]
fn no_device_stays_half_attached() {
    needs_root!();
    let bed = Bed::routed();
    // Both kinds have no native XDP.
    if bed.node.try_ip("link add d0 type dummy").code != 0 {
        bed.node.ip("link add d0 type bridge");
    }
    bed.node.ip("link set d0 up");
    for devices in ["--dev n0 --dev d0", "--dev d0 --dev n0 --dev n1"] {
        refused(&bed, Daemon::refused(&bed.node, devices), 1, &["d0", "generic"]);
    }
}

/// Without a BPF file system trielined mounts one. `errors::a_failed_detach_prints_only_its_error` has one that is only out of sight.
#[test]
fn without_a_bpf_file_system_one_is_mounted() {
    needs_root!();
    let bed = Bed::routed();
    // Process 1 of this process namespace has none either.
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").display().to_string();
    let script = format!(
        "mount -t proc proc /proc; umount /sys/fs/bpf; {} --dev n0 --dev n1 2>{log} & daemon=$!; \
         for _ in $(seq 100); do ! grep -q ready_ms= {log} || break; sleep 0.1; done; \
         grep ' /sys/fs/bpf ' /proc/self/mountinfo; ip link show dev n0; kill $daemon; wait $daemon; cat {log}",
        binary_path("trielined")
    );
    let netns = format!("--net=/run/netns/{}", bed.node.name());
    let words = [&netns, "unshare", "--mount", "--pid", "--fork", "timeout", "60", "sh", "-ec", &script];
    let printed = run_with("nsenter", &words, "").ok();
    assert!(printed.contains(" - bpf ") && printed.contains("xdp"), "{printed}");
    assert!(printed.contains("forwarding"), "{printed}");
    // The file system went with its mount namespace, and the links with their pins.
    assert!(eventually(10.0, || !bed.node.ip("link show").contains("xdp")), "a program is attached");
}

/// Under lockdown the kernel refuses BPF with EPERM even to root: the error names the lockdown and what to boot, and so does `node check`.
#[test]
fn lockdown_is_named() {
    needs_root!();
    let bed = Bed::routed();
    if !Path::new("/sys/kernel/security").is_dir() {
        return trieline_testbed::skip("this kernel has no securityfs");
    }
    let lockdown = "mount -t tmpfs none /sys/kernel/security; \
                    echo 'none integrity [confidentiality]' >/sys/kernel/security/lockdown; ";
    let fault = format!("{lockdown}set -- strace -f -o /dev/null -e trace=bpf -e inject=bpf:error=EPERM; ");
    let netns = format!("--net=/run/netns/{}", bed.node.name());
    let program = binary_path("trielined");
    let line = format!("{fault}exec timeout 60 \"$@\" {program} --dev n0 --dev n1");
    let answer = run_with("nsenter", &[&netns, "unshare", "--mount", "sh", "-ec", &line], "");
    refused(&bed, answer, 1, &["lockdown permits no BPF", "boot without lockdown=confidentiality"]);
    let line = format!("{lockdown}exec {} -j node check --dev n0", binary_path("trieline"));
    let answer = run_with("nsenter", &[&netns, "unshare", "--mount", "sh", "-ec", &line], "");
    assert_eq!(answer.code, 1, "{answer:?}");
    let document: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let findings = document["findings"].as_array().expect("findings");
    let found = findings.iter().find(|found| found["about"] == "lockdown").expect("a finding");
    assert!(
        found["level"] == "no-go" && found["mend"].to_string().contains("lockdown=integrity"),
        "{found:#}"
    );
}

/// Root of a container without capabilities: the error names them.
#[test]
fn a_container_without_capabilities_is_named() {
    needs_root!();
    let bed = Bed::routed();
    let none = "set -- setpriv --bounding-set=-all --inh-caps=-all; ";
    let line = format!("{none}exec timeout 20 \"$@\" {} --dev n0 --dev n1", binary_path("trielined"));
    let netns = format!("--net=/run/netns/{}", bed.node.name());
    let answer = run_with("nsenter", &[&netns, "sh", "-ec", &line], "");
    refused(&bed, answer, 1, &["CAP_BPF", "CAP_NET_ADMIN", "run as root"]);
}

/// A configuration of a newer version: file, line and key, the likely key if there is one, and that a newer version may have it.
#[test]
fn a_configuration_of_a_newer_version_is_named() {
    needs_root!();
    let bed = Bed::routed();
    let _leftovers = Leftovers(&bed.node);
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    let version = sh(&format!("{} --version", binary_path("trielined")));
    let version = version.trim().rsplit(' ').next().expect("a version");
    let newer = format!("trieline {version} does not have it, a newer version may");
    for (text, words) in [
        (
            "devices = [\"n0\"]\nhardware_offload = true\n",
            vec!["line 2", "`hardware_offload`", &newer, "known are devices"],
        ),
        ("devices = [\"n0\"]\n[telemetry]\nrate = 1\n", vec!["line 2", "`telemetry`", &newer]),
        (
            "devices = [\"n0\"]\nmax_stales = \"9s\"\n",
            vec!["line 2", "`max_stales`", "did you mean `max_stale`?"],
        ),
    ] {
        fs::write(&config, text).expect("a file");
        let path = config.display().to_string();
        let words: Vec<&str> = words.into_iter().chain([path.as_str()]).collect();
        refused(&bed, Daemon::refused(&bed.node, &format!("--config {path}")), 78, &words);
    }
}
