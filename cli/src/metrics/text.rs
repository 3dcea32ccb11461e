//! The text format of Prometheus (version 0.0.4), from that of OpenMetrics.

use std::collections::BTreeSet;

/// The same metrics in Prometheus' own format: there a counter is described by its whole name, and units and the end have no line.
pub fn classic(openmetrics: &str) -> String {
    let counter = |line| str::strip_suffix(str::strip_prefix(line, "# TYPE ")?, " counter");
    let counters: BTreeSet<&str> = openmetrics.lines().filter_map(counter).collect();
    let mut text = String::with_capacity(openmetrics.len() + openmetrics.len() / 16);
    for line in openmetrics.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let described = ["# HELP ", "# TYPE "].iter().find_map(|key| Some((*key, line.strip_prefix(key)?)));
        match described.and_then(|(key, rest)| Some((key, rest.split_once(' ')?))) {
            Some((key, (name, rest))) if counters.contains(name) => {
                text.extend([key, name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counters_get_another_name() {
        let openmetrics = "# HELP a Packets of a.\n# TYPE a counter\na_total{x=\"# EOF\"} 1\n\
            # HELP b_seconds Time.\n# TYPE b_seconds gauge\n# UNIT b_seconds seconds\nb_seconds 2.0\n# EOF\n";
        let expected = "# HELP a_total Packets of a.\n# TYPE a_total counter\na_total{x=\"# EOF\"} 1\n\
            # HELP b_seconds Time.\n# TYPE b_seconds gauge\nb_seconds 2.0\n";
        assert_eq!(classic(openmetrics), expected);
    }
}
