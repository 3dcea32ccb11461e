//! `[[filter]]`: a set of prefixes that packets are compared with before they are routed.

use serde::Deserialize;
use std::ops::RangeInclusive;
use std::path::Path;
use toml::Spanned;
use trieline_dataplane::FilterAction;
use trieline_node::filter::Config;

/// Protocols that have a name in the file, by their number (IANA protocol numbers).
const PROTOCOLS: [(&str, u8); 12] = [
    ("icmp", 1),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];
/// Those whose headers begin with ports.
const WITH_PORTS: [u8; 5] = [6, 17, 33, 132, 136];

/// A filter, as written.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    name: Spanned<String>,
    file: Spanned<std::path::PathBuf>,
    #[serde(rename = "match")]
    looks_up: Match,
    protocol: Option<Spanned<Protocol>>,
    ports: Option<Spanned<Vec<Ports>>>,
    action: Action,
    /// Lines of the file that are wrong are passed over and counted.
    #[serde(default)]
    skip_bad: bool,
    /// Host bits of its prefixes are cleared; else such a prefix is an error.
    #[serde(default)]
    truncate: bool,
}

/// Which address is looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Match {
    Source,
    Destination,
}

/// The action on matching packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Drop,
    Pass,
    Allow,
    Count,
}

/// A protocol by name or number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Protocol(u8);

impl TryFrom<toml::Value> for Protocol {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let number = match &value {
            toml::Value::Integer(number) => u8::try_from(*number).ok(),
            toml::Value::String(name) => {
                PROTOCOLS.iter().find(|(known, _)| known == name).map(|(_, number)| *number)
            }
            _ => None,
        };
        let names = PROTOCOLS.map(|(name, _)| name).join(", ");
        number.map(Self).ok_or_else(|| {
            format!("protocol: {value} is none; expected a number from 0 to 255, or one of {names}")
        })
    }
}

/// A port or a range of ports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
struct Ports(RangeInclusive<u16>);

impl TryFrom<toml::Value> for Ports {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        let range = match &value {
            toml::Value::Integer(port) => u16::try_from(*port).ok().map(|port| port..=port),
            toml::Value::String(text) => {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let range = first.trim().parse().ok().zip(last.trim().parse().ok());
                range.map(|(first, last)| first..=last).filter(|range| !range.is_empty())
            }
            _ => None,
        };
        range.map(Self).ok_or_else(|| format!("ports: {value} is none; expected 80, or \"8000-8080\""))
    }
}

impl Filter {
    /// An error in the entry, with its place if one value is wrong.
    pub fn check<'a>(
        &self,
        mut earlier: impl Iterator<Item = &'a Filter>,
    ) -> Result<(), (Option<usize>, String)> {
        let (name, max) = (self.name.get_ref(), trieline_dataplane::Filter::NAME_MAX);
        let at = Some(self.name.span().start);
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > max || !name.chars().all(is_word) {
            let what = format!(
                "name {name:?} is none; expected 1 to {max} letters, digits, hyphens, dots and underscores"
            );
            return Err((at, what));
        }
        if earlier.any(|other| other.name.get_ref() == name) {
            return Err((at, format!("two are named {name:?}; expected each once")));
        }
        let file = self.file.get_ref();
        if file.as_os_str().is_empty() || file.as_os_str() == "-" {
            let what = format!("{name}: file {:?} is none; expected the path of one", file.display());
            return Err((Some(self.file.span().start), what));
        }
        let Some(ports) = &self.ports else { return Ok(()) };
        let at = Some(ports.span().start);
        let most = trieline_dataplane::Filter::RANGES_MAX;
        if ports.get_ref().is_empty() || ports.get_ref().len() > most {
            let has = ports.get_ref().len();
            return Err((at, format!("{name}: {has} ports or ranges; expected 1 to {most}")));
        }
        match &self.protocol {
            Some(protocol) if !WITH_PORTS.contains(&protocol.get_ref().0) => {
                let what = format!(
                    "{name}: protocol {} has no ports; expected tcp, udp, dccp, sctp or udplite",
                    protocol.get_ref().0
                );
                Err((Some(protocol.span().start), what))
            }
            _ => Ok(()),
        }
    }

    /// Reads its file; what is wrong with it, and where it is named.
    pub fn check_files(&self, folder: &Path) -> Result<(), (usize, String)> {
        let read = trieline_node::filter::read(&self.config(folder));
        read.map(drop).map_err(|error| (self.file.span().start, error.to_string()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// As the daemon wants it.
    pub fn config(&self, folder: &Path) -> Config {
        Config {
            name: self.name.get_ref().clone(),
            file: folder.join(self.file.get_ref()),
            skip_bad: self.skip_bad,
            truncate: self.truncate,
            source: self.looks_up == Match::Source,
            action: match self.action {
                Action::Drop => FilterAction::Drop,
                Action::Pass => FilterAction::Pass,
                Action::Allow => FilterAction::Allow,
                Action::Count => FilterAction::Count,
            },
            protocol: self.protocol.as_ref().map(|protocol| protocol.get_ref().0),
            ports: self.ports.iter().flat_map(Spanned::get_ref).map(|ports| ports.0.clone()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::File;
    use std::path::Path;

    const GOOD: &str = r#"
[[filter]]
name = "threats"
file = "threats.txt.gz"
match = "source"
protocol = "tcp"
ports = [22, "8000-8080"]
action = "drop"
"#;

    #[test]
    fn a_whole_filter() {
        let filters = File::parse(GOOD).unwrap().filters(Path::new("/etc/trieline"));
        let filter = &filters[0];
        assert_eq!((filter.name.as_str(), filter.source, filter.protocol), ("threats", true, Some(6)));
        assert_eq!(filter.file, Path::new("/etc/trieline/threats.txt.gz"));
        assert_eq!(filter.ports, [22..=22, 8000..=8080]);
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        for (from, to, expected_text) in [
            ("file =", "fiel =", "line 4: unknown key `fiel`; did you mean `file`?"),
            ("\"source\"", "\"both\"", "line 5: unknown variant `both`"),
            ("\"tcp\"", "\"tpc\"", "line 6: protocol: \"tpc\" is none; expected a number"),
            ("\"tcp\"", "256", "line 6: protocol: 256 is none"),
            ("\"tcp\"", "\"icmp\"", "line 6: filter: threats: protocol 1 has no ports"),
            ("22,", "70000,", "line 7: ports: 70000 is none; expected 80"),
            ("8000-8080", "9-8", "line 7: ports: \"9-8\" is none"),
            ("22,", "1,2,3,4,5,6,7,8,", "line 7: filter: threats: 9 ports or ranges"),
            ("threats\"", "a b\"", "line 3: filter: name \"a b\" is none"),
            ("\"threats.txt.gz\"", "\"-\"", "line 4: filter: threats: file"),
            ("action = \"drop\"\n", "", "missing field `action`"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error_text = File::parse(&text).unwrap_err().to_string();
            assert!(error_text.contains(expected_text), "{error_text:?} does not have {expected_text:?}");
        }
        let twice = File::parse(&format!("{GOOD}{GOOD}")).unwrap_err().to_string();
        assert!(twice.starts_with("line 11: filter: two are named \"threats\""), "{twice}");
    }
}
