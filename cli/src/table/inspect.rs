//! Statistics of a table, and checks that an image is sound and answers as its prefixes do.

use super::input::{ReadArgs, Table, is_stdin};
use super::map;
use anyhow::bail;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use trieline_lpm::image::verify::TableReport;
use trieline_lpm::io::snapshot::{Snapshot, SnapshotError, Stored, TableInfo};
use trieline_lpm::io::{Format, detect};
use trieline_lpm::{Prefix, ops, with_key};
use trieline_terminal::Output;

/// Values that people see; JSON has all.
const SHOWN: usize = 10;

/// Maps a file if it is an image; `None` if it is something else.
pub fn image(path: &Path) -> anyhow::Result<Option<Snapshot>> {
    if is_stdin(path) || map::named(path).is_some() {
        return Ok(None);
    }
    // Packed images and other formats are read as a list.
    let mut head = Vec::new();
    let file = std::fs::File::open(path).map_err(|source| {
        let is_pin = source.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        let error = anyhow::Error::from(SnapshotError::Io { path: path.into(), source });
        // The kernel's error for pins in a BPF file system.
        if is_pin {
            error.context(format!("cannot read {0}: name a pinned map as map:{0}", path.display()))
        } else {
            error
        }
    })?;
    if !file.metadata().is_ok_and(|at| at.is_file()) {
        return Ok(None);
    }
    file.take(64).read_to_end(&mut head).map_err(|source| SnapshotError::Io { path: path.into(), source })?;
    Ok(if detect(&head) == Format::Snapshot { Some(Snapshot::open_unverified(path)?) } else { None })
}

/// `table stat`.
pub fn stat(path: &Path, args: &ReadArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let image = image(path)?;
    let report = image.as_ref().map(Snapshot::verify).transpose()?;
    let table = match &image {
        Some(image) if !image.has_prefixes() => None,
        _ => Some(Table::read(path, args, family)?),
    };
    let mut document = Map::new();
    let mut text = String::new();
    if let Some(table) = &table {
        document.insert("ipv4".into(), table.v4.len().into());
        document.insert("ipv6".into(), table.v6.len().into());
        document.insert("keys".into(), keys(table));
        let _ = writeln!(text, "prefixes  {}", counts(table));
        if let Some(key) = map::named(path).map(map::key).transpose()?.flatten() {
            let _ = writeln!(text, "key       {key}");
            document.insert("key".into(), key.into());
        }
        if table.skipped > 0 {
            document.insert("skipped".into(), table.skipped.into());
            let _ = writeln!(text, "skipped   {} entries that are not unicast prefixes", table.skipped);
        }
        let of_keys = table.keys.iter().map(|(bits, rows)| {
            let lengths = lengths(rows.iter().map(|row| row.0.len()));
            (format!("{bits} bits"), format!("lengths_{bits}"), lengths)
        });
        let families = [
            ("IPv4".into(), "lengths4".into(), lengths(table.v4.iter().map(|row| row.0.len()))),
            ("IPv6".into(), "lengths6".into(), lengths(table.v6.iter().map(|row| row.0.len()))),
        ];
        for (name, key, lengths) in families.into_iter().chain(of_keys) {
            if !lengths.is_empty() {
                let words: Vec<String> =
                    lengths.iter().map(|(len, count)| format!("/{len} {count}")).collect();
                let _ = writeln!(text, "{name:<9} {}", words.join("  "));
            }
            let lengths = lengths.iter().map(|(len, count)| (len.to_string(), Value::from(*count)));
            document.insert(key, lengths.collect::<Map<_, _>>().into());
        }
        if table.has_values {
            let mut values: BTreeMap<u32, u64> = BTreeMap::new();
            table.values().for_each(|value| *values.entry(value).or_default() += 1);
            let mut values: Vec<_> = values.into_iter().collect();
            values.sort_by_key(|(value, count)| (u64::MAX - count, *value));
            let _ = writeln!(text, "values    {}", values.len());
            for (value, count) in values.iter().take(SHOWN) {
                let name = table.names.get(value).map(|name| format!("  {name}")).unwrap_or_default();
                let _ = writeln!(
                    text,
                    "          {value}: {}{name}",
                    crate::client::count(*count, "prefix", "prefixes")
                );
            }
            if values.len() > SHOWN {
                let _ = writeln!(text, "          … {} more (-j shows all)", values.len() - SHOWN);
            }
            let rows = values.iter().map(|(value, count)| {
                let mut row = json!({ "value": value, "prefixes": count });
                if let Some(name) = table.names.get(value) {
                    row["name"] = name.as_str().into();
                }
                row
            });
            document.insert("values".into(), rows.collect());
        }
    }
    if let (Some(image), Some(report)) = (&image, report) {
        let tables: Vec<Value> = report.tables.iter().map(|table| describe(table, &mut text)).collect();
        let (image, file) = (image.image_bytes(), image.file_bytes());
        let _ = writeln!(text, "image     {}, file {}", mebibytes(image), mebibytes(file));
        document.insert("image_bytes".into(), image.into());
        document.insert("file_bytes".into(), file.into());
        document.insert("tables".into(), tables.into());
    }
    if output.json {
        output.document(&document)?
    } else {
        output.text(&text)?
    }
    Ok(ExitCode::SUCCESS)
}

