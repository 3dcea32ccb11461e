//! Bad input ends in one clear message, and what forwards goes on forwarding.

use crate::status;
use std::io::Write;
use trieline_tests::bed::Bed;
use trieline_tests::command::{binary, binary_path, run, run_with};
use trieline_tests::daemon::{Daemon, trieline};
use trieline_tests::namespace::Namespace;
use trieline_tests::root;

#[test]
fn an_unknown_device_is_named() {
    if !root() {
        return;
    }
    let namespace = Namespace::new("empty");
    Daemon::refused(&namespace, "--dev nosuch0").fails(1, &["nosuch0"]);
}

/// A dummy device has no native XDP: the message says so and names the generic mode, which then works.
#[test]
fn a_device_without_native_xdp_is_named() {
    if !root() {
        return;
    }
    let namespace = Namespace::new("dummy");
    if namespace.try_ip("link add dummy0 type dummy").code != 0 {
        // Where dummy devices are not built, bridges (another device without native XDP) mostly are.
        if namespace.try_ip("link add dummy0 type bridge").code != 0 {
            trieline_tests::skip("this kernel has neither dummy devices nor bridges");
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
    if !root() {
        return;
    }
    let answer = run_with(&binary_path("trieline"), &["-n", "tlbb-nosuch", "node", "status"], "");
    answer.fails(1, &["tlbb-nosuch"]);
    let answer =
        run_with("timeout", &["20", &binary_path("trielined"), "-n", "tlbb-nosuch", "--dev", "x"], "");
    answer.fails(1, &["tlbb-nosuch"]);
}

/// As another user: the message says what is missing.
#[test]
fn without_root_it_says_so() {
    if !root() {
        return;
    }
    // The binaries may lie where nobody else may go.
    let directory = std::env::temp_dir().join(format!("tlbb-{}-bin", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let copy = directory.join("trielined");
    std::fs::copy(binary("trielined"), &copy).expect("a copy");
    let copy = copy.to_string_lossy().into_owned();
    run(&format!("chmod -R 755 {}", directory.to_string_lossy())).ok();
    let words =
        ["--reuid", "65534", "--regid", "65534", "--clear-groups", "timeout", "20", &copy, "--dev", "lo"];
    let answer = run_with("setpriv", &words, "");
    std::fs::remove_dir_all(&directory).expect("removed");
    answer.fails(1, &[]);
    let told = ["root", "CAP_BPF", "CAP_NET_ADMIN"].iter().any(|word| answer.stderr.contains(word));
    assert!(told, "the message does not say what is missing: {answer:?}");
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
    // (4) the sample that ships
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/trielined.toml");
    if std::path::Path::new(sample).exists() {
        run_with(&binary_path("trielined"), &["--check", "--config", sample], "").ok();
    }
}

/// Usage errors exit with 2, answers of "no" with 1, a closed pipe is success.
#[test]
fn exit_codes_mean_something() {
    if !root() {
        return;
    }
    let namespace = Namespace::new("empty");
    trieline(&namespace, "route frobnicate").fails(2, &["frobnicate"]);
    trieline(&namespace, "route get").fails(2, &[]);
    // No daemon here: said, not hung.
    trieline(&namespace, "route show").fails(1, &["trielined"]);
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
    if !root() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(b"# good\n10.0.0.0/8 1\n10.0.0.0/33 2\n").expect("written");
    let path = file.path().to_string_lossy().into_owned();
    let answer =
        run_with(&binary_path("trieline"), &["lab", "run", "map-tables", "--quick", "--table", &path], "");
    answer.fails(1, &[&path, "3", "10.0.0.0/33"]);
}

/// More routes than the memory holds: said, counted, and what was there goes on.
#[test]
fn a_table_larger_than_the_memory_leaves_the_old_state() {
    if !root() {
        return;
    }
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
    let said = trieline_tests::eventually(20.0, || status::full(&bed.node) > 0);
    let seen = bed.send("10.50.0.1:9", "after", 5);
    assert_eq!((seen.sink.len(), seen.side.len()), (5, 0), "what was forwarded is not delivered any more");
    assert!(said, "node status does not say that the memory is full");
}
