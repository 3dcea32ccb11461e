//! LPM_TRIE and trieline, both map types, on a small table read from a file: every answer agrees with the oracle.

use std::{io::Write, sync::atomic::AtomicBool};

use trieline_lab::{
    Context, Error, Quiet,
    experiments::{Options, map_tables},
    tables::{Source, Tables},
};

mod common;

fn options(table: &std::path::Path) -> Options {
    Options {
        quick: true,
        table: Some(table.to_owned()),
        seed: 3,
        command: "test".into(),
        rounds: Some(1),
        ..Options::default()
    }
}

#[test]
fn a_thousand_prefixes_of_both_families() {
    if !common::root_or_skip() {
        return;
    }
    let mut file = tempfile::Builder::new().suffix(".txt").tempfile().unwrap();
    let tables = Tables::internet(800, 200, 3);
    for prefix in &tables.v4 {
        writeln!(file, "{prefix}").unwrap();
    }
    for prefix in &tables.v6 {
        writeln!(file, "{prefix}").unwrap();
    }
    let interrupt = AtomicBool::new(false);
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let outcome = map_tables::run(&options(file.path()), &context).unwrap();
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
            assert_eq!(row.ratio, 1.0);
        }
    }
}

#[test]
fn endpoints_of_an_address_and_a_port() {
    if !common::root_or_skip() {
        return;
    }
    let interrupt = AtomicBool::new(false);
    let only = |name: &str| Options { table: None, only: Some(name.into()), ..options("".as_ref()) };
    let context = Context { progress: &Quiet, interrupt: &interrupt };
    let outcome = map_tables::run(&only("ipport"), &context).unwrap();
    assert!(outcome.rows.len() >= 4, "{:?}", outcome.rows);
    for row in &outcome.rows {
        assert_eq!((row.table.as_str(), row.family, row.source), ("ipport-10000", 0, Source::Generated));
        assert!(row.checked >= 1 << 17 && row.prefixes > 10_000, "{row:?}");
    }
    let error = map_tables::run(&only("no such table"), &context).unwrap_err();
    assert!(matches!(&error, Error::NoCase(name) if name == "no such table"), "{error}");
}

#[test]
fn a_bad_file_is_named_with_the_line_and_what_it_says() {
    if !common::root_or_skip() {
        return;
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"10.0.0.0/8\n10.0.0.0/33 5\n").unwrap();
    let interrupt = AtomicBool::new(false);
    let error = map_tables::run(&options(file.path()), &Context { progress: &Quiet, interrupt: &interrupt })
        .unwrap_err();
    assert!(matches!(error, Error::Import(_)));
    let text = error.to_string();
    assert!(text.contains(file.path().to_str().unwrap()) && text.contains("10.0.0.0/33"), "{text}");
}
