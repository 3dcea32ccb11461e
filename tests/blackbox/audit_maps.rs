//! The audit of the maps beside tables and actions. Each is damaged behind trielined's back, found, named and written once more, by the command and by
//! the samples.

use crate::audit::{audit, map, number};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeMap;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

/// The content of a map: all but entries of zeros, which an array has where nothing is.
fn content(map: &MapHandle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let value = |key: &Vec<u8>| map.lookup(key, MapFlags::ANY).expect("a lookup");
    let all = map.keys().filter_map(|key| value(&key).map(|value| (key, value)));
    all.filter(|(_, value)| value.iter().any(|byte| *byte != 0)).collect()
}

/// Writes a map's entry whose key is this, or all entries: `change` changes the value, `None` removes it.
fn damage(map: &MapHandle, key: Option<u32>, change: Option<fn(&mut Vec<u8>)>) {
    let mut all = content(map);
    let wanted = key.map(|key| key.to_ne_bytes().to_vec());
    all.retain(|key, _| wanted.as_ref().is_none_or(|wanted| wanted == key));
    assert!(!all.is_empty(), "no entry");
    for (key, mut value) in all {
        match change {
            Some(change) => {
                change(&mut value);
                map.update(&key, &value, MapFlags::ANY).expect("an update");
            }
            None => map.delete(&key).expect("a removal"),
        }
    }
}

/// A map, its entry by number where it has one, the damage, and the words that name it.
type Case = (&'static str, Option<u32>, Option<fn(&mut Vec<u8>)>, &'static str);

#[test]
fn each_map_is_found_and_repaired() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    bed.node.ip(
        "-6 route add fd00:c:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev n1",
    );
    bed.node.ip("rule add pref 100 from 10.99.0.0/16 lookup 100");
    bed.node.ip("route add 10.52.0.0/16 via 10.1.0.2 table 100");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    for file in ["all", "inside"] {
        std::fs::write(folder.path().join(file), "192.0.2.0/24\n2001:db8:bad::/48\n").expect("a file");
    }
    let configure = |rate: u32| {
        let filter = |name: &str| {
            format!(
                "[[filter]]\nname = \"{name}\"\nfile = \"{name}\"\nmatch = \"source\"\naction = \"drop\"\n"
            )
        };
        let text = format!(
            "devices = [\"n0\", \"n1\", \"n2\"]\n[audit]\nrate = {rate}\n{}{}[[sid_hook]]\nname = \"h\"\nsid = \"fd00:c::1\"\nfilters = [\"inside\"]\n",
            filter("all"),
            filter("inside"),
        );
        std::fs::write(&config, text).expect("a file");
    };
    configure(0);
    let daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    let [n0, n1] = ["n0", "n1"].map(|device| bed.node.ifindex(device).expect("a device"));
    let cases: [Case; 14] = [
        // Flags, the way to the tables, the MAC address of the port.
        ("ports", Some(n0), Some(|port| port[0] ^= 1), "port n0"),
        ("ports", Some(n0), Some(|port| port[0] &= !64), "port n0"),
        ("ports", Some(n0), Some(|port| port[4] ^= 1), "port n0"),
        ("ports", Some(n0), Some(|port| port[21] ^= 1), "port n0"),
        ("local_addrs", None, Some(|bits| bits[..4096].fill(0)), "own addresses"),
        ("local_addrs", None, Some(|bits| bits[4096] ^= 1), "keys of flows"),
        ("devices", Some(n1), None, "exit n1"),
        ("jumbo_devices", Some(n1), None, "jumbo exit n1"),
        ("rules", None, Some(|rule| rule[32] ^= 1), "of lookup id"),
        ("filter_lists", Some(0), Some(|list| list.fill(0)), "filter list 0"),
        ("filters", None, Some(|filter| filter[8] ^= 1), "filter list"),
        ("sid_hooks", None, None, "hook of SID fd00:c::1"),
        ("sid_hooks", None, Some(|hook| hook[4] ^= 1), "hook of SID fd00:c::1"),
        ("csids", None, Some(|steps| steps[0] ^= 1), "NEXT-C-SID fd00:c:1::/48"),
    ];
    trieline(&bed.node, "node audit --no-repair").ok();
    // Exits belong to a network namespace.
    bed.node.enter(|| {
        for (name, key, change, named) in &cases {
            let (map, what) = (map(&bed, name), format!("{name}: {named}"));
            let before = content(&map);
            // (1) the command finds it, names it, and repairs it
            damage(&map, *key, *change);
            let answer = trieline(&bed.node, "node audit --no-repair");
            let is_named = |text: &str| text.contains(named) && text.contains("wrong map");
            assert!(answer.code == 1 && is_named(&answer.stdout), "{what}: {answer:?}");
            assert_ne!(content(&map), before, "{what}");
            let answer = trieline(&bed.node, "node audit");
            assert!(answer.code == 1 && answer.stdout.contains("repaired"), "{what}: {answer:?}");
            trieline(&bed.node, "node audit --no-repair").ok();
        }
        // (2) the samples do, within seconds
        configure(10);
        trieline(&bed.node, "node reload").ok();
        assert!(eventually(10.0, || number(&audit(&bed)["rate"]) == 10), "{}", daemon.log());
        for (name, key, change, named) in &cases {
            let (map, what) = (map(&bed, name), format!("{name}: {named}"));
            let before = number(&audit(&bed)["repairs"]);
            damage(&map, *key, *change);
            let repaired = || number(&audit(&bed)["repairs"]) > before;
            assert!(eventually(5.0, repaired), "{what}: {}\n{}", audit(&bed), daemon.log());
            let log = daemon.log();
            let is_named = |line: &str| line.contains("audit: wrong map: ") && line.contains(named);
            assert!(log.lines().any(is_named), "{what}\n{log}");
            trieline(&bed.node, "node audit --no-repair").ok();
        }
    });
    // (3) quiet again
    let repairs = number(&audit(&bed)["repairs"]);
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(number(&audit(&bed)["repairs"]), repairs, "{}", daemon.log());
}
