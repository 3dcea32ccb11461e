//! `table draw`: how a structure keeps a table, as a picture, with the way of a lookup in it.

use super::input::{ReadArgs, Table};
use super::inspect;
use super::structure::{BuiltStructure, Choice, SHORT, Structure};
use crate::draw::scene::{Lookup, Words, scene};
use crate::draw::{dot, svg};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trieline_lpm::io::Sink;
use trieline_lpm::io::snapshot::Snapshot;
use trieline_lpm::{Address, IpPrefix, Prefix};
use trieline_terminal::Output;
use trieline_terminal::usage;

/// A line about each structure.
pub const HELP: &str = "\
Structures: binary (a node a bit), patricia (nodes that branch), perfect (2^n ways where all exist), relaxed (2^n ways with gaps: \
--threshold, --root-threshold), fib (the kernel's, after the routes were added in order), image (trieline's own; of an image file, the one in it).

With --lookup, trieline colours the way of a lookup: solid on its way down, dashed after it has gone back to shorter prefixes.

If all prefixes have at most eight bits, trieline shows keys as bits, and --lookup takes bits, too: 0.0.0.0/4 and 16.0.0.0/4 are the keys \
0000 and 0001.";

/// The format of a picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For a browser or a page
    Svg,
    /// For Graphviz
    Dot,
}

/// How keys are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Labels {
    /// As addresses
    Addresses,
    /// As bits
    Bits,
}

/// Options of `table draw`.
#[derive(Debug, Args)]
pub struct DrawArgs {
    /// Read this table
    file: PathBuf,
    /// Draw binary, patricia, perfect, relaxed, fib or image
    #[arg(long, value_name = "STRUCTURE", value_enum, default_value = "image", hide_possible_values = true)]
    structure: Structure,
    /// relaxed: double a node if PERCENT full then [default: 50]
    ///
    /// From 0 to 120: so many percent of the doubled node's slots must be used.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=120))]
    threshold: Option<u32>,
    /// relaxed: the same for the root [default: --threshold, or 30]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=120))]
    root_threshold: Option<u32>,
    /// Show the way of a lookup
    #[arg(long, value_name = "ADDRESS")]
    lookup: Option<String>,
    /// Write svg, or dot for Graphviz [default: by the file's name]
    #[arg(long, value_name = "FORMAT", value_enum, hide_possible_values = true)]
    format: Option<Format>,
    /// Show keys as addresses or bits
    ///
    /// By default as bits, if no prefix has more than eight.
    #[arg(long, value_name = "HOW", value_enum, hide_possible_values = true)]
    labels: Option<Labels>,
    /// Draw at most so many nodes and leaves
    ///
    /// Of an image: so many runs of slots.
    #[arg(long, value_name = "NUMBER", default_value = "1000")]
    most: usize,
    /// Write this file [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    read: ReadArgs,
}

impl DrawArgs {
    fn format(&self) -> anyhow::Result<Format> {
        let suffix = self.output.as_deref().and_then(Path::extension).and_then(|suffix| suffix.to_str());
        match (self.format, suffix) {
            (Some(format), _) => Ok(format),
            (None, None | Some("svg")) => Ok(Format::Svg),
            (None, Some("dot" | "gv")) => Ok(Format::Dot),
            (None, Some(other)) => {
                let expected = "expected .svg, .dot, or --format";
                Err(usage(format!("-o: no pictures are written as .{other}; {expected}")).into())
            }
        }
    }
}

