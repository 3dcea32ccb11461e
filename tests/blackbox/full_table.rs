//! A million routes, then a hundred thousand changes faster than they are read: the mirror is the kernel's again in no time.
//!
//! `cargo test --release -p trieline-tests --test blackbox -- --ignored --nocapture million`

use crate::status;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Instant;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run_with};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

const ROUTES: u32 = 1_000_000;
const CHANGES: u32 = 100_000;
/// Seconds from the last change until packets meet all of them.
const CONVERGED: f64 = 2.0;

fn prefix(n: u32) -> String {
    std::net::Ipv4Addr::from(0x2000_0000 | n << 8).to_string()
}

/// Gateway by prefix.
fn routes(json: &str) -> BTreeMap<String, String> {
    let routes: Vec<Value> = serde_json::from_str(json).expect("JSON");
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    routes.iter().map(|route| (text(&route["dst"]), text(&route["gateway"]))).collect()
}

#[test]
#[ignore = "takes minutes and 2 GiB"]
fn a_million_routes_survive_an_overrun() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let mut lines = String::new();
    for n in 0..ROUTES {
        let _ = writeln!(lines, "route add {}/24 via 10.1.0.2", prefix(n));
    }
    bed.node.ip_batch(&[], &lines).ok();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2 --receive-buffer 16K");
    let started = trieline(&bed.node, "-j node status").json();
    // (1) replaced, gone, new, all over the table
    let mut lines = String::new();
    for n in 0..CHANGES {
        let at = n.wrapping_mul(7919) % ROUTES;
        let _ = match n % 4 {
            0 => writeln!(lines, "route del {}/24", prefix(at)),
            1 => writeln!(lines, "route add {}/24 via 10.2.0.2", prefix(ROUTES + n)),
            _ => writeln!(lines, "route replace {}/24 via 10.2.0.2", prefix(at)),
        };
    }
    bed.node.ip_batch(&["-force"], &lines);
    let changed = Instant::now();
    // (2) packets meet every tenth of them
    let asked: Vec<u32> = (0..CHANGES).step_by(10).collect();
    let at = |n: u32| if n % 4 == 1 { ROUTES + n } else { n.wrapping_mul(7919) % ROUTES };
    let addresses = asked.iter().fold(String::new(), |text, n| text + &prefix(at(*n)) + "\n");
    let args = ["-n", bed.node.name(), "-j", "route", "get", "-"];
    let differing = || {
        let answers: Vec<Value> =
            serde_json::from_str(&run_with(&binary_path("trieline"), &args, &addresses).stdout)
                .expect("JSON");
        let pairs = asked.iter().zip(&answers);
        pairs
            .filter(|(n, answer)| {
                let gateway = answer["gateway"].as_str();
                gateway != if **n % 4 == 0 { None } else { Some("10.2.0.2") }
            })
            .count()
    };
    let mut differ = 0;
    let mut took = 0.0;
    eventually(30.0, || {
        took = changed.elapsed().as_secs_f64();
        differ = differing();
        differ == 0
    });
    // (3) and the mirror is the kernel's, route by route
    let kernel = routes(&run_with("ip", &["-n", bed.node.name(), "-j", "route", "show"], "").ok());
    let ours = routes(&trieline(&bed.node, "-4 -j route show").ok());
    let wrong = kernel.iter().filter(|(prefix, gateway)| ours.get(*prefix) != Some(gateway)).count();
    let overruns = status::overruns(&bed.node);
    println!(
        "{} routes mirrored, {} after {CHANGES} changes; {overruns} overruns, {} dumps; {} of {} addresses differ after {took:.2} s; {} differences of routes",
        started["mirror"]["routes"],
        ours.len(),
        trieline(&bed.node, "-j node status").json()["resyncs"],
        differ,
        asked.len(),
        wrong + ours.len().abs_diff(kernel.len()),
    );
    assert!(overruns > 0, "the buffer was never overrun: the test proves nothing");
    assert_eq!((differ, wrong, ours.len()), (0, 0, kernel.len()));
    assert!(took < CONVERGED, "converged after {took:.2} s");
}
