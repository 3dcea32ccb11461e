//! README.md and docs/ against the programs: every command runs, and the configuration page has every key and flag.

mod output;
mod page;
mod pages;
mod run;
mod shell;
mod snippets;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use trieline_testbed::command::{binary_path, run_with};

/// The first cells of the tables of docs/configuration.md: keys by their section, flags under `flags`.
fn configuration_page() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let (mut section, mut cells) = (String::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for line in page.lines() {
        // A heading names its section, or the head of a table does: "key of `[[vrf]]`".
        if line.starts_with("## ") || line.starts_with("| key of") {
            let name = line.split('`').nth(1).map(|name| name.trim_matches(['[', ']']).to_owned());
            section =
                name.unwrap_or_else(|| if line.contains("Flags") { "flags".into() } else { String::new() });
        } else if let Some(cell) = line.strip_prefix("| `") {
            cells.entry(section.clone()).or_default().extend(cell.split('`').next().map(str::to_owned));
        }
    }
    cells
}

/// The keys that trielined knows in a section, from its answer to one that does not exist.
fn known_keys(section: &str) -> BTreeSet<String> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), format!("{section}\nnosuchkeyatall = 1\n")).expect("it can be written");
    let path = file.path().to_string_lossy().into_owned();
    let answer = run_with(&binary_path("trielined"), &["--check", "--config", &path], "");
    let Some((_, keys)) = answer.stderr.split_once("known are ") else {
        panic!("no list of keys: {answer:?}")
    };
    keys.split(',').map(|key| key.trim().to_owned()).collect()
}

#[test]
fn the_configuration_page_has_every_key_and_flag() {
    let page = configuration_page();
    let mut top = known_keys("");
    for section in ["audit", "srv6", "filter", "sid_hook", "vrf", "vlan"] {
        assert!(top.remove(section), "{section} is a section");
        let head = if ["audit", "srv6"].contains(&section) {
            format!("[{section}]")
        } else {
            format!("[[{section}]]")
        };
        assert_eq!(page[section], known_keys(&head), "{head}: the page, then trielined");
    }
    assert_eq!(page[""], top, "keys at the top level: the page, then trielined");

    // Of `-n, --netns NETNS` the long flag.
    let long = |cell: &str| cell.split([' ', '=']).find(|word| word.starts_with("--")).map(str::to_owned);
    let help = run_with(&binary_path("trielined"), &["--help"], "").ok();
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut flags: BTreeSet<String> = options.filter_map(long).collect();
    flags.retain(|flag| !["--help", "--version"].contains(&flag.as_str()));
    let of_page: BTreeSet<String> = page["flags"].iter().filter_map(|cell| long(cell)).collect();
    assert_eq!(of_page, flags, "flags: the page, then trielined");
}
