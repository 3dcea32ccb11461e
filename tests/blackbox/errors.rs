//! Bad input ends in one clear message, and what forwards goes on forwarding.

use crate::status;
use std::io::Write;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run, run_with};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::{needs_root, root};

/// A dummy device has no native XDP: the message says so and names the generic mode, which then works.
#[test]
fn a_device_without_native_xdp_is_named() {
    needs_root!();
    let namespace = Namespace::new("dummy");
    if namespace.try_ip("link add dummy0 type dummy").code != 0 {
        // Where dummy devices are not built, bridges (another device without native XDP) mostly are.
        if namespace.try_ip("link add dummy0 type bridge").code != 0 {
            trieline_testbed::skip("this kernel has neither dummy devices nor bridges");
            return;
        }
    }
    namespace.ip("link set dummy0 up");
    Daemon::refused(&namespace, "--dev dummy0").fails(1, &["dummy0", "generic"]);
    let _daemon = Daemon::start(&namespace, "--dev dummy0 --generic");
    assert!(namespace.ip("link show dev dummy0").contains("xdpgeneric"));
}

#[test]
fn an_unknown_namespace_is_named() {
    needs_root!();
    let answer = run_with(&binary_path("trieline"), &["-n", "tlbb-nosuch", "node", "status"], "");
    answer.fails(1, &["tlbb-nosuch"]);
    assert_eq!(answer.stderr.matches("os error 2").count(), 1, "the reason is not there once: {answer:?}");
    let answer = run_with(&binary_path("trielined"), &["-n", "tlbb-nosuch", "--dev", "x"], "");
    answer.fails(1, &["tlbb-nosuch"]);
}

/// `-n` holds for the programs behind `lab`, `demo` and `trace`, too.
#[test]
fn other_programs_run_in_the_namespace() {
    if !root() {
        return;
    }
    for words in [&["lab", "list"][..], &["demo", "--help"], &["trace", "--help"]] {
        let unknown = [&["-n", "tlbb-nosuch"], words].concat();
        run_with(&binary_path("trieline"), &unknown, "").fails(1, &["tlbb-nosuch"]);
        let namespace = Namespace::new("other");
        let known = [&["-n", namespace.name()], words].concat();
        run_with(&binary_path("trieline"), &known, "").ok();
    }
}

