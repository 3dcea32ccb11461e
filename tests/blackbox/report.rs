//! `trieline node report`: one file with all parts, in which no address can be read, and which replaces nothing.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;

/// All IP and MAC addresses that `ip` shows of a namespace, but those that every node has.
fn addresses(node: &Namespace) -> BTreeSet<String> {
    let shown =
        node.ip("addr show") + &node.ip("neigh show") + &node.ip("route show") + &node.ip("-6 route show");
    let words = shown.split(|c: char| !(c.is_ascii_hexdigit() || c == ':' || c == '.'));
    let is_address = |word: &&str| {
        let mac = word.len() == 17 && word.split(':').filter(|part| part.len() == 2).count() == 6;
        mac || word.parse::<std::net::IpAddr>().is_ok()
    };
    let is_own = |word: &&str| {
        !["127.", "::1", "fe80", "ff", "00:00:00:00:00:00", "0.0.0.0"]
            .iter()
            .any(|kept| word.starts_with(kept))
    };
    words.filter(is_address).filter(is_own).filter(|word| *word != "::").map(str::to_owned).collect()
}

/// Whether an address stands in a text, at whatever border: only more of its own digits would make it another one.
fn has(text: &str, address: &str) -> bool {
    let is_part = |c: char| if address.contains(':') { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
    text.match_indices(address)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + address.len()..].starts_with(is_part))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_report_has_all_parts_and_no_address() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    let text = "devices = [\"n0\", \"n1\", \"n2\"]\n# twice 10.1.0.2 10.1.0.2 end\n# once 02:00:00:00:00:11 and fd00:1::2\n\
                # block_10.1.0.2 10.1.0.2..10.1.0.9 x10.1.0.2\n";
    std::fs::write(&config, text).expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    bed.ping("10.1.0.2", 3).ok();
    bed.node.ip("link add br7 type bridge");
    bed.node.ip("link set br7 address 02:42:ac:11:00:02 alias Miller");
    bed.node.ip("link property add dev br7 altname enx0242ac110002");
    let file = folder.path().join("report.txt");
    let report = |more: &str| {
        let line = format!("node report -o {} --config {} {more}", file.display(), config.display());
        trieline(&bed.node, &line)
    };
    // (1) the parts are there, and only the owner can read them
    let said = report("").ok();
    assert!(said.starts_with("wrote ") && said.contains("parts"), "{said}");
    let mode = std::fs::metadata(&file).expect("a file").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let masked = read(&file);
    let parts = [
        "versions",
        "kernel",
        "status",
        "drops",
        "bypassed, punted, problems",
        "filters",
        "last changes",
        "command line of trielined",
        "configuration",
        "node check",
        "device n0",
        "device n2",
        "log",
    ];
    for part in parts {
        assert!(masked.contains(&format!("\n=== {part}\n")), "{part}: {masked}");
    }
    for part in masked.split("\n=== ").filter(|part| part.contains("this part failed")) {
        // The machine of a test may have no journal.
        assert!(part.starts_with("log\n"), "{part}");
    }
    for word in ["\"running\": true", "driver: veth", "rx-checksumming", "forward4", "--config", "Linux"] {
        assert!(masked.contains(word), "{word}: {masked}");
    }
    // (2) no address of the node
    let all = addresses(&bed.node);
    assert!(all.len() > 15 && all.contains("10.1.0.2") && all.contains("02:00:00:00:00:11"), "{all:?}");
    for address in &all {
        assert!(!has(&masked, address), "{address} is in the report");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for name in ["2:42:ac:11:0:2", "0242ac110002", "Miller", host.trim()] {
        let is_apart = |c: char| c.is_ascii_alphanumeric();
        let mut places = masked.match_indices(name);
        let shown = places.any(|(at, _)| {
            !masked[..at].ends_with(is_apart) && !masked[at + name.len()..].starts_with(is_apart)
        });
        assert!(!shown && (name == host.trim() || !masked.contains(name)), "{name}: {masked}");
    }
    assert!(masked.contains("altname enx02") && masked.contains("alias masked-"), "{masked}");
    // (3) the same address has the same mask
    let line =
        masked.lines().find(|line| line.starts_with("# twice ")).expect("the line of the configuration");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!((words.len(), words[2]), (5, words[3]));
    assert!(words[2].parse::<std::net::Ipv4Addr>().is_ok(), "{line}");
    // (4) a file that exists is replaced only if asked
    report("").fails(1, &["exists", "--force"]);
    assert_eq!(read(&file), masked);
    let plain = report("--force --no-mask");
    assert_eq!(plain.code, 0, "{plain:?}");
    let plain = read(&file);
    assert!(has(&plain, "02:00:00:00:00:01") && plain.contains("# twice 10.1.0.2 10.1.0.2 end"), "{plain}");
    for word in ["br7", "Miller", "enx0242ac110002"] {
        assert!(plain.contains(word), "{word}: {plain}");
    }
    trieline(&bed.node, "node report --force -o /dev/null").fails(1, &["not a regular file"]);
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path().join("elsewhere"), &link).expect("a link");
    trieline(&bed.node, &format!("node report -o {}", link.display())).fails(1, &["exists"]);
    trieline(&bed.node, &format!("node report -o {}/no/such/folder", folder.path().display()))
        .fails(1, &["cannot write"]);
    // (5) JSON on standard output names the file
    let made = trieline(&bed.node, &format!("-j node report --force -o {}", file.display())).json();
    assert_eq!(
        (&made["masked"], &made["file"]),
        (&true.into(), &file.display().to_string().into()),
        "{made}"
    );
    daemon.stop();
}

/// Without trielined the report is written all the same, and says which parts are missing.
#[test]
fn a_report_needs_no_daemon() {
    needs_root!();
    let bed = Bed::routed();
    let text = trieline(&bed.node, "node report -o - --config /no/such/file").ok();
    let parts: Vec<&str> = text.split("\n=== ").collect();
    let failed = |title: &str| {
        let part = parts.iter().find(|part| part.starts_with(&format!("{title}\n"))).expect("the part");
        part.contains("this part failed: ")
    };
    for title in ["status", "drops", "command line of trielined", "configuration"] {
        assert!(failed(title), "{title}: {text}");
    }
    for title in ["versions", "kernel", "node check", "links", "device n0"] {
        assert!(!failed(title), "{title}: {text}");
    }
    assert!(text.contains("trielined not running"), "{text}");
    for address in addresses(&bed.node) {
        assert!(!has(&text, &address), "{address} is in the report");
    }
}
