//! `trieline table`: prefix tables in files, whatever their format; no daemon and no root needed.

mod compare;
mod draw;
mod get;
mod input;
mod inspect;
mod map;
mod prefix;
mod print;

use crate::addresses::expect_family;
use crate::client::count;
use anyhow::{anyhow, bail};
use clap::{Args, Subcommand};
use draw::DrawArgs;
use get::GetArgs;
use input::{KeyArgs, ReadArgs, Rows, Table, format_parser, is_stdin, typed};
use prefix::AnyPrefix;
use print::{Row, WriteArgs};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;
use trieline_lpm::io::Format;
use trieline_lpm::io::KeyPrefix;
use trieline_lpm::{ops, with_key};
use trieline_terminal::Bars;
use trieline_terminal::Progress;
use trieline_terminal::{Output, usage};

const FILES: &str = "\
trieline detects the format of a FILE by its content. It is `PREFIX [VALUE]` lines, JSON (also of `ip -j route`), `ip route`, \
an MRT dump, or an image of `table build`. It may be packed by gzip or bzip2 (xz and zstd: unpack it first). \
`-` is standard input. FORMAT: text, json, iproute, mrt, image.

map:PATH and map:id:N are BPF maps of type LPM_TRIE, pinned or by number (root). Write keys that are not IP addresses in hex, \
two digits a byte: c00002010050/48.";

/// The result for an LPM trie's entries.
const IMPORT_HELP: &str = "\
trieline reads keys of any width up to 2048 bits: the prefix length, then 1 to 256 bytes in network order. Keys of 32 and 128 bits are IPv4 and \
IPv6 addresses, unless the map's BTF names several parts; -4 and -6 read addresses, --key BITS reads other keys. Write keys that are not \
IP addresses in hex, two digits a byte: c00002010050/48. trieline prints the kind of the keys on standard error.

Values become numbers from 1 to 2147483647. trieline keeps values of 4 bytes, and integers of any size by the map's BTF, if all of them are in \
that range. Otherwise, and for structs, it numbers them; their names are their members by BTF ({port=80,flags=1}), or their bytes.

Every `table` command takes map:PATH or map:id:N in place of a FILE: `table diff map:/sys/fs/bpf/acl acl.img`.";

/// The numbers for values that are words.
const BUILD_HELP: &str = "\
If files have the same prefix, the last file's value counts. Values are numbers from 1 to 2147483647. trieline numbers words (country codes, \
next hops, origins), and the image keeps their names. Prefixes without a value get 1.

trieline detects the format of a FILE by its content. It is `PREFIX [VALUE]` lines, JSON (also of `ip -j route`), `ip route`, \
an MRT dump, or an image of `table build`. It may be packed by gzip or bzip2 (xz and zstd: unpack it first). \
`-` is standard input. FORMAT: text, json, iproute, mrt, image.";

/// Tables in files.
#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Make an image of prefix lists
    ///
    /// Programs map the file and look up in it at once.
    #[command(after_help = BUILD_HELP)]
    Build(BuildArgs),
    /// Read BPF maps of type LPM_TRIE into a file
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Look up addresses; exit code 1 if one has no match
    #[command(after_help = FILES)]
    Get(GetArgs),
    /// Print a table in order, or write it in another format
    #[command(after_help = FILES)]
    Show(ShowArgs),
    /// Count prefixes by length, values, and the image's bytes
    #[command(after_help = FILES)]
    Stat(FileArgs),
    /// Check that an image is sound and answers as its prefixes do
    Verify(VerifyArgs),
    /// Compare two tables; exit code 1 if they differ
    ///
    /// + marks new prefixes, - gone ones, ~ other values.
    #[command(after_help = FILES)]
    Diff(DiffArgs),
    /// Find the fewest prefixes with the same answers
    #[command(after_help = FILES)]
    Aggregate(AggregateArgs),
    /// List the prefixes that cover a prefix or an address
    ///
    /// Shortest first; exit code 1 if there are none.
    #[command(after_help = FILES)]
    Covering(RelatedArgs),
    /// List the prefixes that a prefix covers
    ///
    /// In order; exit code 1 if there are none.
    #[command(after_help = FILES)]
    Covered(RelatedArgs),
    /// Draw a small table as an image keeps it
    Draw(DrawArgs),
}