/// The parts of a table in an image: for JSON, and as a line of `text`.
fn describe(table: &TableReport, text: &mut String) -> Value {
    let kinds: Vec<String> = table.nodes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { "none".into() } else { kinds.join(", ") };
    let _ = writeln!(
        text,
        "table {}   {} prefixes, keys of {} bits; root of {} bits, {}; nodes {}: {kinds}; at most {} a lookup",
        table.id,
        table.prefixes,
        table.key_bits,
        table.root_bits,
        mebibytes(table.root_bytes),
        mebibytes(table.node_bytes),
        table.steps
    );
    let nodes = table.nodes.iter().map(|(kind, count)| ((*kind).to_owned(), Value::from(*count)));
    json!({
        "id": table.id, "family": table.family, "key_bits": table.key_bits, "prefixes": table.prefixes,
        "root_bits": table.root_bits, "root_bytes": table.root_bytes, "node_bytes": table.node_bytes,
        "nodes": nodes.collect::<Map<_, _>>(), "steps": table.steps,
    })
}

/// Bytes for people.
pub fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        format!("{} KiB", bytes.div_ceil(1024))
    } else {
        format!("{:.1} MiB", bytes as f64 / 1048576.0)
    }
}

fn lengths(each: impl Iterator<Item = u16>) -> BTreeMap<u16, u64> {
    let mut lengths = BTreeMap::new();
    each.for_each(|len| *lengths.entry(len).or_default() += 1);
    lengths
}

/// How many prefixes there are of each kind, in words.
pub fn counts(table: &Table) -> String {
    let mut words = format!("{} IPv4 and {} IPv6", table.v4.len(), table.v6.len());
    for (bits, rows) in &table.keys {
        let _ = write!(words, " and {} {bits}-bit", rows.len());
    }
    words
}

/// How many prefixes of other keys there are, by their width.
pub fn keys(table: &Table) -> Value {
    let counts = table.keys.iter().map(|(bits, rows)| (bits.to_string(), Value::from(rows.len())));
    counts.collect::<Map<_, _>>().into()
}

/// `table verify`.
pub fn verify(path: &Path, output: &Output) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let Some(image) = image(path)? else {
        bail!("{}: no image; expected a file that `trieline table build` made", path.display());
    };
    image.verify()?;
    let walked = begin.elapsed();
    let (mut prefixes, mut addresses) = (0, 0);
    if image.has_prefixes() {
        let contents = image.contents()?;
        for table in contents.tables() {
            prefixes += table.entries;
            addresses += match table.family {
                4 => answers::<u32>(&image, table)?,
                6 => answers::<u128>(&image, table)?,
                _ => with_key!(table.key_bits, K => answers::<K>(&image, table)).transpose()?.unwrap_or(0),
            };
        }
    }
    let ms = |time: std::time::Duration| (time.as_secs_f64() * 1e5).round() / 100.0;
    if output.json {
        output.document(&json!({
            "verified": true, "tables": image.directory().count(), "prefixes": prefixes, "addresses": addresses,
            "image_bytes": image.image_bytes(), "file_bytes": image.file_bytes(),
            "open_verify_ms": ms(walked), "ms": ms(begin.elapsed()),
        }))?;
    } else if image.has_prefixes() {
        output.text(&format!(
            "{}: sound; {prefixes} prefixes, {addresses} addresses answered as they say (opened and verified in {:.1} ms)",
            path.display(),
            ms(walked),
        ))?;
    } else {
        output.text(&format!(
            "{}: sound; an image alone: there are no prefixes to compare its answers with",
            path.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Looks up the first and the last address of every stretch with one answer, and compares.
fn answers<A: Stored>(image: &Snapshot, table: &TableInfo) -> anyhow::Result<u64> {
    let contents = image.contents()?;
    let (id, bits) = (table.id, table.key_bits);
    let reader = image.reader();
    let mut count = 0;
    for region in ops::regions(contents.entries_narrow::<A>(id, bits)?.iter()) {
        for addr in [region.first, region.last] {
            let found = reader.lookup_narrow(id, bits, addr);
            if found != region.value {
                let word = |value: Option<u32>| value.map_or("nothing".to_owned(), |value| value.to_string());
                bail!(
                    "{}: table {id}: {} is answered by {}, expected {} as its prefixes say",
                    image.path().display(),
                    Prefix::host(addr),
                    word(found),
                    word(region.value)
                );
            }
            count += 1;
        }
    }
    Ok(count)
}
