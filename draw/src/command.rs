//! The part that `trieline table draw` and `trieline lab draw` share: options, the choice of the family, and the picture written.

use crate::scene::{Lookup, Words, scene};
use crate::{dot, svg};
use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::Write as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use trieline_lpm::graph::{Graph, PathStep};
use trieline_lpm::io::Sink;
use trieline_lpm::{Address, Prefix};
use trieline_terminal::{Output, usage};

/// Prefixes of at most so many bits are taken for whole keys.
pub const SHORT: u16 = 8;

/// Help on options that both commands have.
pub const HELP: &str = "\
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

/// Options of a picture.
#[derive(Debug, Args)]
pub struct PictureArgs {
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
}

/// A table to draw.
pub struct Drawn<'a, A> {
    /// Its file.
    pub file: &'a Path,
    /// Its prefixes, in order; empty if the structure alone is known.
    pub rows: &'a [(Prefix<A>, u32)],
    /// The name of a value; None for tables without values.
    pub value: &'a dyn Fn(u32) -> Option<String>,
}

/// A structure with the prefixes in it, laid open.
#[derive(Debug)]
pub struct BuiltStructure<A: Address> {
    /// Its name.
    pub name: String,
    /// Its nodes and leaves.
    pub nodes: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Its statistics, a line each.
    pub facts: Vec<String>,
    /// Its nodes.
    pub graph: Graph,
    /// The steps that the lookup visits.
    pub path: Vec<PathStep>,
    /// Its answer: a value, in most structures with its prefix.
    pub answer: Option<(Option<Prefix<A>>, u32)>,
}

impl PictureArgs {
    /// The family to draw: that of -4 or -6 (`asked`) or of the address looked up, or the only one that the file has.
    pub fn family(&self, file: &Path, asked: Option<u8>, has4: bool, has6: bool) -> anyhow::Result<u8> {
        let (file, text) = (file.display(), self.lookup.as_deref().unwrap_or_default());
        let looked_up = text.parse::<IpAddr>().ok().map(|addr| if addr.is_ipv4() { 4 } else { 6 });
        if let (Some(is), Some(asked)) = (looked_up, asked)
            && is != asked
        {
            return Err(usage(format!("--lookup {text} is IPv{is}; -{asked} expects IPv{asked}")).into());
        }
        let family = match (looked_up.or(asked), has4, has6) {
            (_, false, false) => bail!("{file}: no prefix to draw; expected at least one"),
            (Some(family), ..) => family,
            (None, true, true) => {
                return Err(usage(format!("{file} has IPv4 and IPv6 prefixes; expected -4 or -6")).into());
            }
            (None, true, false) => 4,
            (None, false, true) => 6,
        };
        if (family == 4 && !has4) || (family == 6 && !has6) {
            let has = if has4 { 4 } else { 6 };
            let message =
                format!("--lookup {text} is IPv{family}, {file} has no such prefix; expected IPv{has}");
            return Err(usage(message).into());
        }
        Ok(family)
    }

    /// An error if a structure has more to draw than asked for; `what` are its parts.
    pub fn check(&self, name: &str, count: usize, what: &str) -> anyhow::Result<()> {
        if count > self.most {
            bail!(
                "{name}: {count} {what}; a picture takes at most {} (--most {count} draws them)",
                self.most
            );
        }
        Ok(())
    }

    /// Draws what `open` makes of the address to look up, and writes it.
    pub fn draw<A: Address>(
        &self,
        table: &Drawn<'_, A>,
        open: impl FnOnce(Option<A>) -> anyhow::Result<BuiltStructure<A>>,
        output: &Output,
    ) -> anyhow::Result<()> {
        let addr = self.lookup.as_deref().map(|text| key::<A>(text)).transpose()?;
        let opened = open(addr).with_context(|| table.file.display().to_string())?;
        let longest = table.rows.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(A::WIDTH);
        let bits = match self.labels {
            Some(Labels::Addresses) => None,
            Some(Labels::Bits) => Some(longest),
            None => Some(longest).filter(|longest| *longest <= SHORT),
        };
        let words = Words { bits, value: table.value };
        let lookup = addr.map(|addr| Lookup {
            addr: address(&Prefix::host(addr).to_string()),
            path: opened.path.clone(),
            answer: opened.answer.map(|(prefix, value)| (prefix.map(|prefix| prefix.to_string()), value)),
        });
        let name = table.file.file_name().map_or("-".into(), |name| name.to_string_lossy());
        let title = format!("{name}: {}", opened.name);
        let scene = scene(title, opened.facts.clone(), &opened.graph, &words, lookup.as_ref());
        let text = match self.format()? {
            Format::Svg => svg::write(&scene),
            Format::Dot => dot::write(&scene),
        };
        let to = self.output.as_deref().unwrap_or(Path::new("-"));
        let mut sink = Sink::create(to).with_context(|| to.display().to_string())?;
        let written = sink.write_all(text.as_bytes()).and_then(|()| sink.finish());
        written.with_context(|| to.display().to_string())?;
        // Without a file, or with `-`, the output is the picture itself.
        if to.as_os_str() == "-" { Ok(()) } else { summary(&opened, table.rows.len(), to, output) }
    }

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

/// A summary of the drawing.
fn summary<A: Address>(
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

/// An address without the length of its prefix.
fn address(host: &str) -> String {
    host.split('/').next().unwrap_or(host).to_owned()
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

/// A number of things.
pub fn many(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
