//! Reports of mistakes that the programs can live with: by the log, by the answers, by the exit code.

use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root};

const CONFIG: &str = r#"
devices = ["n0", "n1"]
[[filter]]
name = "empty"
file = "empty.txt"
match = "source"
action = "drop"
[[filter]]
name = "inner"
file = "inner.txt"
match = "source"
action = "count"
[[sid_hook]]
name = "look"
sid = "fd00:a::1"
filters = ["inner"]
"#;

/// A list that is empty, a SID hook whose SID does not exist, keys that only a start takes, tables that another program removed.
#[test]
fn settings_without_effect_are_logged() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("empty.txt", "# none\n");
    write("inner.txt", "192.0.2.0/24\n");
    write("trielined.toml", CONFIG);
    let args = format!("--config {}", folder.path().join("trielined.toml").display());
    let daemon = Daemon::start(&bed.node, &args);
    let expected_text = |text: &str| {
        assert!(eventually(5.0, || daemon.log().contains(text)), "no {text:?}:\n{}", daemon.log());
    };
    // (1) a set without prefixes, at the start and by hand
    expected_text("the file has no prefixes; the filter matches no packet");
    let answer = trieline(&bed.node, "filter reload empty");
    assert!(answer.code == 0 && answer.stderr.contains("filter empty: no prefixes"), "{answer:?}");
    // (2) filters of SID hooks are not those of devices
    let shown = trieline(&bed.node, "filter show").ok();
    let alone: Vec<_> = shown.lines().filter(|line| line.contains("used by SID hooks only")).collect();
    assert!(alone.len() == 1 && alone[0].starts_with("inner"), "{shown}");
    // (3) a SID hook without its SID, then with it
    expected_text("the kernel has no such SID yet");
    trieline(&bed.node, "sid show fd00:a::1").fails(1, &["the kernel has no SID fd00:a::1"]);
    bed.node.ip("-6 route add fd00:a::1 encap seg6local action End dev n1");
    let sid = || trieline(&bed.node, "sid show fd00:a::1");
    assert!(eventually(5.0, || sid().code == 0 && sid().stdout.contains("hook look")), "{:?}", sid());
    // (4) a prefix that no route has
    let answer = trieline(&bed.node, "route show 10.99.0.0");
    assert!(answer.code == 0 && answer.stderr.contains("no routes of 10.99.0.0"), "{answer:?}");
    // (5) keys of the start, at a reload
    write("trielined.toml", &format!("image = \"64M\"\nnext_hops = 1024\n{CONFIG}"));
    run(&format!("kill -HUP {}", daemon.pid())).ok();
    expected_text("image, next_hops: are as before");
    expected_text(" reloaded");
    // (6) detached under a daemon that runs
    let answer = trieline(&bed.node, "node detach");
    assert!(answer.code == 0 && answer.stderr.contains("still runs"), "{answer:?}");
    expected_text("detached (`trieline node detach`)");
    let families = status(&bed.node)["families"].clone();
    for family in families.as_array().expect("families") {
        assert_eq!(family["forwards"], false, "{families}");
    }
    for args in ["route get 10.50.0.1", "capture -w -"] {
        trieline(&bed.node, args).fails(1, &["trielined runs, but `trieline node detach` has removed"]);
    }
    run(&format!("kill -HUP {}", daemon.pid())).ok();
    expected_text("not reloaded: detached");
    let log = daemon.stop();
    assert!(
        log.contains("stopped; trielined was detached before") && !log.contains("forwarding stays on"),
        "{log}"
    );
}
