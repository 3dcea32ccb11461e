//! `table get`: longest matches of addresses and keys, in an image by its lookup, in other files by their prefixes.

use super::input::{ReadArgs, Table, covering, covering_keys, expect_width, is_stdin, is_width};
use super::inspect;
use super::prefix::AnyAddress;
use super::print::Row;
use crate::addresses::{Addresses, Asked, Query, parse_query};
use anyhow::bail;
use clap::Args;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trieline_lpm::io::KeyPrefix;
use trieline_lpm::io::snapshot::{Root, Snapshot, Stored};
use trieline_lpm::{Prefix, with_key};
use trieline_terminal::usage;
use trieline_terminal::{List, Output};

/// Addresses that are answered before the answers are shown.
const BATCH: usize = 4096;

/// Options of `table get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Read this table
    file: PathBuf,
    /// Look up these addresses or keys; `-` reads them, one a line
    #[arg(required = true, value_name = "ADDRESS|-", value_parser = parse_query::<AnyAddress>)]
    addresses: Vec<Query<AnyAddress>>,
    #[command(flatten)]
    read: ReadArgs,
}

/// Looks an address up.
type Ask<'a> = Box<dyn Fn(&AnyAddress) -> anyhow::Result<Row> + 'a>;

/// `table get`.
pub fn get(args: &GetArgs, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    if is_stdin(&args.file) && args.addresses.contains(&Query::Stdin) {
        return Err(usage("table and addresses from standard input; expected one of them".into()).into());
    }
    let answer: Ask<'_> = match inspect::image(&args.file)? {
        Some(image) => {
            image.verify()?;
            Box::new(move |addr| in_image(&image, addr, args.read.key_bits()))
        }
        None => {
            let table = Table::read_to_ask(&args.file, &args.read, family)?;
            Box::new(move |addr| in_table(&table, addr, &args.file, args.read.key_bits()))
        }
    };
    let mut addresses = Addresses::new(&args.addresses, family);
    let mut list = List::new(output, output.stdout());
    let mut none = false;
    loop {
        let batch = addresses.batch(BATCH)?;
        if batch.is_empty() {
            break;
        }
        for addr in batch {
            let row = answer(&addr)?;
            none |= row.kind.is_some();
            list.push(&row, Row::text)?;
        }
        list.flush()?;
    }
    list.finish()?;
    // "The answer is no": some address has no match.
    Ok(if none { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The answer of an image: the value by its lookup, the prefix from what it was made of.
fn in_image(image: &Snapshot, addr: &AnyAddress, asked: Option<u16>) -> anyhow::Result<Row> {
    let bits = match addr {
        AnyAddress::Key(key) => {
            let keys = image.directory().filter(|root| root.family == 0);
            Some(width(key, keys.map(|root| root.key_bits), asked, image.path())?)
        }
        AnyAddress::Ip(_) => None,
    };
    let is_it = |root: &Root| root.family == addr.family() && bits.is_none_or(|bits| bits == root.key_bits);
    let Some(root) = image.directory().find(is_it) else {
        expect_addresses(image.directory().all(|root| root.family == 0), addr, image.path())?;
        return Ok(nothing(addr));
    };
    let (value, found) = match addr {
        AnyAddress::Ip(IpAddr::V4(addr)) => {
            answer::<u32>(image, &root, (*addr).into(), |prefix| prefix.to_string())?
        }
        AnyAddress::Ip(IpAddr::V6(addr)) => {
            answer::<u128>(image, &root, (*addr).into(), |prefix| prefix.to_string())?
        }
        AnyAddress::Key(key) => {
            let bits = root.key_bits;
            let found = with_key!(bits, K => {
                let show = |prefix: &Prefix<K>| KeyPrefix::of(prefix, bits).to_string();
                answer(image, &root, key.prefix().addr(), show)
            });
            found.transpose()?.unwrap_or_default()
        }
    };
    let Some(value) = value else { return Ok(nothing(addr)) };
    if !image.has_prefixes() {
        return Ok(Row { value: Some(value), kind: None, ..nothing(addr) });
    }
    match found {
        Some((prefix, expected)) if expected == value => {
            let name = image.contents()?.names().get(&value).cloned();
            Ok(Row { prefix: Some(prefix), value: Some(value), kind: None, name, ..nothing(addr) })
        }
        _ => bail!(
            "{}: the image answers {addr} by {value}, its prefixes do not: run `trieline table verify`",
            image.path().display()
        ),
    }
}

/// The image's answer for an address, and the prefix that decides, if the image has its prefixes.
type Answer = (Option<u32>, Option<(String, u32)>);

fn answer<A: Stored>(
    image: &Snapshot,
    root: &Root,
    addr: A,
    show: impl Fn(&Prefix<A>) -> String,
) -> anyhow::Result<Answer> {
    let value = image.reader().lookup_narrow(root.id, root.key_bits, addr);
    if !image.has_prefixes() {
        return Ok((value, None));
    }
    let found = image.contents()?.entries_narrow::<A>(root.id, root.key_bits)?.longest(addr);
    Ok((value, found.map(|(prefix, value)| (show(&prefix), value))))
}

fn in_table(table: &Table, addr: &AnyAddress, path: &Path, asked: Option<u16>) -> anyhow::Result<Row> {
    let is_keys = table.v4.is_empty() && table.v6.is_empty() && !table.keys.is_empty();
    expect_addresses(is_keys, addr, path)?;
    let found = match addr {
        AnyAddress::Ip(IpAddr::V4(addr)) => {
            let found = covering(&table.v4, Prefix::host((*addr).into()));
            found.last().map(|row| (row.0.to_string(), row.1))
        }
        AnyAddress::Ip(IpAddr::V6(addr)) => {
            let found = covering(&table.v6, Prefix::host((*addr).into()));
            found.last().map(|row| (row.0.to_string(), row.1))
        }
        AnyAddress::Key(key) => {
            let bits = width(key, table.widths().into_iter(), asked, path)?;
            let found = table.keys.get(&bits).map(|rows| covering_keys(rows, key)).unwrap_or_default();
            found.last().map(|row| (row.0.to_string(), row.1))
        }
    };
    Ok(match found {
        None => nothing(addr),
        Some((prefix, value)) => Row {
            prefix: Some(prefix),
            kind: None,
            value: table.has_values.then_some(value),
            name: table.names.get(&value).cloned(),
            ..nothing(addr)
        },
    })
}

/// Which of the widths that a table has is meant by `key`, of whose digits several may have as many.
fn width(
    key: &KeyPrefix,
    has: impl Iterator<Item = u16>,
    asked: Option<u16>,
    path: &Path,
) -> anyhow::Result<u16> {
    let has: Vec<u16> = has.filter(|bits| asked.is_none_or(|asked| asked == *bits)).collect();
    expect_width(key, &has, path)?;
    let alike: Vec<u16> = has.into_iter().filter(|bits| is_width(key, *bits)).collect();
    match alike[..] {
        [bits] => Ok(bits),
        _ => bail!("{}: {key} may be a key of {alike:?} bits; expected --key BITS as well", path.display()),
    }
}

/// An error if a table of other keys only is searched for an address.
fn expect_addresses(is_keys: bool, addr: &AnyAddress, path: &Path) -> anyhow::Result<()> {
    match addr {
        AnyAddress::Ip(addr) if is_keys => {
            bail!(
                "{}: {addr} is an address, the table has none; expected keys in hexadecimal digits",
                path.display()
            )
        }
        _ => Ok(()),
    }
}

fn nothing(addr: &AnyAddress) -> Row {
    Row { dst: addr.to_string(), prefix: None, kind: Some("none"), value: None, name: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_of_several_widths() {
        let key: KeyPrefix = "0a01".parse().unwrap();
        let of = |has: &[u16], asked| {
            width(&key, has.iter().copied(), asked, Path::new("f")).map_err(|error| error.to_string())
        };
        assert_eq!(of(&[13, 48], None), Ok(13));
        assert_eq!(of(&[13, 16], Some(16)), Ok(16));
        assert_eq!(
            of(&[13, 16], None),
            Err("f: 0a01/16 may be a key of [13, 16] bits; expected --key BITS as well".into())
        );
        assert!(of(&[48], None).unwrap_err().ends_with("expected keys of 48 bits"));
    }
}
