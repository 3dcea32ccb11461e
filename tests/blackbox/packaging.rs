//! The units of systemd: what they forbid the daemon does not need, and systemd understands them.

use crate::metrics::scraper::{OPENMETRICS, Server};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary, binary_path, run, run_with};
use trieline_testbed::daemon::{Daemon, Leftovers, trieline};
use trieline_testbed::{craft, eventually, needs_root, skip};

const UNITS: [&str; 2] = ["trielined.service", "trielined@.service"];
const METRICS: [&str; 2] = ["trieline-metrics.service", "trieline-metrics@.service"];

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(name);
    std::fs::read_to_string(path).expect("a unit")
}

/// The values of a key, one line each.
fn values<'a>(unit: &'a str, key: &str) -> Vec<&'a str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// The system calls of names and groups (`@file-system`).
fn calls(words: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for word in words.split_whitespace() {
        if !word.starts_with('@') {
            all.insert(word.to_owned());
            continue;
        }
        let listed = run_with("systemd-analyze", &["--no-pager", "syscall-filter", word], "").ok();
        let members = listed.lines().skip(1).filter(|line| !line.trim().starts_with('#'));
        all.extend(calls(&members.collect::<Vec<_>>().join("\n")));
    }
    all
}

/// The system calls that a unit allows the daemon.
fn allowed(unit: &str) -> BTreeSet<String> {
    let mut allowed = BTreeSet::new();
    for value in values(unit, "SystemCallFilter") {
        match value.strip_prefix('~') {
            Some(denied) => {
                let denied = calls(denied);
                allowed.retain(|call| !denied.contains(call));
            }
            None => allowed.extend(calls(value)),
        }
    }
    allowed
}

/// systemd reads all units, and calls none exposed.
#[test]
fn systemd_takes_the_units() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = Path::new(&binary_path("trielined")).parent().expect("a folder").display().to_string();
    for (name, threshold) in [(UNITS[0], 45), (UNITS[1], 45), (METRICS[0], 20), (METRICS[1], 20)] {
        // systemd looks whether the programs are there.
        std::fs::write(folder.path().join(name), unit(name).replace("/usr/sbin", &programs)).expect("a file");
        let path = folder.path().join(name.replace('@', "@red")).display().to_string();
        let printed = run_with("systemd-analyze", &["verify", "--man=no", &path], "");
        assert!(printed.code == 0 && printed.stderr.is_empty(), "{name}: {printed:?}");
        let path = folder.path().join(name).display().to_string();
        let words = ["--no-pager", "security", "--offline=true", &format!("--threshold={threshold}"), &path];
        run_with("systemd-analyze", &words, "").ok();
    }
    // The advice about memory is a line that systemd takes.
    for name in UNITS {
        let text = unit(name);
        let advice =
            text.lines().find_map(|line| line.rsplit_once(": MemoryMax=")).expect("advice about MemoryMax");
        let limit = format!("Type=notify\nMemoryMax={}\n", advice.1.trim_end_matches('.'));
        let text = text.replace("/usr/sbin", &programs).replace("Type=notify\n", &limit);
        let path = folder.path().join(name.replace('@', "@red"));
        std::fs::write(&path, text).expect("a file");
        let path = path.display().to_string();
        let printed = run_with("systemd-analyze", &["verify", "--man=no", &path], "");
        assert!(printed.code == 0 && printed.stderr.is_empty(), "{name}: {printed:?}");
    }
    // All but where they run is the same in both.
    let of_service = |name| -> Vec<String> {
        let unit = unit(name);
        let (_, service) = unit.split_once("[Service]").expect("a service");
        let own = |line: &&str| {
            ["#", "ExecStart=", "NetworkNamespacePath=", "PrivateMounts="]
                .iter()
                .all(|key| !line.starts_with(key))
        };
        service.lines().filter(own).map(str::to_owned).collect()
    };
    for [own, named] in [UNITS, METRICS] {
        assert_eq!(of_service(own), of_service(named), "{named}");
    }
}

