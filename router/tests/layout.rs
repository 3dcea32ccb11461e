//! The structs both sides share have the same layout in the BPF object's BTF, in the generated Rust types and in `trieline-lpm`.
#![allow(clippy::unwrap_used)]

use std::mem::{offset_of, size_of};

use libbpf_rs::HasSize;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Struct, Union};
use trieline_router::layout::*;
use trieline_router::{Kind, VERDICTS, Verdict};

fn object() -> std::path::PathBuf {
    std::path::PathBuf::from(env!("TRIELINE_NODE_OBJECT"))
}

/// Byte offset of every member of a struct, by the BTF. A union without a name has that of its first member.
fn members(btf: &Btf<'_>, name: &str) -> (usize, Vec<(String, usize)>) {
    let of: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("no {name} in the BTF"));
    let members = of
        .iter()
        .map(|m| {
            let libbpf_rs::btf::types::MemberAttr::Normal { offset } = m.attr else {
                panic!("bit field in {name}")
            };
            let name = match m.name.filter(|name| !name.is_empty()) {
                Some(name) => name.to_str().unwrap().to_owned(),
                None => {
                    let union: Union<'_> = btf.type_by_id(m.ty).unwrap();
                    let first = union.iter().next().unwrap();
                    first.name.unwrap().to_str().unwrap().to_owned()
                }
            };
            (name, offset as usize / 8)
        })
        .collect();
    (of.size(), members)
}

macro_rules! same {
    ($btf:expr, $name:ident { $($field:ident),* }) => {
        let (size, members) = members($btf, stringify!($name));
        assert_eq!(size, size_of::<$name>(), stringify!($name));
        let ours = vec![$((stringify!($field).to_owned(), offset_of!($name, $field))),*];
        assert_eq!(members, ours, stringify!($name));
    };
}

/// Types in pinned maps.
const SHARED: [&str; 13] = [
    "tl_action",
    "tl_adjacency",
    "tl_long_outer",
    "tl_csid_key",
    "tl_group",
    "tl_sid_count",
    "tl_port",
    "tl_rule",
    "tl_tagged",
    "tl_instance",
    "tl_counters",
    "tl_heartbeat",
    "tl_beat",
];

#[test]
fn structs_of_intf_h() {
    let btf = Btf::from_path(object()).unwrap();
    let action = [("kind", 0), ("verdict", 1), ("counter", 2), ("adjacency", 4)];
    assert_eq!(members(&btf, "tl_action"), (8, action.map(|(name, at)| (name.to_owned(), at)).to_vec()));
    same!(
        &btf,
        tl_adjacency {
            ifindex,
            mtu,
            outer_len,
            macs,
            tag,
            long_outer,
            flags,
            used,
            csid_block,
            csid_function,
            outer
        }
    );
    same!(&btf, tl_long_outer { bytes });
    same!(&btf, tl_csid_key { len, to });
    same!(&btf, tl_group { buckets });
    same!(&btf, tl_sid_count { packets, bytes, errors });
    same!(&btf, tl_port { flags, table4, table6, ifindex, mac, counters });
    same!(&btf, tl_rule { from, to, from_len, to_len, flags, table, next, except });
    same!(&btf, tl_tagged { ifindex, vid, reserved });
    same!(
        &btf,
        tl_instance { version, map_type, image_bytes, netns, tables, image_version, hash_key, frags }
    );
    same!(&btf, tl_counters { packets });
    same!(&btf, tl_heartbeat { deadline, beaten, limit });
    same!(&btf, tl_beat { ticks });
}

