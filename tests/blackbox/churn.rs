//! A daemon that starts while routes come and go: once it is calm, its mirror is the kernel's, also of untouched routes. (A dump of IPv6
//! routes leaves some out when others in front of them go.)

use crate::status;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run_with};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
/// Routes that stay untouched.
const STILL: u32 = 50_000;
/// Routes that come and go.
const MOVING: u32 = 20_000;
/// They do so at most this often while a daemon starts.
const TURNS: u32 = 40;

/// The routes of both families as `prefix gateway metric`.
fn routes(json: &str) -> BTreeSet<String> {
    let routes: Vec<serde_json::Value> = serde_json::from_str(json).expect("JSON");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let lines =
        routes.iter().filter(|route| route["type"].as_str().unwrap_or("unicast") == "unicast").map(|route| {
            let metric = route["metric"].as_u64().unwrap_or_default();
            format!("{} {} {} {metric}", text(&route["dst"]), text(&route["gateway"]), text(&route["dev"]))
        });
    lines.collect()
}

fn kernel(bed: &Bed, option: &str) -> BTreeSet<String> {
    routes(&run_with("ip", &["-n", bed.node.name(), option, "-j", "route", "show"], "").ok())
}

fn ours(bed: &Bed, option: &str) -> BTreeSet<String> {
    routes(&trieline(&bed.node, &format!("-j {option} route show")).ok())
}

/// Lines for `ip -batch` in one family; routes come in blocks.
struct Lines {
    prefix: fn(u32, u32) -> String,
    gateways: [&'static str; 2],
}

impl Lines {
    fn add(&self, block: u32, count: u32) -> String {
        (0..count).fold(String::new(), |mut lines, n| {
            let _ = writeln!(lines, "route add {} via {}", (self.prefix)(block, n), self.gateways[0]);
            lines
        })
    }

    /// Block `of` goes, block `to` comes, and some of that is replaced at once.
    fn churn(&self, of: u32, to: u32) -> String {
        (0..MOVING).fold(String::new(), |mut lines, n| {
            let _ = writeln!(lines, "route del {}", (self.prefix)(of, n));
            let _ = writeln!(lines, "route add {} via {}", (self.prefix)(to, n), self.gateways[0]);
            if n % 3 == 0 {
                let _ = writeln!(lines, "route replace {} via {}", (self.prefix)(to, n), self.gateways[1]);
            }
            lines
        })
    }
}

fn starts_during_churn(option: &'static str, lines: &Lines) {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip_batch(&[option], &lines.add(9, STILL)).ok();
    bed.node.ip_batch(&[option], &lines.add(0, MOVING)).ok();
    let (there, back) = (lines.churn(0, 19), lines.churn(19, 0));
    let (mut disturbed, mut at_the_back) = (0, false);
    for round in 0..4 {
        // (1) it starts, and dumps, in the middle of the churn
        let is_ready = AtomicBool::new(false);
        let daemon = std::thread::scope(|scope| {
            let moving = scope.spawn(|| {
                // The routes in front of those that stay go to their back, and return: a walk that starts again skips as many as
                // before.
                for turn in (0..TURNS).take_while(|turn| *turn == 0 || !is_ready.load(Ordering::Acquire)) {
                    bed.node.ip_batch(&[option], if turn % 2 == 0 { &there } else { &back }).ok();
                    at_the_back = turn % 2 == 0;
                }
            });
            let daemon = Daemon::start(&bed.node, DEVICES);
            is_ready.store(true, Ordering::Release);
            moving.join().expect("all changes are possible");
            daemon
        });
        // (2) once it is calm: the same routes, all of them. Two more dumps may come before, which take seconds on a busy machine.
        let kernel = kernel(&bed, option);
        assert!(kernel.len() >= (STILL + MOVING) as usize, "the kernel has only {} routes", kernel.len());
        let mut found = BTreeSet::new();
        let equal = eventually(60.0, || {
            found = ours(&bed, option);
            found == kernel
        });
        let differ: Vec<_> = kernel.symmetric_difference(&found).take(10).collect();
        assert!(equal, "round {round}: kernel {}, mirror {}: {differ:#?}", kernel.len(), found.len());
        // (3) and the image answers by them
        let asked: Vec<String> = (0..2000).map(|n| (lines.prefix)(9, n * (STILL / 2000))).collect();
        let addresses: String = asked
            .iter()
            .fold(String::new(), |text, prefix| text + prefix.split('/').next().unwrap_or_default() + "\n");
        let args = ["-n", bed.node.name(), "-j", "route", "get", "-"];
        let answers = run_with(&binary_path("trieline"), &args, &addresses).json();
        let answers = answers.as_array().expect("a list");
        assert_eq!(answers.len(), asked.len());
        for answer in answers {
            assert_eq!(
                (answer["gateway"].as_str(), answer["action"].as_str()),
                (Some(lines.gateways[0]), Some("forward"))
            );
        }
        disturbed += status::disturbed(&bed.node);
        drop(daemon);
        if at_the_back {
            bed.node.ip_batch(&[option], &back).ok();
        }
    }
    assert!(disturbed > 0, "no dump was ever disturbed: the test proves nothing");
}

#[test]
fn starts_during_churn_ipv6() {
    let prefix = |block: u32, n: u32| format!("{:x}:{:x}:{:x}::/48", 0x2000 + block, n >> 8, n & 0xff);
    starts_during_churn("-6", &Lines { prefix, gateways: ["fd00:1::2", "fd00:2::2"] });
}

#[test]
fn starts_during_churn_ipv4() {
    let prefix = |block: u32, n: u32| format!("{}.{}.{}.0/24", 20 + block, n >> 8, n & 0xff);
    starts_during_churn("-4", &Lines { prefix, gateways: ["10.1.0.2", "10.2.0.2"] });
}