/// Options of `table build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// Read these prefix lists
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write this image
    #[arg(short, long, value_name = "IMAGE")]
    output: PathBuf,
    /// Also build an image without any prefix
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// Options of `table import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Read this map: its pin, or id:N; repeatable
    ///
    /// Several maps are merged, for example one of IPv4 and one of IPv6.
    #[arg(long = "map", required = true, value_name = "PATH|id:N")]
    maps: Vec<String>,
    /// Write this image
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write text, json, iproute, mrt or image
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(), default_value = "image", hide_possible_values = true)]
    format: Format,
    /// Also import maps without any prefix
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    key: KeyArgs,
}

/// Options of `table show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Read this table
    file: PathBuf,
    /// Show only this prefix and the prefixes below it
    prefix: Option<AnyPrefix>,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// A file.
#[derive(Debug, Args)]
pub struct FileArgs {
    /// Read this table
    file: PathBuf,
    #[command(flatten)]
    read: ReadArgs,
}

/// An image.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Check this image
    file: PathBuf,
}

/// Options of `table diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Compare this old table
    old: PathBuf,
    /// Compare this new table
    new: PathBuf,
    /// Compare answers to addresses instead of prefixes
    #[arg(long)]
    forwarding: bool,
    #[command(flatten)]
    read: ReadArgs,
}

