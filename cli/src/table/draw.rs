//! `table draw`: how an image keeps a table, as a picture, with the way of a lookup in it.

use super::input::{ReadArgs, Table};
use super::inspect;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use trieline_draw::command::{self, BuiltStructure, Drawn, PictureArgs, many};
use trieline_lpm::image::graph::TableGraph;
use trieline_lpm::io::snapshot::Snapshot;
use trieline_lpm::{Address, Error, HeapMemory, Image, Memory, NoReaders, Prefix, Table as LpmTable};
use trieline_terminal::Output;

/// Most bytes of an image.
const IMAGE_MAX: usize = 1 << 32;

/// Help behind the options.
pub const HELP: &str = "\
trieline draws the table as an image keeps it; of an image file, the one in it. `trieline lab draw` draws the classic tries.\n\n";

/// Options of `table draw`.
#[derive(Debug, Args)]
#[command(after_help = HELP.to_owned() + command::HELP)]
pub struct DrawArgs {
    /// Read this table
    file: PathBuf,
    #[command(flatten)]
    picture: PictureArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// Runs the command.
pub fn run(args: &DrawArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let image = inspect::image(&args.file)?;
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
    let (has4, has6) = (has(4, v4.len()), has(6, v6.len()));
    if let (false, false, Some([bits, ..])) = (has4, has6, table.as_ref().map(Table::widths).as_deref()) {
        bail!("{}: keys of {bits} bits; pictures are made of IPv4 and IPv6 prefixes", args.file.display());
    }
    let value = |value: u32| match &table {
        Some(table) if !table.has_values => None,
        Some(table) => Some(table.names.get(&value).cloned().unwrap_or(value.to_string())),
        None => Some(value.to_string()),
    };
    match args.picture.family(&args.file, family, has4, has6)? {
        4 => draw(args, v4, image.as_ref(), &value, output)?,
        _ => draw(args, v6, image.as_ref(), &value, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw<A: Address>(
    args: &DrawArgs,
    rows: &[(Prefix<A>, u32)],
    image: Option<&Snapshot>,
    value: &dyn Fn(u32) -> Option<String>,
    output: &Output,
) -> anyhow::Result<()> {
    let open = |addr: Option<A>| match image {
        Some(image) => {
            let id = image.directory().find(|root| root.family == A::FAMILY).map_or(0, |root| root.id);
            structure_of(&args.picture, &TableGraph::new(image.words(), id)?, addr, |addr| {
                image.reader().lookup(id, addr)
            })
        }
        None => {
            let image = build(rows)?;
            structure_of(&args.picture, &TableGraph::new(image.memory().words(), 0)?, addr, |addr| {
                image.reader().lookup(0, addr)
            })
        }
    };
    args.picture.draw(&Drawn { file: &args.file, rows, value }, open, output)
}

/// A table of an image laid open, and the way of a lookup in it.
fn structure_of<A: Address>(
    picture: &PictureArgs,
    table: &TableGraph,
    addr: Option<A>,
    lookup: impl Fn(A) -> Option<u32>,
) -> anyhow::Result<BuiltStructure<A>> {
    let name = "trieline's image".to_owned();
    picture.check(&name, table.ways(), "runs of slots")?;
    let report = table.report();
    let nodes = report.nodes.iter().map(|(_, count)| *count as usize).sum::<usize>();
    let kinds: Vec<String> = report.nodes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let facts = vec![
        format!(
            "{}; root of {} slots, {} bytes; {}{}, {} bytes",
            many(report.prefixes as usize, "prefix", "prefixes"),
            1u64 << report.root_bits,
            report.root_bytes,
            many(nodes, "node", "nodes"),
            if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) },
            report.node_bytes
        ),
        match report.steps {
            0 => "a lookup reads the root alone".to_owned(),
            steps => {
                format!("a lookup reads the root and at most {}", many(steps as usize, "node", "nodes"))
            }
        },
    ];
    let path = addr.map(|addr| table.path(addr)).unwrap_or_default();
    let graph = table.graph();
    // The root knows the prefix of length 0, which answers where nothing is found.
    let found = path.last().and_then(|step| graph.nodes[step.node].children[step.edge?].value);
    let default = Prefix::truncated(A::ZERO, 0);
    let answer = addr.and_then(lookup).map(|value| (found.is_none().then_some(default), value));
    let bytes = report.root_bytes + report.node_bytes;
    Ok(BuiltStructure { name, nodes: nodes + 1, bytes, facts, graph, path, answer })
}

/// An image of one table.
fn build<A: Address>(rows: &[(Prefix<A>, u32)]) -> Result<Image<HeapMemory, NoReaders>, Error> {
    let mut bytes = 1 << 20;
    loop {
        let mut image = Image::create(HeapMemory::new(bytes), NoReaders::default(), 1)?;
        match LpmTable::create(&mut image, 0, rows.iter().copied()) {
            Err(Error::Full { .. }) if bytes < IMAGE_MAX => bytes *= 2,
            made => return made.map(|_| image),
        }
    }
}