/// As another user: the error names the missing right, and does not claim that no daemon runs when one does.
#[test]
fn commands_without_root_report_the_missing_rights() {
    needs_root!();
    let bed = Bed::new();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    // The binaries may lie where other users may not go.
    let directory = std::env::temp_dir().join(format!("tlbb-{}-bin", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let copy = |name: &str| {
        let copy = directory.join(name);
        // Not by this process: a child that another test starts meanwhile would hold the copy open for writing.
        run(&format!("cp {} {}", binary_path(name), copy.display())).ok();
        copy.to_string_lossy().into_owned()
    };
    let (trieline, trielined) = (copy("trieline"), copy("trielined"));
    run(&format!("chmod -R 755 {}", directory.to_string_lossy())).ok();
    let nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups timeout 20";
    let name = bed.node.name();
    let refused = [
        run(&format!("{nobody} {trielined} --dev lo")),
        run(&format!("{nobody} {trieline} -n {name} node status")),
        run(&format!("nsenter --net=/run/netns/{name} {nobody} {trieline} route show")),
        run(&format!("nsenter --net=/run/netns/{name} {nobody} {trieline} route get 10.2.0.2")),
        run(&format!("nsenter --net=/run/netns/{name} {nobody} {trieline} node detach")),
    ];
    std::fs::remove_dir_all(&directory).expect("removed");
    for answer in refused {
        answer.fails(1, &["root"]);
        assert!(!answer.stderr.contains("does not run"), "{answer:?}");
    }
}

/// `ip netns exec` hides the pins: nothing is detached, and nothing is said to be.
#[test]
fn a_failed_detach_prints_only_its_error() {
    needs_root!();
    let bed = Bed::new();
    let _daemon = Daemon::start(&bed.node, "--dev n0");
    let answer = bed.node.run(&format!("{} node detach", binary_path("trieline")));
    answer.fails(1, &["ip netns exec", "-n"]);
    assert!(!answer.stderr.contains("without devices"), "{answer:?}");
    let answer = trieline(&bed.node, "node detach");
    assert!(answer.stderr.contains("without devices"), "{answer:?}");
    assert_eq!(answer.ok().trim(), "detached from 1 device");
    assert!(trieline(&bed.node, "node status").ok().contains("dev n0 detached"));
}

/// An address of the other family than -4 or -6 asks for is a mistake; `default` is the default route of either.
#[test]
fn families_are_kept_apart() {
    needs_root!();
    let bed = Bed::new();
    bed.node.ip("route add default via 10.1.0.2");
    bed.node.ip("-6 route add default dev n1");
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1");
    trieline(&bed.node, "-6 route get 10.2.0.2").fails(2, &["10.2.0.2", "IPv6"]);
    trieline(&bed.node, "-4 route get fd00::1").fails(2, &["fd00::1", "IPv4"]);
    trieline(&bed.node, "-4 route show fd00::/8").fails(2, &["fd00::/8", "IPv4"]);
    for (family, routes) in [("", 2), ("-4", 1), ("-6", 1)] {
        let shown = trieline(&bed.node, &format!("{family} route show default")).ok();
        let all = shown.lines().all(|line| line.starts_with("default "));
        assert!(all && shown.lines().count() == routes, "{family} route show default: {shown}");
    }
}

/// Configuration: wrong keys and values are errors with file, line and suggestion; `--check` starts nothing.
#[test]
fn bad_configuration_is_explained() {
    let check = |content: &str| {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(content.as_bytes()).expect("written");
        let path = file.path().to_string_lossy().into_owned();
        let answer = run_with(&binary_path("trielined"), &["--check", "--config", &path], "");
        (answer, path)
    };
    // (1) a misspelt key
    let (answer, path) = check("# interfaces\ndevises = [\"eth1\"]\n");
    answer.fails(1, &[&path, "2", "devises", "devices"]);
    // (2) no TOML at all
    let (answer, path) = check("interfaces = [\n");
    answer.fails(1, &[&path]);
    // (3) a file that is not there
    let answer =
        run_with(&binary_path("trielined"), &["--check", "--config", "/nonexistent/trielined.toml"], "");
    answer.fails(1, &["/nonexistent/trielined.toml"]);
    // (4) values that cannot be; no devices at all
    let (answer, path) = check("devices = [\"eth1\"]\nmap_type = \"array\"\nimage = \"1G\"\n");
    answer.fails(1, &[&path, "line 3", "image", "512M"]);
    let (answer, path) = check("generic = true\n");
    answer.fails(1, &[&path, "no devices", "--dev"]);
    let (answer, path) = check("devices = [\"eth1\"]\n");
    assert_eq!(answer.ok(), format!("{path}: ok\n"));
    run_with(&binary_path("trielined"), &["--check", "--dev", ""], "")
        .fails(2, &["invalid \"\" for a device name"]);
    // (5) what it names: the line where it does, and that of the filter's file
    let folder = tempfile::tempdir().expect("a folder");
    let set = folder.path().join("set.txt");
    std::fs::write(&set, "192.0.2.0/24\n192.0.2.x\n").expect("written");
    let set = set.display().to_string();
    let filter = |file: &str| {
        format!(
            "devices = [\"eth1\"]\n[[filter]]\nname = \"threats\"\nfile = \"{file}\"\nmatch = \"source\"\naction = \"drop\"\n"
        )
    };
    let (answer, path) = check(&filter(&set));
    answer.fails(1, &[&format!("{path}: line 4: filter threats: "), &format!("{set}:2: "), "192.0.2.x"]);
    let (answer, path) = check(&filter("/nonexistent/set"));
    answer.fails(1, &[&format!("{path}: line 4: filter threats: "), "/nonexistent/set"]);
    let sid_hook = |what: &str| {
        format!("devices = [\"eth1\"]\n[[sid_hook]]\nname = \"mine\"\nsid = \"fd00::1\"\n{what}\n")
    };
    let (answer, path) = check(&sid_hook("pcap = \"/nonexistent/look.pcapng\""));
    answer.fails(1, &[&format!("{path}: line 5: sid_hook: mine: /nonexistent: no such folder")]);
    if root() {
        let (answer, path) = check(&sid_hook("program = \"/sys/fs/bpf/none\""));
        answer.fails(1, &[&format!("{path}: line 5: sid_hook: mine: "), "/sys/fs/bpf/none"]);
        let (answer, path) = check(&sid_hook(&format!("program = \"{set}\"")));
        answer.fails(
            1,
            &[&format!(
                "{path}: line 5: sid_hook: mine: {set}: no program is pinned there; expected an XDP program"
            )],
        );
    }
    // (6) the sample that ships
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/trielined.toml");
    if std::path::Path::new(sample).exists() {
        run_with(&binary_path("trielined"), &["--check", "--config", sample, "--dev", "eth0"], "").ok();
    }
}

/// Usage errors exit with 2, answers of "no" with 1, a closed pipe is success.
#[test]
fn exit_codes_mean_something() {
    needs_root!();
    let namespace = Namespace::new("empty");
    trieline(&namespace, "route frobnicate").fails(2, &["frobnicate"]);
    trieline(&namespace, "route get").fails(2, &[]);
    // No daemon here: said, not hung.
    trieline(&namespace, "route show").fails(1, &["trielined"]);
    trieline(&namespace, "node status").fails(1, &["no trielined was started", "-n NETNS"]);
    // Numbers that nothing sensible can be done with.
    for words in ["lab run forward --rounds 0", "lab table --ipv4 99999999999", "demo --ipv4 0 --ipv6 0"] {
        run(&format!("{} {words}", binary_path("trieline"))).fails(2, &["expected"]);
    }
    let help = run_with(&binary_path("trieline"), &["--help"], "");
    assert!(help.ok().contains("route"));
    // Somebody reads one line of many and goes.
    let many = format!("{} lab table --ipv4 100000 --ipv6 1000 --seed 1", binary_path("trieline"));
    let piped = run_with("sh", &["-c", &format!("{{ {many}; echo code $? >&2; }} | head -n 1")], "");
    assert!(piped.stderr.trim() == "code 0" && piped.stdout.lines().count() == 1, "{piped:?}");
}

/// A table file with a bad line: file, line and text are named.
#[test]
fn a_bad_prefix_is_found() {
    needs_root!();
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"# good\n10.0.0.0/8 1\n10.0.0.0/33 2\n").expect("written");
    let path = file.path().to_string_lossy().into_owned();
    let words = ["lab", "run", "--busy", "map-tables", "--quick", "--table", &path];
    let answer = run_with(&binary_path("trieline"), &words, "");
    answer.fails(1, &[&path, "3", "10.0.0.0/33"]);
}

/// More routes than the memory holds: said, counted, and what was there goes on.
#[test]
fn a_table_larger_than_the_memory_leaves_the_old_state() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.2");
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2 --image 1M");
    assert_eq!(bed.send("10.50.0.1:9", "before", 5).counts(), (0, 5, 0));
    // 200,000 prefixes with different neighbours so that nothing can be folded together
    let mut lines = String::new();
    for number in 0..200_000u32 {
        let address = std::net::Ipv4Addr::from(0x1400_0000 + (number << 7));
        let gateway = if number % 2 == 0 { "10.1.0.2" } else { "10.2.0.2" };
        lines += &format!("route add {address}/26 via {gateway}\n");
    }
    bed.node.ip_batch(&[], &lines).ok();
    let printed = trieline_testbed::eventually(20.0, || status::full(&bed.node) > 0);
    let seen = bed.send("10.50.0.1:9", "after", 5);
    assert_eq!((seen.sink.len(), seen.side.len()), (5, 0), "what was forwarded is not delivered any more");
    assert!(printed, "node status does not say that the memory is full");
}

