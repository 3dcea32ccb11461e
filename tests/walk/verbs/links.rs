//! Commands about devices.

use super::state::Verbs;
use crate::script::{Step, far, node, store};
use crate::twin::{addresses, macs};
use trieline_testbed::namespace::mac;

/// MTUs that devices get.
const MTUS: &[usize] = &[1500, 1500, 1400, 1300, 1280, 1000, 576];

impl Verbs {
    pub(super) fn up_down(&mut self) -> Step {
        let device = self.device();
        let way = self.random.pick(&["up", "up", "down"]);
        vec![node(format!("ip link set {device} {way}"))]
    }

    pub(super) fn carrier(&mut self) -> Step {
        let link = self.link();
        let way = self.random.pick(&["up", "up", "down"]);
        vec![far(format!("ip link set p{link} {way}"))]
    }

    pub(super) fn mtu(&mut self) -> Step {
        let (device, mtu) = (self.device(), self.random.pick(MTUS));
        vec![node(format!("ip link set {device} mtu {mtu}"))]
    }

    pub(super) fn mac(&mut self) -> Step {
        let link = self.link();
        let last = self.random.pick(&[1, 1, 0x31]);
        let mut address = macs(link)[0];
        address[5] = last;
        self.macs[link] = address;
        vec![node(format!("ip link set {} address {}", self.links[link], mac(address)))]
    }

    pub(super) fn arp(&mut self) -> Step {
        let device = self.device();
        let way = self.random.pick(&[
            "arp on",
            "arp on",
            "arp off",
            "promisc on",
            "promisc off",
            "multicast on",
            "group 7",
        ]);
        vec![node(format!("ip link set {device} {way}"))]
    }

    /// Another name, or the first again.
    pub(super) fn name(&mut self) -> Step {
        let link = self.link();
        let old = self.links[link].clone();
        let new = if old.starts_with('n') { format!("m{link}") } else { format!("n{link}") };
        // The alternative: the verb is left out, and the name stays.
        if !self.may("name") {
            return Step::new();
        }
        self.links[link] = new.clone();
        let mut step = vec![
            node(format!("ip link set {old} down")),
            node(format!("ip link set {old} name {new}")),
            node(format!("ip link set {new} up")),
        ];
        for address in addresses(link) {
            step.push(node(format!("ip addr replace {address} dev {new}")));
        }
        step
    }

    pub(super) fn altname(&mut self) -> Step {
        if !self.altnames.is_empty() && self.random.one_in(3) {
            let at = self.random.below(self.altnames.len());
            let (link, name) = self.altnames.remove(at);
            return vec![node(format!("ip link property del dev {} altname {name}", self.links[link]))];
        }
        let link = self.link();
        let name = format!("alt{link}x{}", self.random.below(3));
        if self.may("altname") {
            self.altnames.push((link, name.clone()));
        }
        vec![node(format!("ip link property add dev {} altname {name}", self.links[link]))]
    }

    /// Away into another namespace, and back.
    pub(super) fn netns(&mut self) -> Step {
        let link = self.link();
        let name = self.links[link].clone();
        let mut step = vec![
            node(format!("ip link set {name} netns @store")),
            store(format!("ip link set {name} netns @node")),
            node(format!("sysctl net.ipv6.conf.{name}.accept_dad 0")),
            node(format!("ip link set {name} up")),
        ];
        for address in addresses(link) {
            step.push(node(format!("ip addr add {address} dev {name}")));
        }
        step
    }

    fn remember(&mut self, what: &str, device: &str) {
        if self.may(what) && !self.made.iter().any(|made| made == device) {
            self.made.push(device.to_owned());
        }
    }

    fn forget(&mut self, device: &str) {
        self.made.retain(|made| made != device);
    }

    pub(super) fn bridge(&mut self) -> Step {
        let link = self.random.pick(&[2, 3, 4]);
        let port = self.links[link].clone();
        let choice = self.random.below(8);
        if !self.kinds.bridge {
            return Step::new();
        }
        match choice {
            0..3 => {
                self.remember("bridge", "br0");
                vec![
                    node(
                        "ip link add br0 address 02:00:00:00:08:01 type bridge forward_delay 0 mcast_snooping 0",
                    ),
                    node("sysctl net.ipv6.conf.br0.accept_dad 0"),
                    node("ip link set br0 up"),
                    node("ip addr add 10.9.0.1/24 dev br0"),
                    node("ip addr add fd09::1/64 dev br0"),
                    node(format!("ip link set {port} master br0")),
                ]
            }
            3..5 => vec![node(format!("ip link set {port} master br0"))],
            5..7 => vec![node(format!("ip link set {port} nomaster"))],
            _ => {
                self.forget("br0");
                vec![node("ip link del br0")]
            }
        }
    }

