//! The experiments on LPM_TRIE and its replacement (`map-…`) for people: their tables and their pictures.

use std::fmt::Write as _;

use trieline_lab::experiments::{map_free, map_ops, map_tables};

use crate::lab::aligned;

fn heading<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(String::from).to_vec()
}

/// A number with as many decimals as are worth reading.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}

/// `map-tables`.
pub fn tables(outcome: &map_tables::Outcome) -> String {
    let words =
        ["table", "prefixes", "structure", "home", "mode", "ns", "min", "max", "empty", "ratio", "MiB"];
    let mut rows = vec![heading(words)];
    for row in &outcome.rows {
        rows.push(vec![
            row.table.clone(),
            row.prefixes.to_string(),
            row.structure.into(),
            row.home.into(),
            row.mode.name().into(),
            format!("{:.1}", row.ns),
            format!("{:.1}", row.ns_min),
            format!("{:.1}", row.ns_max),
            format!("{:.1}", row.ns_empty),
            format!("{:.1}x", row.ratio),
            format!("{:.1}", row.bytes as f64 / (1 << 20) as f64),
        ]);
    }
    let mut text = aligned(&rows, 5);
    let checked = outcome.rows.iter().map(|row| row.checked).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{} rounds; random hosts inside random prefixes; up to {checked} answers of each compared with the oracle: all agree.",
        outcome.parameters.rounds
    );
    text
}

/// `map-ops`.
pub fn operations(outcome: &map_ops::Outcome) -> String {
    let words =
        ["structure", "home", "op", "where", "Mops", "stddev", "ns", "min", "max", "published ns", "ratio"];
    let mut rows = vec![heading(words)];
    for row in &outcome.rows {
        rows.push(vec![
            row.structure.into(),
            row.home.into(),
            row.op.into(),
            row.place.into(),
            format!("{:.4}", row.mops),
            format!("{:.4}", row.stddev),
            short(row.ns),
            short(row.ns_min),
            short(row.ns_max),
            row.published_ns.map(short).unwrap_or_default(),
            format!("{:.1}x", row.ratio),
        ]);
    }
    let p = &outcome.parameters;
    let mut text = aligned(&rows, 4);
    let _ = writeln!(
        text,
        "\n{} entries, {} rounds; keys {}.\n{}; free is CPU time.\nPublished: {}, of LPM_TRIE. Ratio: LPM_TRIE's ns in BPF over this ns.\n\
         Every change was compared with what lookups found afterwards: all agree.",
        p.entries, p.rounds, p.keys, p.places, p.published
    );
    text
}

/// `map-free`.
pub fn frees(outcome: &map_free::Outcome) -> String {
    let words = [
        "entries",
        "structure",
        "home",
        "what",
        "CPU ms",
        "min",
        "max",
        "own",
        "unmap",
        "idle",
        "stall ms",
        "max",
        "idle stall",
        "max",
        "MiB",
    ];
    let mut rows = vec![heading(words)];
    for row in &outcome.rows {
        rows.push(vec![
            row.entries.to_string(),
            row.structure.into(),
            row.home.into(),
            row.what.name().into(),
            format!("{:.2}", row.cpu_ms),
            format!("{:.2}", row.cpu_ms_min),
            format!("{:.2}", row.cpu_ms_max),
            format!("{:.2}", row.own_ms),
            row.unmap_ms.map(|ms| format!("{ms:.2}")).unwrap_or_default(),
            format!("{:.2}", row.idle_ms),
            format!("{:.2}", row.stall_ms),
            format!("{:.2}", row.stall_ms_max),
            format!("{:.2}", row.idle_stall_ms),
            format!("{:.2}", row.idle_stall_ms_max),
            row.bytes.map(|bytes| format!("{:.1}", bytes as f64 / (1 << 20) as f64)).unwrap_or_default(),
        ]);
    }
    let p = &outcome.parameters;
    let mut text = aligned(&rows, 4);
    let _ = writeln!(
        text,
        "\n{} rounds; tables {}. CPU: {};\nof that own: this process's, unmap: of that the mapping and the file descriptor. Stall: {};\n\
         idle: the same without a freeing. table: one table goes, another of {} entries stays and answers as before.",
        p.rounds, p.tables, p.cpu, p.stall, p.live
    );
    text
}
