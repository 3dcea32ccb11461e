//! The structs both sides share have the same layout in the BPF object's BTF, in the generated Rust types and in `trieline-lpm`.
#![allow(clippy::unwrap_used)]

use std::mem::{offset_of, size_of};

use libbpf_rs::HasSize;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Struct;
use trieline_dataplane::layout::*;

fn object() -> std::path::PathBuf {
    std::path::PathBuf::from(env!("TRIELINE_NODE_OBJECT"))
}

/// Byte offset of every member of a struct, by the BTF.
fn members(btf: &Btf<'_>, name: &str) -> (usize, Vec<(String, usize)>) {
    let of: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("no {name} in the BTF"));
    let members = of
        .iter()
        .map(|m| {
            let libbpf_rs::btf::types::MemberAttr::Normal { offset } = m.attr else {
                panic!("bit field in {name}")
            };
            (m.name.unwrap().to_str().unwrap().to_owned(), offset as usize / 8)
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

#[test]
fn structs_of_intf_h() {
    let btf = Btf::from_path(object()).unwrap();
    same!(&btf, tl_action { kind, verdict, counter, adjacency });
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
    same!(&btf, tl_instance { version, map_type, image_bytes, netns, tables, image_version, hash_key });
    same!(&btf, tl_counters { packets });
    same!(&btf, tl_heartbeat { deadline, beaten, limit });
    same!(&btf, tl_beat { ticks });
}

/// `image.h` has its Rust twin in `trieline-lpm`, which knows no BPF.
#[test]
fn structs_of_image_h() {
    use trieline_lpm::image::layout::{ImageHeader, NODE6, NODE8, Skip, TableHeader};
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
    let table =
        fields!(TableHeader { fallback, key_family, root_bits, key_bits, prefixes, root_bytes, palette });
    compare("tl_table", size_of::<TableHeader>(), table);
    compare("tl_skip", size_of::<Skip>(), fields!(Skip { bits, len, next, otherwise }));
    compare("tl_node6", NODE6.refs as usize, &[("starts", 0), ("ref", NODE6.refs as usize)]);
    let node8 = [("starts", 0), ("ref", NODE8.refs as usize)];
    compare("tl_node8", NODE8.refs as usize, &node8);
}

/// Constants that Rust must know before anything is loaded.
#[test]
fn names_of_the_verdicts() {
    let btf = Btf::from_path(object()).unwrap();
    let verdict: libbpf_rs::btf::types::Enum<'_> = btf.type_by_name("tl_verdict").unwrap();
    assert_eq!(verdict.len(), trieline_dataplane::VERDICTS.len() + 1);
    assert_eq!(trieline_dataplane::VERDICTS[tl_verdict::TL_DROP_BLACKHOLE.0 as usize].name, "blackhole");
    // Forward, then pass, then drop: the program tells them apart by their order.
    assert!(trieline_dataplane::VERDICTS.is_sorted_by_key(|v| v.kind as u8));
    let version = u32::from(trieline_lpm::image::layout::VERSION);
    assert_eq!(tl_limits::TL_INTF_IMAGE.0, version, "the image that the program reads");
}