    pub(super) fn dummy(&mut self) -> Step {
        let gone = self.random.one_in(3);
        if !self.kinds.dummy {
            return Step::new();
        }
        if gone {
            self.forget("d0");
            return vec![node("ip link del d0")];
        }
        self.remember("dummy", "d0");
        vec![
            node("ip link add d0 address 02:00:00:00:08:02 type dummy"),
            node("ip link set d0 up"),
            node("ip addr add 10.8.0.1/24 dev d0"),
            node("ip addr add fd08::1/64 dev d0 nodad"),
        ]
    }

    pub(super) fn vlan(&mut self) -> Step {
        let link = self.random.pick(&[0, 0, 1, 2]);
        let (port, choice) = (self.links[link].clone(), self.random.below(6));
        let options =
            self.random.pick(&["", "", "", " reorder_hdr off", " egress-qos-map 0:3", " protocol 802.1ad"]);
        if !self.kinds.vlan {
            return Step::new();
        }
        let name = format!("v{link}");
        match choice {
            0 => {
                self.forget(&name);
                vec![node(format!("ip link del {name}"))]
            }
            1 => vec![node(format!("ip link set {name} down"))],
            _ => {
                self.remember("vlan", &name);
                vec![
                    node(format!("ip link add link {port} name {name} type vlan id 8{options}")),
                    node(format!("sysctl net.ipv6.conf.{name}.accept_dad 0")),
                    node(format!("ip link set {name} up")),
                    node(format!("ip addr replace 10.108.{link}.1/24 dev {name}")),
                    node(format!("ip addr replace fd08:{link}::1/64 dev {name}")),
                ]
            }
        }
    }

    pub(super) fn vrf(&mut self) -> Step {
        let (name, table) = self.random.pick(&[("red", 100), ("blue", 200)]);
        // A MAC address of the kernel's own choice would be another on each node.
        let last = table / 100;
        let (device, choice, way) =
            (self.device(), self.random.below(9), self.random.pick(&["up", "up", "down"]));
        if !self.kinds.vrf {
            return Step::new();
        }
        match choice {
            0..3 => {
                self.remember("vrf", name);
                let mut step = vec![
                    node(format!(
                        "ip link add {name} address 02:00:00:00:0a:{last:02x} type vrf table {table}"
                    )),
                    node(format!("ip link set {name} up")),
                    node(format!("ip link set {device} master {name}")),
                ];
                if let Some(link) = self.links.iter().position(|link| *link == device) {
                    step.push(node(format!("ip addr replace {} dev {device}", addresses(link)[1])));
                }
                step
            }
            3..5 => vec![node(format!("ip link set {device} master {name}"))],
            5..7 => vec![node(format!("ip link set {device} nomaster"))],
            7 => vec![node(format!("ip link set {name} {way}"))],
            _ => {
                self.forget(name);
                vec![node(format!("ip link del {name}"))]
            }
        }
    }

    pub(super) fn bond(&mut self) -> Step {
        let link = self.random.pick(&[2, 3]);
        let (port, choice) = (self.links[link].clone(), self.random.below(6));
        // As if it took the address of its first port.
        let address = mac(self.macs[link]);
        if !self.kinds.bond {
            return Step::new();
        }
        match choice {
            0 => {
                self.forget("bond0");
                vec![node("ip link del bond0")]
            }
            1 => vec![node(format!("ip link set {port} nomaster")), node(format!("ip link set {port} up"))],
            _ => {
                self.remember("bond", "bond0");
                vec![
                    node(format!(
                        "ip link add bond0 address {address} type bond mode active-backup miimon 100"
                    )),
                    node(format!("ip link set {port} down")),
                    node(format!("ip link set {port} master bond0")),
                    node("ip link set bond0 up"),
                    node("ip addr replace 10.7.0.1/24 dev bond0"),
                    node("ip addr replace fd07::1/64 dev bond0 nodad"),
                ]
            }
        }
    }
}
