//! `trieline lab draw`: how a classic trie keeps a small table, as a picture, with the way of a lookup in it.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::bail;
use clap::{Args, ValueEnum};
use trieline_draw::command::{self, BuiltStructure, Drawn, PictureArgs, SHORT, many};
use trieline_lab::rivals::{Binary, Fib, LcTrie, Patricia, Relaxed, Trie, relaxed::Threshold};
use trieline_lpm::{
    Address, Prefix,
    io::{self, ReadOptions},
};
use trieline_terminal::{Output, usage};

/// Slots of a trie that are looked at one by one to find those that lead somewhere.
const SLOTS_MAX: usize = 1 << 20;

/// A line about each structure.
const HELP: &str = "\
Structures: binary (a node a bit), patricia (nodes that branch), perfect (2^n ways where all exist), relaxed (2^n ways with gaps: \
--threshold, --root-threshold). Also fib (the kernel's, after the routes were added in order). `trieline table draw` draws trieline's own.\n\n";

/// A structure that keeps the prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Structure {
    /// A node a bit
    Binary,
    /// Path-compressed: nodes that branch
    Patricia,
    /// Level-compressed: 2^n ways where all exist
    Perfect,
    /// 2^n ways with gaps, as many as the thresholds allow
    Relaxed,
    /// The kernel's `fib_trie`
    Fib,
}

/// Options of `lab draw`.
#[derive(Args, Debug)]
#[command(after_help = HELP.to_owned() + command::HELP)]
pub struct DrawArgs {
    /// Read this table
    ///
    /// `prefix [value]` lines, gzip or not, or the output of `ip route`.
    file: PathBuf,
    /// Draw binary, patricia, perfect, relaxed or fib
    #[arg(long, value_name = "STRUCTURE", value_enum, hide_possible_values = true)]
    structure: Structure,
    /// relaxed: double a node if PERCENT full then [default: 50]
    ///
    /// From 0 to 120: so many percent of the doubled node's slots must be used.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=120))]
    threshold: Option<u32>,
    /// relaxed: the same for the root [default: --threshold, or 30]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=120))]
    root_threshold: Option<u32>,
    #[command(flatten)]
    picture: PictureArgs,
    /// Draw the IPv4 prefixes
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// Draw the IPv6 prefixes
    #[arg(short = '6')]
    ipv6: bool,
}

/// Runs the command.
pub fn run(args: &DrawArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.structure != Structure::Relaxed && (args.threshold.is_some() || args.root_threshold.is_some()) {
        let expected = "expected them with --structure relaxed only; the others have rules of their own";
        return Err(usage(format!("--threshold, --root-threshold: {expected}")).into());
    }
    let family = if args.ipv4 { Some(4) } else { args.ipv6.then_some(6) };
    let list = io::read(&args.file, &ReadOptions::default())?;
    let v4 = sorted(list.prefixes.v4, family != Some(6), &args.file)?;
    let v6 = sorted(list.prefixes.v6, family != Some(4), &args.file)?;
    let has_values = v4.has_values || v6.has_values;
    let value = |value: u32| has_values.then(|| list.names.get(&value).cloned().unwrap_or(value.to_string()));
    match args.picture.family(&args.file, family, !v4.rows.is_empty(), !v6.rows.is_empty())? {
        4 => args.draw(&v4.rows, &value, output)?,
        _ => args.draw(&v6.rows, &value, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The prefixes of a family in order.
struct Rows<A> {
    rows: Vec<(Prefix<A>, u32)>,
    has_values: bool,
}

/// Of equal prefixes the last counts; without values all have 1. None at all unless `is_wanted`.
fn sorted<A: Address>(
    list: Vec<(Prefix<A>, Option<u32>)>,
    is_wanted: bool,
    file: &Path,
) -> anyhow::Result<Rows<A>> {
    let has_values = list.iter().any(|row| row.1.is_some());
    if let Some((prefix, _)) = list.iter().find(|row| row.1.is_some() != has_values) {
        bail!("{}: {prefix} has no value, others have one; expected all or none", file.display());
    }
    // A map keeps the last of equal prefixes.
    let rows = list.into_iter().map(|(prefix, value)| (prefix, value.unwrap_or(1)));
    let rows: std::collections::BTreeMap<_, _> = rows.filter(|_| is_wanted).collect();
    Ok(Rows { rows: rows.into_iter().collect(), has_values })
}

impl DrawArgs {
    fn draw<A: Address>(
        &self,
        rows: &[(Prefix<A>, u32)],
        value: &dyn Fn(u32) -> Option<String>,
        output: &Output,
    ) -> anyhow::Result<()> {
        let open = |addr: Option<A>| match self.structure {
            Structure::Binary => self.open("binary trie".into(), Binary::default(), rows, addr),
            Structure::Patricia => self.open("Patricia trie".into(), Patricia::default(), rows, addr),
            Structure::Perfect => self.open("perfect LPC-trie".into(), LcTrie::default(), rows, addr),
            Structure::Relaxed => {
                let threshold = self.thresholds(rows);
                let Threshold { inner, root, .. } = threshold;
                let name = format!("relaxed LPC-trie, threshold {inner} %, root {root} %");
                self.open(name, Relaxed::new(threshold), rows, addr)
            }
            Structure::Fib => self.open("Linux's fib_trie".into(), Fib::default(), rows, addr),
        };
        self.picture.draw(&Drawn { file: &self.file, rows, value }, open, output)
    }

    /// The default is Linux's. No node looks past the end of short keys, nor at 0 % past the longest prefix.
    fn thresholds<A: Address>(&self, rows: &[(Prefix<A>, u32)]) -> Threshold {
        let default = Threshold::default();
        let inner = self.threshold.unwrap_or(default.inner);
        let root = self.root_threshold.or(self.threshold).unwrap_or(default.root);
        let longest = rows.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(1);
        let is_bound = longest <= SHORT || inner == 0 || root == 0;
        let within = if is_bound { longest.clamp(1, 24) } else { default.within };
        Threshold { inner, root, within }
    }

    /// Puts the prefixes into a trie, in their order, and looks `addr` up.
    fn open<A: Address>(
        &self,
        name: String,
        mut trie: impl Trie<A>,
        rows: &[(Prefix<A>, u32)],
        addr: Option<A>,
    ) -> anyhow::Result<BuiltStructure<A>> {
        for (prefix, value) in rows {
            trie.insert(*prefix, *value);
        }
        let figures = trie.figures();
        let nodes = figures.internal + figures.leaves;
        self.picture.check(&name, nodes, "nodes and leaves")?;
        if figures.slots > SLOTS_MAX {
            bail!(
                "{name}: {} slots; a picture takes at most {SLOTS_MAX}: expected a higher threshold",
                figures.slots
            );
        }
        let facts = vec![
            format!(
                "{}; {}, {}; {} slots, {} of them empty; {} bytes",
                many(figures.prefixes, "prefix", "prefixes"),
                many(figures.internal, "node", "nodes"),
                many(figures.leaves, "leaf", "leaves"),
                figures.slots,
                figures.empty,
                figures.bytes
            ),
            format!(
                "depth of what holds prefixes: {:.2} in the mean, {} at most",
                figures.depth_mean(),
                figures.depth_max()
            ),
        ];
        let path = addr.map(|addr| trie.path(addr)).unwrap_or_default();
        let answer = addr.and_then(|addr| trie.lookup(addr)).map(|(prefix, value)| (Some(prefix), value));
        let (bytes, graph) = (figures.bytes as u64, trie.graph());
        Ok(BuiltStructure { name, nodes, bytes, facts, graph, path, answer })
    }
}