/// `image.h` has its Rust twin in `trieline-lpm`, which knows no BPF.
#[test]
fn structs_of_image_h() {
    use trieline_lpm::image::layout::{ImageHeader, NODE6, NODE8, NODE8_BEFORE, Skip, TableHeader};
    let btf = Btf::from_path(object()).unwrap();
    let compare = |name: &str, size: usize, ours: &[(&str, usize)]| {
        let (btf_size, members) = members(&btf, name);
        assert_eq!(btf_size, size, "{name}");
        let members: Vec<_> =
            members.iter().map(|(n, o)| (n.as_str(), *o)).filter(|(n, _)| *n != "reserved").collect();
        assert_eq!(members, ours, "{name}");
    };
    macro_rules! fields {
        ($name:ident { $($field:ident),* }) => { &[$((stringify!($field), offset_of!($name, $field))),*] };
    }
    let header = fields!(ImageHeader { magic, version, header_bytes, size, tables, generation });
    compare("tl_image", size_of::<ImageHeader>(), header);
    let table = fields!(TableHeader {
        fallback,
        key_family,
        root_bits,
        key_bits,
        prefixes,
        root_bytes,
        palette,
        exact,
        multiplier,
        mask,
        first
    });
    compare("tl_table", size_of::<TableHeader>(), table);
    compare("tl_skip", size_of::<Skip>(), fields!(Skip { otherwise, bits, len, next }));
    compare("tl_node6", NODE6.refs as usize, &[("starts", 0), ("ref", NODE6.refs as usize)]);
    let node8 = [("starts", 0), ("before", NODE8_BEFORE as usize), ("ref", NODE8.refs as usize)];
    compare("tl_node8", NODE8.refs as usize, &node8);
}

/// Constants that Rust must know before anything is loaded.
#[test]
fn names_of_the_verdicts() {
    let btf = Btf::from_path(object()).unwrap();
    let verdict: libbpf_rs::btf::types::Enum<'_> = btf.type_by_name("tl_verdict").unwrap();
    assert_eq!(verdict.len(), VERDICTS.len() + 1);
    let blackhole = tl_verdict::TL_DROP_BLACKHOLE.0 as u8;
    let named: Vec<_> = VERDICTS.iter().filter(|verdict| verdict.name == "blackhole").collect();
    assert_eq!(named, [&Verdict { number: blackhole, name: "blackhole", kind: Kind::Drop }]);
    // Each kind in its range: the program tells them apart by their numbers.
    let range = |kind: Kind| match kind {
        Kind::Forward => 0..32,
        Kind::Pass => 32..96,
        Kind::Drop => 96..128,
    };
    assert!(VERDICTS.is_sorted_by_key(|verdict| verdict.number));
    assert!(VERDICTS.iter().all(|verdict| range(verdict.kind).contains(&verdict.number)));
    let version = u32::from(trieline_lpm::image::layout::VERSION);
    assert_eq!(tl_limits::TL_INTF_IMAGE.0, version, "the image that the program reads");
}

/// Pinned maps outlive their program: a build that reads them otherwise must be of another version. `interface.txt` records what
/// the pins of this version hold. Its lines stay as long as the version does; a new verdict only adds one.
#[test]
fn the_version_grows_with_the_layout() {
    let object = libbpf_rs::ObjectBuilder::default().open_file(object()).unwrap();
    let maps = object.maps().filter(|map| !map.name().to_string_lossy().contains('.')).map(|map| {
        let (name, kind) = (map.name().to_string_lossy().into_owned(), map.map_type());
        let (key, value, entries) = (map.key_size(), map.value_size(), map.max_entries());
        format!("map {name}: {kind:?}, key {key}, value {value}, entries {entries}")
    });
    // Their order in the object depends on where the program names them first.
    let maps = maps.collect::<std::collections::BTreeSet<_>>();
    let btf = Btf::from_path(self::object()).unwrap();
    let structs = SHARED.iter().map(|name| {
        let (size, members) = members(&btf, name);
        let members: Vec<_> = members.iter().map(|(name, offset)| format!("{offset} {name}")).collect();
        format!("struct {name}: {size} bytes: {}", members.join(", "))
    });
    let verdicts = VERDICTS.iter().map(|verdict| format!("verdict {}: {}", verdict.number, verdict.name));
    let version = format!("version {}", tl_limits::TL_INTF_VERSION.0);
    let now: Vec<String> =
        std::iter::once(version.clone()).chain(maps).chain(structs).chain(verdicts).collect();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interface.txt");
    let recorded = std::fs::read_to_string(&path).unwrap();
    let is_this_version = recorded.lines().next() == Some(&version);
    let changed: Vec<_> = recorded.lines().filter(|line| !now.iter().any(|now| now == line)).collect();
    assert!(
        !is_this_version || changed.is_empty(),
        "raise TL_INTF_VERSION in intf.h: pins of {version} hold {changed:#?}"
    );
    let now = now.join("\n") + "\n";
    if now != recorded && std::env::var_os("TRIELINE_RECORD").is_some() {
        std::fs::write(&path, &now).unwrap();
    } else {
        assert_eq!(now, recorded, "record it: TRIELINE_RECORD=1 cargo test -p trieline-router --test layout");
    }
}
