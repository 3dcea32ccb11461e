//! Settings (`sysctl`), of each device and of all.

use super::state::Verbs;
use crate::script::{Step, node};

/// Of IPv4 and a device: the key and its values.
const OF_DEVICE4: &[(&str, &[&str])] = &[
    ("rp_filter", &["0", "0", "1", "2"]),
    ("accept_local", &["0", "1"]),
    ("forwarding", &["1", "1", "0"]),
    ("ignore_routes_with_linkdown", &["0", "1"]),
    ("send_redirects", &["0", "1"]),
    ("accept_source_route", &["0", "1"]),
    ("route_localnet", &["0", "1"]),
    ("bc_forwarding", &["0", "1"]),
    ("src_valid_mark", &["0", "1"]),
    ("proxy_arp", &["0", "1"]),
    ("shared_media", &["1", "0"]),
    ("drop_unicast_in_l2_multicast", &["0", "1"]),
    ("mc_forwarding", &["0"]),
];

/// Of IPv6 and a device.
const OF_DEVICE6: &[(&str, &[&str])] = &[
    ("forwarding", &["1", "1", "0"]),
    ("ignore_routes_with_linkdown", &["0", "1"]),
    ("disable_ipv6", &["0", "0", "1"]),
    ("mtu", &["1500", "1500", "1280", "1290", "1400"]),
    ("hop_limit", &["64", "7"]),
    ("seg6_enabled", &["1", "1", "0"]),
    ("seg6_require_hmac", &["0", "0", "1", "-1"]),
    ("proxy_ndp", &["0", "1"]),
    ("accept_source_route", &["0", "1", "-1"]),
    ("keep_addr_on_down", &["0", "1"]),
    ("drop_unicast_in_l2_multicast", &["0", "1"]),
    ("force_forwarding", &["0", "1"]),
    ("rpl_seg_enabled", &["0", "1"]),
    ("ioam6_enabled", &["0", "1"]),
];

/// Of the whole node.
const OF_NODE: &[(&str, &[&str])] = &[
    ("net.ipv4.ip_forward", &["1", "1", "1", "0"]),
    ("net.ipv4.fib_multipath_hash_policy", &["1", "1", "0"]),
    ("net.ipv4.fib_multipath_use_neigh", &["0", "1"]),
    ("net.ipv4.ip_forward_use_pmtu", &["0", "1"]),
    ("net.ipv4.ip_default_ttl", &["64", "17"]),
    ("net.ipv4.ip_forward_update_priority", &["1", "0"]),
    ("net.ipv4.fib_sync_mem", &["524288"]),
    ("net.ipv6.fib_multipath_hash_policy", &["1", "1", "0"]),
    ("net.ipv6.seg6_flowlabel", &["0", "0", "-1"]),
    ("net.ipv6.conf.all.skip_notify_on_dev_down", &["0", "1"]),
    ("net.ipv6.route.skip_notify_on_dev_down", &["0", "1"]),
    ("net.ipv4.raw_l3mdev_accept", &["1", "0"]),
];

/// Keys, as names of what can be left out: `ipv4.rp_filter`, `ipv6.mtu`, `net.ipv4.ip_forward`.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let keys = |table: &'static [(&'static str, &'static [&'static str])]| table.iter().map(|row| row.0);
    keys(OF_DEVICE4).chain(keys(OF_DEVICE6)).chain(keys(OF_NODE))
}

impl Verbs {
    pub(super) fn setting(&mut self) -> Step {
        let device = match self.random.below(6) {
            0 => "all".to_owned(),
            1 => "default".to_owned(),
            _ => self.device(),
        };
        let (key, value, text) = match self.random.below(8) {
            0..3 => {
                let (key, values) = self.random.pick(OF_DEVICE4);
                let value = self.random.pick(values);
                (key, value, format!("net.ipv4.conf.{device}.{key}"))
            }
            3..6 => {
                let (key, values) = self.random.pick(OF_DEVICE6);
                let value = self.random.pick(values);
                (key, value, format!("net.ipv6.conf.{device}.{key}"))
            }
            _ => {
                let (key, values) = self.random.pick(OF_NODE);
                (key, self.random.pick(values), key.to_owned())
            }
        };
        let is_left_out = !self.may(key) || (device == "all" && !self.may("setting-all"));
        if is_left_out { Step::new() } else { vec![node(format!("sysctl {text} {value}"))] }
    }
}
