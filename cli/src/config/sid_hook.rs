//! `[[sid_hook]]`: what is done to packets to a SID before its behaviour.

use serde::Deserialize;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use toml::Spanned;
use trieline_node::sid_hook::{Config, Sample, What};

/// A SID hook, as written: one of `filters`, `pcap` and `program`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidHook {
    name: Spanned<String>,
    sid: Spanned<Ipv6Addr>,
    filters: Option<Spanned<Vec<String>>>,
    pcap: Option<Spanned<PathBuf>>,
    snap: Option<Spanned<u32>>,
    rate: Option<Spanned<u32>>,
    program: Option<Spanned<PathBuf>>,
}

/// Bytes of a frame that a sample keeps when nothing is said.
const SNAP: u32 = 256;

impl SidHook {
    /// An error in the entry, with its place if one value is wrong. `filters` are the names of those that there are.
    pub fn check<'a>(
        &self,
        mut earlier: impl Iterator<Item = &'a SidHook>,
        filters: &[&str],
    ) -> Result<(), (Option<usize>, String)> {
        let name = self.name.get_ref();
        let at = |span: std::ops::Range<usize>| Some(span.start);
        let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_word) {
            let what =
                format!("name {name:?} is none; expected letters, digits, hyphens, dots and underscores");
            return Err((at(self.name.span()), what));
        }
        for other in earlier.by_ref() {
            if other.name.get_ref() == name {
                return Err((at(self.name.span()), format!("two are named {name:?}; expected each once")));
            }
            if other.sid.get_ref() == self.sid.get_ref() {
                let what = format!(
                    "{name}: {} has {} already; expected one a SID",
                    self.sid.get_ref(),
                    other.name.get_ref()
                );
                return Err((at(self.sid.span()), what));
            }
        }
        let kinds = [self.filters.is_some(), self.pcap.is_some(), self.program.is_some()];
        if kinds.into_iter().filter(|is| *is).count() != 1 {
            return Err((None, format!("{name}: expected one of filters, pcap and program")));
        }
        let Some(named) = &self.filters else { return self.check_sample() };
        if named.get_ref().is_empty() {
            return Err((at(named.span()), format!("{name}: no filters; expected names of some")));
        }
        match named.get_ref().iter().find(|named| !filters.contains(&named.as_str())) {
            Some(unknown) => {
                let expected = match filters {
                    [] => "a [[filter]] of that name; there are none".to_owned(),
                    some => format!("one of {}", some.join(", ")),
                };
                let what = format!("{name}: no filter is named {unknown:?}; expected {expected}");
                Err((at(named.span()), what))
            }
            None => self.check_sample(),
        }
    }

    fn check_sample(&self) -> Result<(), (Option<usize>, String)> {
        let name = self.name.get_ref();
        for (key, value, most) in
            [("snap", &self.snap, trieline_dataplane::SNAP_MAX), ("rate", &self.rate, 1_000_000_000)]
        {
            let Some(value) = value else { continue };
            let at = Some(value.span().start);
            if self.pcap.is_none() {
                return Err((
                    at,
                    format!("{name}: {key} without pcap; expected it with a file to sample to"),
                ));
            }
            if !(1..=most).contains(value.get_ref()) {
                return Err((at, format!("{name}: {key} {}; expected 1 to {most}", value.get_ref())));
            }
        }
        Ok(())
    }

    /// A missing file of the system, and where it is named: a pinned program, a folder to write a sample to.
    pub fn check_files(&self, folder: &Path) -> Result<(), (usize, String)> {
        let name = self.name.get_ref();
        if !rustix::process::geteuid().is_root() && self.program.is_some() {
            tracing::warn!("hook {name}: cannot check its program without root");
        } else if let Some(program) = &self.program {
            trieline_dataplane::find_program(program.get_ref())
                .map_err(|error| (program.span().start, format!("sid_hook: {name}: {error}")))?;
        }
        if let Some(file) = &self.pcap {
            let file_folder = folder.join(file.get_ref());
            let file_folder = file_folder.parent().unwrap_or(folder);
            if !file_folder.is_dir() {
                let what = format!("sid_hook: {name}: {}: no such folder to write to", file_folder.display());
                return Err((file.span().start, what));
            }
        }
        Ok(())
    }

    /// The filters it asks.
    pub fn filters(&self) -> &[String] {
        self.filters.as_ref().map_or(&[], |filters| filters.get_ref())
    }

    /// As the daemon wants it.
    pub fn config(&self, folder: &Path) -> Config {
        let what = match (&self.pcap, &self.program) {
            (Some(file), _) => What::Pcap(Sample {
                file: folder.join(file.get_ref()),
                snap: self.snap.as_ref().map_or(SNAP, |snap| *snap.get_ref()),
                rate: self.rate.as_ref().map(|rate| *rate.get_ref()),
            }),
            (None, Some(program)) => What::Program(program.get_ref().clone()),
            (None, None) => What::Filter(self.filters().to_vec()),
        };
        Config { name: self.name.get_ref().clone(), sid: *self.sid.get_ref(), what }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::File;
    use std::path::Path;
    use trieline_node::sid_hook::What;

    const GOOD: &str = r#"
[[filter]]
name = "inner"
file = "inner.txt"
match = "source"
action = "drop"
[[sid_hook]]
name = "clean"
sid = "fd00:a::1"
filters = ["inner"]
[[sid_hook]]
name = "look"
sid = "fd00:a::2"
pcap = "look.pcapng"
rate = 100
[[sid_hook]]
name = "mine"
sid = "fd00:a::3"
program = "/sys/fs/bpf/mine"
"#;

    #[test]
    fn whole_sid_hooks() {
        let file = File::parse(GOOD).unwrap();
        let sid_hooks = file.sid_hooks(Path::new("/etc/trieline"));
        assert_eq!(sid_hooks[0].what, What::Filter(vec!["inner".into()]));
        let What::Pcap(sample) = &sid_hooks[1].what else { panic!("{sid_hooks:?}") };
        assert_eq!((sample.file.as_path(), sample.snap), (Path::new("/etc/trieline/look.pcapng"), 256));
        assert_eq!(sid_hooks[2].what, What::Program("/sys/fs/bpf/mine".into()));
    }

    #[test]
    fn errors_name_the_line_and_what_was_expected() {
        for (from, to, expected_text) in [
            ("fd00:a::1", "fd00:a::x", "line 9: "),
            ("fd00:a::2", "fd00:a::1", "line 13: sid_hook: look: fd00:a::1 has clean already"),
            ("\"look\"", "\"clean\"", "line 12: sid_hook: two are named \"clean\""),
            (
                "[\"inner\"]",
                "[\"other\"]",
                "line 10: sid_hook: clean: no filter is named \"other\"; expected one of inner",
            ),
            ("rate = 100", "rate = 0", "line 15: sid_hook: look: rate 0; expected 1 to"),
            (
                "pcap = \"look.pcapng\"\n",
                "",
                "line 11: sid_hook: look: expected one of filters, pcap and program",
            ),
            ("program", "programme", "line 19: unknown key `programme`; did you mean `program`?"),
            ("program =", "rate = 1\nprogram =", "line 19: sid_hook: mine: rate without pcap"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error_text = File::parse(&text).unwrap_err().to_string();
            assert!(error_text.contains(expected_text), "{error_text:?} does not have {expected_text:?}");
        }
    }
}
