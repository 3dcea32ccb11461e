//! Commands about addresses, neighbours, and links that get back what they had.

use super::state::Verbs;
use crate::script::{Step, far, node};
use crate::twin::addresses;

impl Verbs {
    /// Puts a link back into the state of the beginning.
    pub(super) fn mend(&mut self) -> Step {
        let link = self.link();
        let name = self.links[link].clone();
        let mut step = vec![
            far(format!("ip link set p{link} up")),
            node(format!("ip link set {name} nomaster")),
            node(format!("ip link set {name} up arp on mtu 1500")),
            node(format!("sysctl net.ipv6.conf.{name}.disable_ipv6 0")),
        ];
        for address in addresses(link) {
            step.push(node(format!("ip addr replace {address} dev {name}")));
        }
        step
    }

    pub(super) fn neigh(&mut self) -> Step {
        let six = self.random.one_in(2);
        let (link, address) = self.gateway(six);
        let elsewhere = if self.random.one_in(8) { self.link() } else { link };
        let name = self.links[elsewhere].clone();
        let state = self.random.pick(&[
            "permanent",
            "reachable",
            "stale",
            "noarp",
            "failed",
            "delay",
            "probe",
            "none",
            "incomplete",
        ]);
        let mac = if self.random.one_in(3) { 0x77 } else { 2 };
        let mac = format!("02:00:00:00:{link:02x}:{mac:02x}");
        let text = match self.random.below(10) {
            0 => format!("ip neigh flush dev {name}"),
            1 => format!("ip neigh add proxy {address} dev {name}"),
            2 => format!("ip neigh del proxy {address} dev {name}"),
            3 | 4 => format!("ip neigh del {address} dev {name}"),
            5 => format!("ip neigh change {address} lladdr {mac} dev {name} nud {state}"),
            6 => format!("ip neigh add {address} dev {name} nud {state}"),
            _ => format!("ip neigh replace {address} lladdr {mac} dev {name} nud {state}"),
        };
        vec![node(text)]
    }

    pub(super) fn addr(&mut self) -> Step {
        let six = self.random.one_in(2);
        let link = self.link();
        let device = if self.random.one_in(6) { self.device() } else { self.links[link].clone() };
        let host = self.random.pick(&[1, 1, 5, 6]);
        let address = match (six, self.random.below(4)) {
            (false, 0) => format!("10.{link}.{host}.1/25"),
            (false, _) => format!("10.{link}.0.{host}/24"),
            (true, 0) => format!("fd00:{link}:{host}::1/80"),
            (true, _) => format!("fd00:{link}::{host}/64"),
        };
        let verb = self.random.pick(&["add", "add", "replace", "del", "del", "change"]);
        let mut text = format!("ip addr {verb} {address} dev {device}");
        if verb != "del" {
            for (name, n, words) in [
                ("noprefixroute", 6, " noprefixroute"),
                ("addr-metric", 6, " metric 50"),
                ("addr-lifetime", 8, " valid_lft 100 preferred_lft 50"),
                ("addr-scope", 10, " scope link"),
            ] {
                if self.now(name, n) {
                    text.push_str(words);
                }
            }
        }
        vec![node(text)]
    }

    pub(super) fn addr_flush(&mut self) -> Step {
        let device = self.device();
        let what = self.random.pick(&[
            "ip addr flush dev",
            "ip -4 addr flush dev",
            "ip -6 addr flush scope global dev",
        ]);
        vec![node(format!("{what} {device}"))]
    }
}