/// Options of `table aggregate`.
#[derive(Debug, Args)]
pub struct AggregateArgs {
    /// Read this table
    file: PathBuf,
    #[command(flatten)]
    write: WriteArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// Prefixes around one.
#[derive(Debug, Args)]
pub struct RelatedArgs {
    /// Read this table
    file: PathBuf,
    /// Start from this prefix or address
    prefix: AnyPrefix,
    #[command(flatten)]
    read: ReadArgs,
}

/// Runs a `table` command. `family` is 4 or 6 with -4 or -6.
pub fn run(command: &TableCommand, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    match command {
        TableCommand::Build(args) => build(args, family, output),
        TableCommand::Import(args) => import(args, family, output),
        TableCommand::Get(args) => get::get(args, family, output),
        TableCommand::Show(args) => show(args, family, output),
        TableCommand::Stat(args) => inspect::stat(&args.file, &args.read, family, output),
        TableCommand::Verify(args) => inspect::verify(&args.file, output),
        TableCommand::Diff(args) => {
            if is_stdin(&args.old) && is_stdin(&args.new) {
                return Err(usage("both tables from standard input; expected at most one".into()).into());
            }
            let old = Table::read_to_ask(&args.old, &args.read, family)?;
            let new = Table::read_to_ask(&args.new, &args.read, family)?;
            Ok(no_if(compare::diff(&old, new, args.forwarding, output)? > 0))
        }
        TableCommand::Aggregate(args) => aggregate(args, family, output),
        TableCommand::Covering(args) => related(args, family, output, true),
        TableCommand::Covered(args) => related(args, family, output, false),
        TableCommand::Draw(args) => draw::run(args, family, output),
    }
}

/// "The answer is no."
fn no_if(no: bool) -> ExitCode {
    if no { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Reads files one over the other; fails without a prefix, unless `allow_empty` is set.
fn read_all(
    files: &[PathBuf],
    args: &ReadArgs,
    family: Option<u8>,
    allow_empty: bool,
    bars: &Bars,
) -> anyhow::Result<Table> {
    let mut table: Option<Table> = None;
    for file in files {
        bars.phase(&format!("reading {}", file.display()), 0);
        let read = Table::read(file, args, family)?;
        match &mut table {
            None => table = Some(read),
            Some(table) => table.lay(read).map_err(|error| anyhow!("{}: {error}", file.display()))?,
        }
    }
    let Some(table) = table else { bail!("no files") };
    if table.len() == 0 && !allow_empty {
        let what = family.map_or_else(|| "no prefix".to_owned(), |family| format!("no IPv{family} prefix"));
        bail!("{what} in what was read; expected at least one (--allow-empty builds an empty image)");
    }
    Ok(table)
}

fn import(args: &ImportArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let files: Vec<PathBuf> = args.maps.iter().map(|name| map::path(name)).collect();
    let read = ReadArgs::of(args.key);
    if args.format == Format::Snapshot {
        let allow_empty = args.allow_empty;
        return build(&BuildArgs { files, output: args.output.clone(), allow_empty, read }, family, output);
    }
    let bars = Bars::new();
    let table = read_all(&files, &read, family, args.allow_empty, &bars)?;
    bars.finish();
    print::table(&table, &WriteArgs::file(args.format, &args.output), output)?;
    Ok(ExitCode::SUCCESS)
}

fn build(args: &BuildArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    if args.files.iter().filter(|file| is_stdin(file)).count() > 1 {
        return Err(usage("standard input twice; expected it once".into()).into());
    }
    let bars = Bars::new();
    let begin = Instant::now();
    let table = read_all(&args.files, &args.read, family, args.allow_empty, &bars)?;
    let read = begin.elapsed();
    bars.phase("building the image", 0);
    let begin = Instant::now();
    let saved = print::image(&table, &table.names, &args.output)?;
    let built = begin.elapsed();
    bars.finish();
    let ms = |time: std::time::Duration| time.as_millis() as u64;
    if is_stdin(&args.output) {
        // The output is the image itself.
    } else if output.json {
        output.document(&json!({
            "file": args.output.to_string_lossy(), "ipv4": table.v4.len(), "ipv6": table.v6.len(),
            "keys": inspect::keys(&table), "skipped": table.skipped, "image_bytes": saved.image_bytes, "file_bytes": saved.file_bytes,
            "read_ms": ms(read), "build_ms": ms(built), "names": table.names,
        }))?;
    } else {
        let names = if table.names.is_empty() {
            String::new()
        } else {
            let values = count(table.names.len() as u64, "value has a name", "values have names");
            format!("; {values} (`table stat`)")
        };
        let skipped = match table.skipped {
            0 => String::new(),
            skipped => format!("; {} skipped", count(skipped, "entry", "entries")),
        };
        output.text(&format!(
            "{}: {} prefixes{names}{skipped}; image {}, file {}; read in {} ms, built and saved in {} ms",
            args.output.display(),
            inspect::counts(&table),
            inspect::mebibytes(saved.image_bytes),
            inspect::mebibytes(saved.file_bytes),
            ms(read),
            ms(built)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// An error unless a prefix is of the family asked for.
fn check_family(family: Option<u8>, prefix: &AnyPrefix) -> anyhow::Result<()> {
    Ok(expect_family(family, prefix.family(), prefix).map_err(usage)?)
}

fn show(args: &ShowArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    if let Some(prefix) = &args.prefix {
        check_family(family, prefix)?;
    }
    let mut table = Table::read(&args.file, &args.read, family)?;
    if let Some(prefix) = &args.prefix {
        table.expect_keys(prefix, &args.file)?;
        table.narrow(prefix);
    }
    print::table(&table, &args.write, output)?;
    Ok(ExitCode::SUCCESS)
}

fn aggregate(args: &AggregateArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let mut table = Table::read(&args.file, &args.read, family)?;
    let before = (table.v4.len(), table.v6.len());
    let mut of_keys = String::new();
    table.v4 = ops::aggregate(std::mem::take(&mut table.v4));
    table.v6 = ops::aggregate(std::mem::take(&mut table.v6));
    for (bits, rows) in &mut table.keys {
        let fewest = with_key!(*bits, K => {
            let rows: Rows<K> = typed(rows);
            let fewest = ops::aggregate(rows).into_iter();
            fewest.map(|(prefix, value)| (KeyPrefix::of(&prefix, *bits), value)).collect()
        });
        let before = std::mem::replace(rows, fewest.unwrap_or_default()).len();
        of_keys += &format!(", {bits} bits {before} -> {}", rows.len());
    }
    print::table(&table, &args.write, output)?;
    let (v4, v6) = (table.v4.len(), table.v6.len());
    eprintln!("IPv4 {} -> {v4}, IPv6 {} -> {v6}{of_keys} prefixes", before.0, before.1);
    Ok(ExitCode::SUCCESS)
}

fn related(args: &RelatedArgs, family: Option<u8>, output: &Output, above: bool) -> anyhow::Result<ExitCode> {
    check_family(family, &args.prefix)?;
    let mut table = Table::read_to_ask(&args.file, &args.read, family)?;
    table.expect_keys(&args.prefix, &args.file)?;
    if above {
        table.widen(&args.prefix);
    } else {
        table.narrow(&args.prefix);
    }
    let rows = table.rows().map(|(prefix, value)| Row::new(&prefix, value, &table.names));
    Ok(no_if(print::list(rows, output)? == 0))
}
