//! Names of metrics and of their labels in docs/metrics.md, in the alerts and in the dashboard.

use super::scraper::Scrape;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

pub const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus/trieline.rules.yml");
/// Series, and the alerts that Prometheus makes of them.
pub const ALERTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/blackbox/metrics/alerts.yml");
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/grafana/trieline.json");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");

/// Labels that Prometheus adds.
const ADDED: [&str; 2] = ["instance", "job"];

/// Metrics of the page's table, each with its type and its labels.
pub fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let page = fs::read_to_string(PAGE).expect("docs/metrics.md");
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells.get(1)?.strip_prefix('`')?.strip_suffix('`')?;
        let labels = cells.get(3)?.split(',').map(|label| label.trim().trim_matches('`').to_owned());
        let labels = labels.filter(|label| !label.is_empty()).collect();
        name.starts_with("trieline_").then(|| (name.to_owned(), (cells[2].to_owned(), labels)))
    };
    page.lines().filter_map(row).collect()
}

/// An alert, or a line of a panel: its expression, and the words that show its labels.
pub struct Used(String);

/// All alerts, and all lines of the dashboard.
pub fn used() -> Vec<Used> {
    let rules = fs::read_to_string(RULES).expect("the alerts");
    let mut all: Vec<Used> = rules.split("- alert: ").skip(1).map(|alert| Used(alert.to_owned())).collect();
    let dashboard = fs::read_to_string(DASHBOARD).expect("the dashboard");
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    for target in panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets")) {
        let [expression, legend] =
            ["expr", "legendFormat"].map(|key| target[key].as_str().expect("an expression and its legend"));
        let line = Used(format!("{expression} {legend}"));
        assert!(!line.names().is_empty(), "{target}");
        all.push(line);
    }
    all.push(Used(dashboard["templating"].to_string()));
    all
}

impl Used {
    /// Words that begin as each metric does.
    pub fn names(&self) -> BTreeSet<String> {
        let words = self.0.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|word| word.starts_with("trieline_")).map(str::to_owned).collect()
    }

    /// The names, labels and values that a scrape does not have.
    pub fn unknown(&self, scrape: &Scrape) -> Vec<String> {
        let mut unknown: Vec<String> = self.names().into_iter().filter(|name| !scrape.has(name)).collect();
        let is_added = |label: &str| ADDED.contains(&label);
        for (metric, label, value) in self.selectors() {
            let labels = scrape.labels_of(&metric);
            match labels.get(&label) {
                None if is_added(&label) => {}
                None => unknown.push(format!("{metric}{{{label}}}")),
                // `instance=~"$instance"` is the reader's choice.
                Some(values) => unknown.extend(
                    value
                        .split('|')
                        .filter(|value| !value.starts_with('$') && !values.contains(*value))
                        .map(|value| format!("{metric}{{{label}={value}}}")),
                ),
            }
        }
        let mut any: BTreeSet<String> =
            self.names().iter().flat_map(|name| scrape.labels_of(name).into_keys()).collect();
        any.extend(ADDED.map(str::to_owned));
        unknown.extend(self.shown().into_iter().filter(|label| !any.contains(label)));
        unknown
    }

    /// Metric, label and value of each `metric{label="value"}` and `metric{label=~"value"}`.
    fn selectors(&self) -> Vec<(String, String, String)> {
        let mut found = Vec::new();
        for (at, _) in self.0.match_indices("trieline_") {
            let rest = &self.0[at..];
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (metric, rest) = rest.split_at(end);
            let Some((inside, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
                continue;
            };
            for one in inside.split(',') {
                let (label, value) = one.split_once('=').unwrap_or_else(|| panic!("{one}"));
                let value = value.trim_start_matches('~').trim_matches('"');
                found.push((metric.to_owned(), label.to_owned(), value.to_owned()));
            }
        }
        found
    }

    /// Labels of `by (a, b)`, `on (a)`, `$labels.a` and `{{a}}`.
    fn shown(&self) -> Vec<String> {
        let mut found = Vec::new();
        for open in ["by (", "on ("] {
            for part in self.0.split(open).skip(1) {
                let (inside, _) = part.split_once(')').expect("a closing parenthesis");
                found.extend(inside.split(',').map(|label| label.trim().to_owned()));
            }
        }
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for part in self.0.split("$labels.").skip(1) {
            found.push(part.chars().take_while(|c| is_word(*c)).collect());
        }
        for part in self.0.split("{{").skip(1) {
            let (inside, _) = part.split_once("}}").expect("closing braces");
            if inside.chars().all(is_word) {
                found.push(inside.to_owned());
            }
        }
        found
    }
}

#[test]
fn labels_of_expressions_are_found() {
    let used = Used(
        "sum by (le, family) (rate(trieline_a_total{x=~\"1|2\",y=\"z\"}[5m])) on (job) {{ $labels.iface }} {{ $value | humanize }} {{family}}"
            .into(),
    );
    let words = |list: &[(&str, &str, &str)]| -> Vec<(String, String, String)> {
        list.iter().map(|(a, b, c)| ((*a).to_owned(), (*b).to_owned(), (*c).to_owned())).collect()
    };
    assert_eq!(used.selectors(), words(&[("trieline_a_total", "x", "1|2"), ("trieline_a_total", "y", "z")]));
    assert_eq!(used.shown(), ["le", "family", "job", "iface", "family"]);
}