/// Runs the command.
pub fn run(args: &DrawArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    if args.structure != Structure::Relaxed && (args.threshold.is_some() || args.root_threshold.is_some()) {
        let expected = "expected them with --structure relaxed only; the others have rules of their own";
        return Err(usage(format!("--threshold, --root-threshold: {expected}")).into());
    }
    let image = if args.structure == Structure::Image { inspect::image(&args.file)? } else { None };
    // An image can be drawn without its prefixes.
    let table = match &image {
        Some(image) if !image.has_prefixes() => None,
        _ => Some(Table::read(&args.file, &args.read, family)?),
    };
    let (v4, v6) = table.as_ref().map_or((&[][..], &[][..]), |table| (&table.v4, &table.v6));
    let has = |family, rows: usize| match (&table, &image) {
        (None, Some(image)) => image.directory().any(|root| root.family == family),
        _ => rows > 0,
    };
    let drawing = Drawing { args, image: image.as_ref(), table: table.as_ref() };
    match drawing.family(family, has(4, v4.len()), has(6, v6.len()))? {
        4 => drawing.run(v4, IpPrefix::V4, output)?,
        _ => drawing.run(v6, IpPrefix::V6, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Drawing<'a> {
    args: &'a DrawArgs,
    image: Option<&'a Snapshot>,
    table: Option<&'a Table>,
}

impl Drawing<'_> {
    /// The family to draw: that of -4 or -6, or the only one there is.
    fn family(&self, asked: Option<u8>, has4: bool, has6: bool) -> anyhow::Result<u8> {
        let file = self.args.file.display();
        let addr = self.args.lookup.as_deref().and_then(|text| text.parse::<IpAddr>().ok());
        let looked_up = addr.map(|addr| if addr.is_ipv4() { 4 } else { 6 });
        if let (Some(is), Some(asked)) = (looked_up, asked)
            && is != asked
        {
            let text = self.args.lookup.as_deref().unwrap_or_default();
            return Err(usage(format!("--lookup {text} is IPv{is}; -{asked} expects IPv{asked}")).into());
        }
        let family = match (looked_up.or(asked), has4, has6) {
            (_, false, false) => match self.table.map(Table::widths).as_deref() {
                Some([bits, ..]) => {
                    bail!("{file}: keys of {bits} bits; pictures are made of IPv4 and IPv6 prefixes")
                }
                _ => bail!("{file}: no prefix to draw; expected at least one"),
            },
            (Some(family), ..) => family,
            (None, true, true) => {
                return Err(usage(format!("{file} has IPv4 and IPv6 prefixes; expected -4 or -6")).into());
            }
            (None, true, false) => 4,
            (None, false, true) => 6,
        };
        if (family == 4 && !has4) || (family == 6 && !has6) {
            let has = if has4 { 4 } else { 6 };
            let text = self.args.lookup.as_deref().unwrap_or_default();
            let message =
                format!("--lookup {text} is IPv{family}, {file} has no such prefix; expected IPv{has}");
            return Err(usage(message).into());
        }
        Ok(family)
    }

    fn run<A: Address>(
        &self,
        rows: &[(Prefix<A>, u32)],
        wrap: fn(Prefix<A>) -> IpPrefix,
        output: &Output,
    ) -> anyhow::Result<()> {
        let args = self.args;
        let addr = args.lookup.as_deref().map(|text| key::<A>(text)).transpose()?;
        let thresholds = (args.threshold, args.root_threshold);
        let choice = Choice { structure: args.structure, thresholds, most: args.most, image: self.image };
        let opened = choice.open(rows, addr).with_context(|| args.file.display().to_string())?;
        let longest = rows.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(A::WIDTH);
        let bits = match args.labels {
            Some(Labels::Addresses) => None,
            Some(Labels::Bits) => Some(longest),
            None => Some(longest).filter(|longest| *longest <= SHORT),
        };
        let value = |value: u32| match self.table {
            Some(table) if !table.has_values => None,
            Some(table) => Some(table.names.get(&value).cloned().unwrap_or(value.to_string())),
            None => Some(value.to_string()),
        };
        let words = Words { bits, value: &value };
        let lookup = addr.map(|addr| Lookup {
            addr: address(&wrap(Prefix::host(addr)).to_string()),
            path: opened.path.clone(),
            answer: opened
                .answer
                .map(|(prefix, value)| (prefix.map(|prefix| wrap(prefix).to_string()), value)),
        });
        let name = args.file.file_name().map_or("-".into(), |name| name.to_string_lossy());
        let title = format!("{name}: {}", opened.name);
        let scene = scene(title, opened.facts.clone(), &opened.graph, &words, lookup.as_ref());
        let text = match args.format()? {
            Format::Svg => svg::write(&scene),
            Format::Dot => dot::write(&scene),
        };
        let to = args.output.as_deref().unwrap_or(Path::new("-"));
        let mut sink = Sink::create(to).with_context(|| to.display().to_string())?;
        let written = sink.write_all(text.as_bytes()).and_then(|()| sink.finish());
        written.with_context(|| to.display().to_string())?;
        if args.output.is_some() && !super::is_stdin(to) {
            tell(&opened, rows.len(), to, output)
        } else {
            Ok(())
        }
    }
}

/// An address without the length of its prefix.
fn address(host: &str) -> String {
    host.split('/').next().unwrap_or(host).to_owned()
}

/// A summary of the drawing.
fn tell<A: Address>(
    opened: &BuiltStructure<A>,
    prefixes: usize,
    to: &Path,
    output: &Output,
) -> anyhow::Result<()> {
    let BuiltStructure { name, nodes, bytes, .. } = opened;
    if output.json {
        return output.document(&json!({
            "file": to.to_string_lossy(), "structure": name, "prefixes": prefixes, "nodes": nodes, "bytes": bytes,
            "visits": opened.path.len(),
        }));
    }
    output.text(&format!("{}: {name}; {}", to.display(), opened.facts.join("; ")))
}

/// The address to look up: itself, or its first bits, the others being 0.
fn key<A: Address>(text: &str) -> anyhow::Result<A> {
    let is_bits = text.bytes().all(|digit| matches!(digit, b'0' | b'1')) && text.len() <= usize::from(SHORT);
    let bits = usize::from_str_radix(text, 2).ok().filter(|_| is_bits);
    let addr = A::parse(text).or(bits.map(|bits| A::from_index(bits, text.len() as u16)));
    addr.ok_or_else(|| {
        let expected =
            "expected an address, such as 192.0.2.1 or 2001:db8::1, or up to eight bits, such as 0011";
        usage(format!("--lookup {text}: {expected}")).into()
    })
}