/// Notes that are not errors: `--check` notes a device that does not exist and a veth that native XDP makes slower. The daemon warns of the
/// veth before it attaches, and `node status` has the hint.
#[test]
fn slower_and_missing_devices_are_noted() {
    needs_root!();
    let namespace = Namespace::new("notes");
    namespace.ip("link add v0 type veth peer name v1");
    let check = |args: &str| {
        let line = format!("-n {} --check --dev v0 --dev ghost {args}", namespace.name());
        let words: Vec<&str> = line.split_whitespace().collect();
        let answer = run_with(&binary_path("trielined"), &words, "");
        assert_eq!((answer.code, answer.stdout.as_str()), (0, "command line: ok\n"), "{answer:?}");
        answer.stderr
    };
    let (native, generic) = (check(""), check("--generic"));
    assert!(
        native.contains("ghost: no such device") && native.contains("v0: native XDP on a veth"),
        "{native}"
    );
    assert!(generic.contains("ghost: no such device") && !generic.contains("v0:"), "{generic}");
    let daemon = Daemon::start(&namespace, "--dev v0");
    let log = daemon.log();
    let at = |text: &str| log.find(text).unwrap_or_else(|| panic!("no {text:?} in {log}"));
    assert!(at("native XDP on a veth") < at("forwarding routes"), "{log}");
    let printed = trieline(&namespace, "node status").ok();
    assert!(printed.contains("hint: native XDP on a veth"), "{printed}");
    // If this kernel cannot list its hooks, only a kernel with IPVS is reported.
    let ipvs = std::path::Path::new("/proc/net/ip_vs").exists();
    assert_eq!((printed.contains("IPVS"), log.contains("IPVS")), (ipvs, ipvs), "{printed}{log}");
}
