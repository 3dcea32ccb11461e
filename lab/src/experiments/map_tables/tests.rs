//! LPM_TRIE and trieline, both map types, on a small table read from a file: every answer agrees with the oracle.

use std::io::Write;

use super::*;
use crate::{
    Error,
    testing::{alone, asked, run},
};

fn quick(option: &str, value: &str) -> MapTables {
    asked(&["--quick", "--seed", "3", "--rounds", "1", option, value]).unwrap()
}

#[test]
fn a_thousand_prefixes_of_both_families() {
    let Some(_alone) = alone() else { return };
    let mut file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    let tables = Tables::internet(800, 200, 3);
    for prefix in &tables.v4 {
        writeln!(file, "{prefix}").unwrap();
    }
    for prefix in &tables.v6 {
        writeln!(file, "{prefix}").unwrap();
    }
    let outcome = run(&quick("--table", file.path().to_str().unwrap()), false).unwrap();
    let name = file.path().file_name().unwrap().to_str().unwrap();
    // Two families, two modes; LPM_TRIE and at least one map type of ours.
    assert!(outcome.rows.len() >= 8, "{:?}", outcome.rows);
    for row in &outcome.rows {
        assert_eq!(row.table, name);
        assert_eq!(row.source, Source::File);
        assert_eq!(row.prefixes, if row.family == 4 { 800 } else { 200 });
        assert!(row.checked >= 1 << 17, "{row:?}");
        assert!(row.ns_min <= row.ns && row.ns <= row.ns_max && row.ns > 0.5, "{row:?}");
        assert!(row.bytes > 0, "{row:?}");
        if row.structure == "lpm_trie" {
            assert_eq!(row.ratio, Some(1.0));
        }
    }
}

#[test]
fn endpoints_of_an_address_and_a_port() {
    let Some(_alone) = alone() else { return };
    let outcome = run(&quick("--only", "ipport"), false).unwrap();
    assert!(outcome.rows.len() >= 4, "{:?}", outcome.rows);
    for row in &outcome.rows {
        assert_eq!((row.table.as_str(), row.family, row.source), ("ipport-10000", 0, Source::Generated));
        assert!(row.checked >= 1 << 17 && row.prefixes > 10_000, "{row:?}");
    }
    let error = run(&quick("--only", "no such table"), false).unwrap_err();
    assert!(matches!(&error, Error::NoCase(name) if name == "no such table"), "{error}");
}

#[test]
fn a_bad_file_is_named_with_its_line() {
    let Some(_alone) = alone() else { return };
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"10.0.0.0/8\n10.0.0.0/33 5\n").unwrap();
    let error = run(&quick("--table", file.path().to_str().unwrap()), false).unwrap_err();
    assert!(matches!(error, Error::Import(_)));
    let text = error.to_string();
    assert!(text.contains(file.path().to_str().unwrap()) && text.contains("10.0.0.0/33"), "{text}");
}
