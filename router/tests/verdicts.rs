//! docs/verdicts.md has every verdict that there is, each with its kind, and no other.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;
use std::path::Path;
use trieline_router::VERDICTS;

#[test]
fn every_verdict_is_explained() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/verdicts.md");
    let text = std::fs::read_to_string(path).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.map(|row| {
        let (name, rest) = row.split_once("` | ").unwrap();
        let (kind, what) = rest.split_once(" | ").unwrap();
        assert!(what.len() > 5, "{name} is not explained");
        (name.to_owned(), kind.to_owned())
    });
    let documented: BTreeMap<String, String> = rows.collect();
    let there_are = VERDICTS.iter().map(|verdict| (verdict.name.to_owned(), verdict.kind.to_string()));
    assert_eq!(documented, there_are.collect::<BTreeMap<_, _>>(), "docs/verdicts.md, then intf.h");
}