/// A daemon with no more capabilities than the unit gives it starts with filters, SID hooks and tenants. It follows, reloads, answers,
/// restarts and makes new tables. The unit's filter takes away none of its system calls or those of a reload, nor one of its kinds of
/// sockets.
#[test]
fn the_unit_forbids_nothing_that_is_needed() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("bad"), "203.0.113.0/24\n").expect("a file");
    let text = "devices = [\"n0\", \"n1\", \"n2\"]\nimage = \"16M\"\n\
         [[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"n2\"]\n\
         [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[sid_hook]]\nname = \"look\"\nsid = \"fd00:c::1\"\npcap = \"look.pcapng\"\n";
    std::fs::write(path("trielined.toml"), text).expect("a file");
    let unit = unit(UNITS[0]);
    let capabilities = values(&unit, "CapabilityBoundingSet")[0].to_lowercase();
    let capabilities = capabilities.split_whitespace().map(|one| one.trim_start_matches("cap_"));
    let capabilities = capabilities.fold("-all".to_owned(), |all, one| format!("{all},+{one}"));
    let trace = path("calls").display().to_string();
    let traced = |program: &str| {
        let mut command = Command::new("strace");
        command.args([
            "-f",
            "-A",
            "-o",
            &trace,
            "setpriv",
            "--no-new-privs",
            "--bounding-set",
            &capabilities,
        ]);
        command.arg(binary(program)).args(["-n", bed.node.name()]).env("NO_COLOR", "1").stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(std::fs::File::create(path("log")).expect("a log"));
        command
    };
    let log = || std::fs::read_to_string(path("log")).unwrap_or_default();
    let _leftovers = Leftovers(&bed.node);
    let config = path("trielined.toml").display().to_string();
    for more in [&[][..], &[], &["--image", "32M"]] {
        let mut child =
            traced("trielined").args(["--config", &config]).args(more).spawn().expect("strace starts");
        assert!(
            eventually(30.0, || log().contains("ready_ms=") || !matches!(child.try_wait(), Ok(None))),
            "{}",
            log()
        );
        let pid = trieline_testbed::daemon::status(&bed.node)["pid"].as_u64();
        let pid = pid.unwrap_or_else(|| panic!("it ended: {}", log()));
        bed.node.ip("route replace 10.60.0.0/16 via 10.1.0.2");
        bed.becomes("it follows", "10.60.0.1:9", (0, 5, 0));
        let sid = craft::ipv6(
            "fd00::2",
            "fd00:c::1",
            (41, &craft::ipv6("fd00::2", "fd50::1", (17, &craft::udp(b"inside")), |_| {})),
            |_| {},
        );
        bed.send_ip(&sid, b"inside");
        run(&format!("kill -HUP {pid}")).ok();
        assert!(eventually(10.0, || log().contains("reloaded")), "{}", log());
        trieline(&bed.node, "filter reload").ok();
        for question in ["node status", "sid show", "route show", "route get 10.60.0.1"] {
            trieline(&bed.node, question).ok();
        }
        std::thread::sleep(std::time::Duration::from_millis(1500));
        run(&format!("kill -TERM {pid}")).ok();
        child.wait().expect("it ends");
    }
    let mut child = traced("trieline").args(["node", "reload"]).spawn().expect("strace starts");
    child.wait().expect("it ends");
    // strace writes the calls of setpriv, too, up to its exec of the program.
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let mut own = BTreeSet::new();
    let (mut calls, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let Some((pid, call)) = line.split_once(' ') else { continue };
        let call = call.trim_start();
        let call = call.strip_prefix("<... ").unwrap_or(call);
        let name: String = call.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        if name == "execve" && call.contains("/trieline") {
            own.insert(pid.to_owned());
        } else if name == "clone3" || name == "clone" {
            own.extend(call.rsplit_once("= ").map(|(_, thread)| thread.to_owned()));
        }
        // systemd enters the namespace before the program begins, where the test has `-n`.
        if own.contains(pid) && !name.is_empty() && name != "setns" {
            if let (true, Some((_, family))) = (name == "socket", call.split_once('(')) {
                sockets.extend(family.split(',').next().map(str::to_owned));
            }
            calls.insert(name);
        }
    }
    assert!(calls.contains("bpf") && calls.contains("ppoll") | calls.contains("poll"), "{calls:?}");
    for name in UNITS {
        let unit = self::unit(name);
        let allowed = allowed(&unit);
        let forbidden: Vec<_> = calls.iter().filter(|call| !allowed.contains(*call)).collect();
        assert!(forbidden.is_empty(), "{name} forbids {forbidden:?}");
        let families: BTreeSet<&str> =
            values(&unit, "RestrictAddressFamilies")[0].split_whitespace().collect();
        let forbidden: Vec<_> = sockets.iter().filter(|family| !families.contains(family.as_str())).collect();
        assert!(forbidden.is_empty(), "{name} forbids {forbidden:?}");
    }
}

/// The server of metrics makes no system call that its unit forbids.
#[test]
fn the_unit_of_metrics_forbids_nothing_that_is_needed() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, "--dev n0");
    let folder = tempfile::tempdir().expect("a folder");
    let trace = folder.path().join("calls").display().to_string();
    // With -D the program is the child, which the test ends.
    let server = Server::start(&bed.node, &["strace", "-D", "-f", "-o", &trace]);
    assert_eq!(server.scrape(OPENMETRICS).value("trieline_up"), 1.0);
    drop(server);
    let text = std::fs::read_to_string(&trace).expect("a trace");
    let name = |line: &str| {
        let (_, call) = line.split_once(' ')?;
        let (name, _) = call.trim_start().split_once('(')?;
        name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_').then(|| name.to_owned())
    };
    let calls: BTreeSet<String> = text.lines().filter_map(name).collect();
    assert!(calls.contains("accept4") && calls.contains("connect"), "{calls:?}");
    let unit = unit(METRICS[0]);
    let allowed = allowed(&unit);
    let forbidden: Vec<_> = calls.difference(&allowed).collect();
    assert!(forbidden.is_empty(), "{} forbids {forbidden:?}", METRICS[0]);
}

/// `capi/install` of a library for another processor takes that processor's tools.
#[test]
fn the_library_installs_for_another_processor() {
    if run("which aarch64-linux-gnu-ld").code != 0 {
        return skip("binutils-aarch64-linux-gnu is not installed");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("a.c"), "int trieline_probe(void) { return 7; }\n").expect("a source");
    let (source, object, shared, archive) =
        (path("a.c"), path("a.o"), path("libtrieline.so"), path("libtrieline.a"));
    run(&format!("clang-19 --target=aarch64-linux-gnu -ffreestanding -fPIC -c {source} -o {object}")).ok();
    run(&format!("aarch64-linux-gnu-ld -shared {object} -o {shared}")).ok();
    run(&format!("aarch64-linux-gnu-ar rcs {archive} {object}")).ok();
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../capi/install");
    run(&format!("env DESTDIR={} {install} {} /usr", path("to"), folder.path().display())).ok();
    for name in ["libtrieline.so.0", "libtrieline.a"] {
        let header = run(&format!("readelf -h {}/usr/lib/{name}", path("to"))).ok();
        assert!(header.contains("AArch64"), "{name}: {header}");
    }
    let names = run(&format!("aarch64-linux-gnu-nm -g {}/usr/lib/libtrieline.a", path("to"))).ok();
    assert!(names.contains(" T trieline_probe"), "{names}");
}
