//! `[[sid_hook]]`: what is done to packets to a SID before its behaviour.

use std::path::Path;
use trieline_router::SidHookRule;
use trieline_router::sid_hook::rule::What;

/// A missing file of the system, and the key that names it: a pinned program, a folder to write a sample to.
pub fn check_files(hook: &SidHookRule, folder: &Path) -> Result<(), (&'static str, String)> {
    let name = &hook.name;
    match &hook.what {
        What::Filter { .. } => Ok(()),
        What::Program { .. } if !rustix::process::geteuid().is_root() => {
            tracing::warn!("hook {name}: cannot check its program without root");
            Ok(())
        }
        What::Program { program } => trieline_router::find_program(program)
            .map_err(|error| ("program", format!("sid_hook: {name}: {error}"))),
        What::Pcap(sample) => {
            let file = folder.join(&sample.file);
            let file_folder = file.parent().unwrap_or(folder);
            if file_folder.is_dir() {
                return Ok(());
            }
            let what = format!("sid_hook: {name}: {}: no such folder to write to", file_folder.display());
            Err(("pcap", what))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::File;
    use std::path::Path;
    use trieline_router::sid_hook::rule::What;

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
        let sid_hooks = file.config(Path::new("/etc/trieline")).sid_hooks;
        assert_eq!(sid_hooks[0].what, What::Filter { filters: vec!["inner".into()] });
        let What::Pcap(sample) = &sid_hooks[1].what else { panic!("{sid_hooks:?}") };
        assert_eq!((sample.file.as_path(), sample.snap), (Path::new("/etc/trieline/look.pcapng"), 256));
        assert_eq!(sid_hooks[2].what, What::Program { program: "/sys/fs/bpf/mine".into() });
    }

    #[test]
    fn errors_name_the_line_and_the_expected_value() {
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
            ("pcap = \"look.pcapng\"\n", "", "line 11: look: expected one of filters, pcap and program"),
            ("program", "programme", "line 19: unknown key `programme`; did you mean `program`?"),
            ("program =", "rate = 1\nprogram =", "line 16: mine: rate without pcap"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            let error_text = File::parse(&text).unwrap_err().to_string();
            assert!(error_text.contains(expected_text), "{error_text:?} does not have {expected_text:?}");
        }
    }
}
