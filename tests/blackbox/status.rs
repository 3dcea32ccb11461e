//! The answer of `trieline -j node status`, in the words the tests need.

use serde_json::Value;
use trieline_testbed::daemon;
use trieline_testbed::namespace::Namespace;

/// Packets that XDP forwarded, of all kinds.
pub fn forwarded(namespace: &Namespace) -> u64 {
    let status = daemon::status(namespace);
    let counters = status["counters"].as_array().unwrap_or_else(|| panic!("no counters in {status:#}"));
    counters
        .iter()
        .filter(|counter| counter["kind"] == "forward")
        .map(|counter| number(&counter["packets"]))
        .sum()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// How often the kernel said ENOBUFS to the daemon.
pub fn overruns(namespace: &Namespace) -> u64 {
    number(&daemon::status(namespace)["overruns"])
}

/// How often the image was full.
pub fn full(namespace: &Namespace) -> u64 {
    number(&daemon::status(namespace)["mirror"]["full"])
}

/// Where the image lives: `arena` or `array`.
pub fn map_type(namespace: &Namespace) -> String {
    daemon::status(namespace)["map_type"].as_str().unwrap_or_default().to_owned()
}

/// How often changes disturbed a dump of the daemon's.
pub fn disturbed(namespace: &Namespace) -> u64 {
    number(&daemon::status(namespace)["mirror"]["interrupted"])
}
