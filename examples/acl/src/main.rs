//! Drops packets from listed sources on a device; SIGHUP reads the list again. usage: acl DEVICE LIST [arena|array]

use std::{env, error::Error, fs, path::Path};

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use trieline_bpf::{ImageMapType, Options, Tables};
use trieline_lpm::{Table, io};

const ARENA: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/acl.arena.bpf.o"));
const ARRAY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/acl.array.bpf.o"));

fn read_list(tables: &mut Tables, list: &str) -> Result<(), Box<dyn Error>> {
    let prefixes = io::read(Path::new(list), &io::ReadOptions::default())?.prefixes;
    println!("{list}: {} IPv4 and {} IPv6 prefixes", prefixes.v4.len(), prefixes.v6.len());
    let (v4, v6) = (prefixes.v4.into_iter(), prefixes.v6.into_iter());
    Table::create(tables.image(), 0, v4.map(|(prefix, value)| (prefix, value.unwrap_or(1))))?;
    Table::create(tables.image(), 1, v6.map(|(prefix, value)| (prefix, value.unwrap_or(1))))
        .map_err(|error| format!("the list of IPv4 is new, that of IPv6 is not: {error}"))?;
    Ok(())
}

fn dropped(object: &Object, table: u32) -> Result<u64, Box<dyn Error>> {
    let drops = object.maps().find(|map| map.name() == "drops").ok_or("no map `drops`")?;
    let counts = drops.lookup_percpu(&table.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    Ok(counts.iter().filter_map(|count| Some(u64::from_ne_bytes(*count.first_chunk()?))).sum())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().collect();
    let [_, device, list, map_type @ ..] = &args[..] else {
        return Err("usage: acl DEVICE LIST [arena|array]".into());
    };
    let map_type = map_type.first().map(|map_type| map_type.parse()).transpose()?;

    let mut tables = Tables::create(&Options { map_type, ..Options::default() })?;
    read_list(&mut tables, list)?;
    let program = if tables.map_type() == ImageMapType::Arena { ARENA } else { ARRAY };
    let object = tables.load(ObjectBuilder::default().open_memory(program)?)?;
    let index = fs::read_to_string(format!("/sys/class/net/{device}/ifindex"))?.trim().parse()?;
    let _link =
        object.progs_mut().find(|program| program.name() == "acl").ok_or("no program")?.attach_xdp(index)?;
    println!("attached");

    for signal in Signals::new([SIGHUP, SIGINT, SIGTERM])?.forever() {
        if signal != SIGHUP {
            break;
        }
        if let Err(error) = read_list(&mut tables, list) {
            eprintln!("acl: {error}; what is not said to be new stays as it was");
        }
    }
    println!("dropped {} IPv4 and {} IPv6 packets", dropped(&object, 0)?, dropped(&object, 1)?);
    Ok(())
}
