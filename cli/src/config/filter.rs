//! `[[filter]]`: a set of prefixes that packets are compared with before they are routed.

use std::path::Path;
use trieline_router::FilterRule;

/// Reads a filter's file; the key that names it, and what is wrong with it.
pub fn check_files(rule: &FilterRule, folder: &Path) -> Result<(), (&'static str, String)> {
    let read = trieline_router::filter::read(&rule.in_folder(folder));
    read.map(drop).map_err(|error| ("file", error.to_string()))
}

#[cfg(test)]
mod tests {
    use crate::config::File;
    use std::path::Path;
    use trieline_router::FilterMatch;

    const GOOD: &str = r#"
[[filter]]
name = "threats"
file = "threats.txt.gz"
match = "source"
protocol = "tcp"
ports = [22, "8000-8080"]
source_ports = [53]
action = "drop"
"#;

    #[test]
    fn a_whole_filter() {
        let filters = File::parse(GOOD).unwrap().config(Path::new("/etc/trieline")).filters;
        let filter = &filters[0];
        assert_eq!(
            (filter.name.as_str(), filter.address, filter.protocol),
            ("threats", FilterMatch::Source, Some(6))
        );
        assert_eq!(filter.file.as_deref(), Some(Path::new("/etc/trieline/threats.txt.gz")));
        assert_eq!(
            (&filter.ports[..], &filter.source_ports[..]),
            (&[22..=22, 8000..=8080][..], &[53..=53][..])
        );
    }

    #[test]
    fn errors_name_the_line_and_the_expected_value() {
        for (from, to, expected_text) in [
            ("file =", "fiel =", "line 4: unknown key `fiel`; did you mean `file`?"),
            ("\"source\"", "\"both\"", "line 5: unknown variant `both`"),
            ("\"tcp\"", "\"tpc\"", "line 6: invalid \"tpc\" for protocol: expected a number"),
            ("\"tcp\"", "256", "line 6: invalid 256 for protocol"),
            ("\"tcp\"", "\"icmp\"", "line 6: filter: threats: protocol 1 has no ports"),
            ("22,", "70000,", "line 7: invalid 70000: expected a port such as 80"),
            ("8000-8080", "9-8", "line 7: invalid \"9-8\": expected a port"),
            ("22,", "1,2,3,4,5,6,7,8,", "line 7: 9 ports or ranges; expected 1 to 8"),
            ("threats\"", "a b\"", "line 3: filter: invalid \"a b\" for name"),
            ("\"threats.txt.gz\"", "\"-\"", "line 4: filter: threats: invalid \"-\" for file"),
            ("action = \"drop\"\n", "", "missing field `action`"),
            ("file = \"threats.txt.gz\"\n", "", "line 2: filter: threats: missing key `file`"),
            ("22, \"8000-8080\"", "", "line 7: 0 ports or ranges; expected 1 to 8"),
            ("[53]", "[\"dns\"]", "line 8: invalid \"dns\": expected a port such as 80"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error_text = File::parse(&text).unwrap_err().to_string();
            assert!(error_text.contains(expected_text), "{error_text:?} does not have {expected_text:?}");
        }
        let twice = File::parse(&format!("{GOOD}{GOOD}")).unwrap_err().to_string();
        assert!(twice.starts_with("line 12: filter: two are named \"threats\""), "{twice}");
    }
}
