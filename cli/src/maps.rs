//! The experiments on LPM_TRIE and its replacement (`map-…`) for people: their tables and their pictures.

use std::fmt::Write as _;

use anyhow::bail;
use trieline_lab::{
    Context,
    curve::{self, Curve, Marks, Words},
    experiments::{map_curve, map_free, map_ops, map_tables, structure::Mode},
    published,
};

use crate::{
    lab::{RunArgs, aligned, command_line, keep, save, show},
    output::Output,
    progress::Bars,
};

/// Runs the one of that name and shows what it measured.
pub fn run(
    name: &str,
    args: &RunArgs,
    output: &Output,
    context: &Context,
    bars: &Bars,
) -> anyhow::Result<()> {
    let sizes = (!args.entries.is_empty()).then(|| args.entries.clone());
    match name {
        "map-ops" => {
            if args.entries.len() > 1 {
                bail!(
                    "--entries {}: map-ops measures tables of one size; expected one number",
                    commas(&args.entries)
                );
            }
            let options = map_ops::Options {
                quick: args.quick,
                entries: args.entries.first().copied(),
                seed: args.seed,
                command: command_line(),
                rounds: args.rounds,
            };
            let outcome = map_ops::run(&options, context)?;
            bars.finish();
            let title = format!("Operations on {} dense hosts", outcome.parameters.entries);
            save(args, &outcome, &[("map-ops", &title, map_ops::lines(&outcome.rows))], bars)?;
            show(output, &outcome, operations(&outcome))
        }
        "map-curve" => {
            let options = map_curve::Options {
                quick: args.quick,
                points: sizes,
                seed: args.seed,
                command: command_line(),
                rounds: args.rounds,
            };
            let outcome = map_curve::run(&options, context)?;
            bars.finish();
            keep(
                args,
                bars,
                |directory| outcome.save(directory),
                || {
                    let (_, published) = published::curve()?;
                    let times = |mode| map_curve::times(&outcome.rows, mode, &published);
                    let source = outcome.caption();
                    draw(
                        &source,
                        [
                            (
                                "map-curve-packet",
                                "A lookup in a whole XDP program a packet",
                                "ns",
                                times(Mode::Packet),
                            ),
                            (
                                "map-curve-loop",
                                "A lookup in a loop inside one program",
                                "ns",
                                times(Mode::Loop),
                            ),
                            (
                                "map-curve-touched",
                                "What a lookup of a random key touches",
                                "distinct 64-byte lines, 4 KiB pages",
                                map_curve::touched(&outcome.rows),
                            ),
                        ],
                    )
                },
            )?;
            show(output, &outcome, lookups(&outcome))
        }
        "map-free" => {
            let options = map_free::Options {
                quick: args.quick,
                sizes,
                seed: args.seed,
                command: command_line(),
                rounds: args.rounds,
            };
            let outcome = map_free::run(&options, context)?;
            bars.finish();
            keep(
                args,
                bars,
                |directory| outcome.save(directory),
                || {
                    let (times, stalls) = (map_free::times(&outcome.rows), map_free::stalls(&outcome.rows));
                    let source = outcome.caption();
                    draw(
                        &source,
                        [
                            ("map-free-cpu", "Freeing dense hosts", "ms of CPU time", times),
                            ("map-free-stall", "Freeing dense hosts: longest stall of a CPU", "ms", stalls),
                        ],
                    )
                },
            )?;
            show(output, &outcome, frees(&outcome))
        }
        _ => {
            let options = map_tables::Options {
                quick: args.quick,
                table: args.table.clone(),
                only: args.only.clone(),
                data: args.data.clone(),
                seed: args.seed,
                command: command_line(),
                rounds: args.rounds,
            };
            let outcome = map_tables::run(&options, context)?;
            bars.finish();
            let packets = map_tables::lines(&outcome.rows, Mode::Packet);
            let loops = map_tables::lines(&outcome.rows, Mode::Loop);
            let pictures = [
                ("map-tables-packet", "Longest-prefix match, a whole XDP program a packet", packets),
                ("map-tables-loop", "Longest-prefix match, independent lookups in a loop", loops),
            ];
            save(args, &outcome, &pictures, bars)?;
            show(output, &outcome, tables(&outcome))
        }
    }
}

/// Curves over the number of entries, by the pictures' names.
fn draw<const N: usize>(
    source: &str,
    pictures: [(&str, &str, &str, Vec<Curve>); N],
) -> trieline_lab::Result<Vec<(String, String)>> {
    let draw = |(name, title, y, curves): (&str, &str, &str, Vec<Curve>)| {
        let words = Words { title, x: "entries", marks: Marks::Numbers, y, source };
        Ok((name.to_owned(), curve::picture(words, &curves)?))
    };
    pictures.into_iter().map(draw).collect()
}

fn commas(numbers: &[usize]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

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
fn tables(outcome: &map_tables::Outcome) -> String {
    let words = [
        "table",
        "prefixes",
        "structure",
        "home",
        "mode",
        "ns",
        "min",
        "max",
        "empty",
        "ratio",
        "net",
        "MiB",
    ];
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
            row.ns_empty.map(|ns| format!("{ns:.1}")).unwrap_or_default(),
            format!("{:.1}x", row.ratio),
            row.ratio_net.map(|net| format!("{net:.1}x")).unwrap_or_default(),
            format!("{:.1}", row.bytes as f64 / (1 << 20) as f64),
        ]);
    }
    let mut text = aligned(&rows, 5);
    let checked = outcome.rows.iter().map(|row| row.checked).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "\n{} rounds; random hosts inside random prefixes; up to {checked} answers of each compared with the oracle: all agree.\n\
         net: the ratio without what the empty program takes.",
        outcome.parameters.rounds
    );
    text
}

/// `map-ops`.
fn operations(outcome: &map_ops::Outcome) -> String {
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

/// `map-curve`.
fn lookups(outcome: &map_curve::Outcome) -> String {
    let words = [
        "entries",
        "structure",
        "home",
        "mode",
        "order",
        "ns",
        "min",
        "max",
        "empty",
        "published",
        "ratio",
        "lines",
        "pages",
        "MiB",
    ];
    let mut rows = vec![heading(words)];
    for row in &outcome.rows {
        rows.push(vec![
            row.entries.to_string(),
            row.structure.into(),
            row.home.into(),
            row.mode.name().into(),
            row.order.name().into(),
            format!("{:.1}", row.ns),
            format!("{:.1}", row.ns_min),
            format!("{:.1}", row.ns_max),
            format!("{:.1}", row.ns_empty),
            row.published_ns.map(|ns| format!("{ns:.1}")).unwrap_or_default(),
            format!("{:.1}x", row.ratio),
            format!("{:.2}/{}", row.lines, row.lines_max),
            format!("{:.2}/{}", row.pages, row.pages_max),
            format!("{:.2}", row.bytes as f64 / (1 << 20) as f64),
        ]);
    }
    let p = &outcome.parameters;
    let mut text = aligned(&rows, 5);
    let counted = p.no_counters.as_deref().map_or("with -j".into(), |why| format!("none here ({why})"));
    let _ = writeln!(
        text,
        "\n{} rounds; tables {}.\nPublished: LPM_TRIE, in a loop, in sequence; {}.\nLines, pages a lookup, mean/most: {}.\n\
         Counters of the processor: {counted}. Every answer agrees with the oracle.",
        p.rounds, p.tables, p.published, p.lines
    );
    text
}

/// `map-free`.
fn frees(outcome: &map_free::Outcome) -> String {
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
