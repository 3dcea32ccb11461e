//! Names of metrics in docs/metrics.md, in the alerts and in the dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

pub const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus/trieline.rules.yml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/grafana/trieline.json");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

/// Metrics of the page's table, each with its type.
pub fn documented() -> BTreeMap<String, String> {
    let page = fs::read_to_string(PAGE).expect("docs/metrics.md");
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `trieline_")?.split_once("` | ")?;
        Some((format!("trieline_{name}"), rest.split_once(" |")?.0.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

/// Names in the expressions of the alerts and of the dashboard.
pub fn used() -> BTreeSet<String> {
    let rules = fs::read_to_string(RULES).expect("the alerts");
    let dashboard = fs::read_to_string(DASHBOARD).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut all = names(&rules);
    let panels = dashboard["panels"].as_array().expect("panels");
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let found = names(target["expr"].as_str().expect("an expression"));
        assert!(!found.is_empty(), "{target}");
        all.extend(found);
    }
    all.extend(names(&dashboard["templating"].to_string()));
    all
}

/// Words that begin as each metric does.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("trieline_")).map(str::to_owned).collect()
}
