//! Ten thousand tenants with ten routes each: time, memory, and that none sees another's routes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Instant;
use trieline_lpm::{Memory, Reader};
use trieline_router::fib::publish::Publisher;
use trieline_router::kernel::attribute::{HEADER, Request};
use trieline_router::kernel::socket::Message;
use trieline_router::kernel::{family, message};
use trieline_router::rib::mirror::Mirror;
use trieline_router::rib::tenant::{Tenants, Vrf};
use trieline_router::{Dataplane, ImageMapType, Options};
use trieline_testbed::bpffs::BpfFs;

const TENANTS: u32 = 10_000;
const ROUTES: u32 = 10;
const IMAGE: u64 = 64 << 20;
const BLACKHOLE: u8 = 6;

/// The messages that the kernel would send.
fn tell(mirror: &mut Mirror, kind: u16, request: Request) {
    let payload = request.finish(0).split_off(HEADER);
    mirror.apply(Message { kind, flags: 0x400, sequence: 0, payload: &payload });
}

fn link(mirror: &mut Mirror, index: u32) {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&0x1_0003u32.to_ne_bytes());
    let request = Request::new(0, 0, &fixed).attribute(3, format!("t{index}\0").as_bytes());
    tell(mirror, message::NEW_LINK, request.attribute(1, &[2, 0, 0, 0, 0, 1]));
}

/// `route add blackhole 10.T.T.R0/28 table T`.
fn destination(tenant: u32, route: u32) -> u32 {
    0x0a00_0000 | tenant << 8 | route << 4
}

fn route(mirror: &mut Mirror, table: u32, destination: u32) {
    let fixed = [family::INET, 28, 0, 0, 0, 3, 0, BLACKHOLE, 0, 0, 0, 0];
    let request = Request::new(0, 0, &fixed).attribute(1, &destination.to_be_bytes());
    tell(mirror, message::NEW_ROUTE, request.attribute(15, &table.to_ne_bytes()));
}

#[test]
fn ten_thousand_tenants() {
    trieline_testbed::needs_root!();
    let fs = BpfFs::mount();
    let pins = fs.path().join("tenants");
    let options = Options {
        pins: pins.clone(),
        map_type: Some(ImageMapType::Array),
        image_bytes: IMAGE,
        tables: 65536,
        rules: 131_072,
        frags: true,
        ..Options::default()
    };
    let mut dataplane = Dataplane::open(&options).unwrap();
    let mut publisher = Publisher::new(&mut dataplane).unwrap();
    let mut mirror = Mirror::default();
    let vrf = |tenant: u32| Vrf {
        name: format!("r{tenant}"),
        table: 1000 + tenant,
        devices: vec![format!("t{tenant}")],
    };
    mirror.kernel.settings.tenants = Tenants::new((1..=TENANTS).map(vrf).collect(), Vec::new());
    for tenant in 1..=TENANTS {
        link(&mut mirror, tenant);
        (0..ROUTES).for_each(|n| route(&mut mirror, 1000 + tenant, destination(tenant, n)));
    }
    let begun = Instant::now();
    publisher.publish(&mut mirror, dataplane.parts(), &BTreeSet::new());
    let stats = publisher.image_stats();
    println!(
        "{TENANTS} tenants of {ROUTES} routes written in {} ms; {} tables, {} KiB of the image used, {} KiB claimed",
        begun.elapsed().as_millis(),
        stats.tables_used,
        stats.used >> 10,
        stats.claimed >> 10
    );
    assert!(publisher.v4.is_current() && publisher.v6.is_current());
    let memory = dataplane.memory();
    let reader = Reader::new(memory.words()).unwrap();
    let mut policies = BTreeSet::new();
    for tenant in 1..=TENANTS {
        let lookup = publisher.policies.lookup_ids.of(family::INET, tenant).unwrap();
        assert!(policies.insert(lookup), "tenant {tenant} shares view {lookup}");
        for n in 0..ROUTES {
            assert!(
                reader.lookup4(lookup, destination(tenant, n) | 3).is_some(),
                "tenant {tenant}, route {n}"
            );
        }
        let other = destination(tenant % TENANTS + 1, 0);
        assert_eq!(reader.lookup4(lookup, other), None, "tenant {tenant} sees another's route");
    }
    // One route more, in one table: that one is written, no other.
    let begun = Instant::now();
    route(&mut mirror, 1001, destination(1, 15));
    let before = publisher.counts.prefixes;
    publisher.publish(&mut mirror, dataplane.parts(), &BTreeSet::new());
    println!("one route more: {} us", begun.elapsed().as_micros());
    assert_eq!(publisher.counts.prefixes, before + 1);
    // Half of them leave; their numbers are given to others once no packet can hold them.
    mirror.kernel.settings.tenants = Tenants::new((1..=TENANTS / 2).map(vrf).collect(), Vec::new());
    mirror.changes.kernel = true;
    publisher.publish(&mut mirror, dataplane.parts(), &BTreeSet::new());
    publisher.release_unused(&mirror, dataplane.parts().0);
    assert_eq!(publisher.policies.lookup_ids.tables().count() as u32, TENANTS); // one a family
    drop((publisher, dataplane));
    trieline_router::detach_all(&pins).unwrap();
}
