//! Twin nodes: one with trielined and one with the kernel alone, with the same devices, addresses and commands.

use crate::script::{Command, Place};
use std::collections::BTreeMap;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};
use trieline_testbed::daemon::{Daemon, Programs};
use trieline_testbed::namespace::{End, Namespace, veth};
use trieline_testbed::wire::Wire;
use trieline_testbed::{Error, Result, patience};

/// First word of the names of the walk's namespaces.
pub(crate) const PREFIX: &str = "tlwalk";

/// The links of a node: `n0` to `n4`, at whose other ends are `p0` to `p4`. trielined has all but the last.
pub(crate) const LINKS: usize = 5;
/// The links that trielined has.
pub(crate) const PORTS: usize = 4;

/// Properties of both nodes.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    /// Attach in generic mode.
    pub(crate) generic: bool,
    /// Routes beside those of the walk.
    pub(crate) many: usize,
}

/// The MAC address of a node's link, and of the link's other end.
pub(crate) fn macs(link: usize) -> [[u8; 6]; 2] {
    [[2, 0, 0, 0, link as u8, 1], [2, 0, 0, 0, link as u8, 2]]
}

/// A node with what is around it.
pub(crate) struct Node {
    node: Namespace,
    far: Namespace,
    store: Namespace,
    /// The other ends of its links.
    pub(crate) wire: Wire,
    /// Index of `p0` to `p4`.
    pub(crate) ends: BTreeMap<u32, usize>,
}

/// The answer of a command: whether it succeeded, and what it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) text: String,
}

/// Settings that every node has: no limits and no waits where the walk would meet them.
const SETTINGS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/all/seg6_enabled", "1"),
    ("net/ipv6/conf/default/seg6_enabled", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv4/icmp_ratemask", "0"),
    ("net/ipv6/icmp/ratelimit", "0"),
    ("net/ipv6/icmp/ratemask", ""),
    ("net/ipv4/fib_multipath_hash_policy", "1"),
    ("net/ipv6/fib_multipath_hash_policy", "1"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/addr_gen_mode", "0"),
    ("net/ipv4/neigh/default/delay_first_probe_time", "1"),
    ("net/ipv4/neigh/default/retrans_time_ms", "200"),
    ("net/ipv4/neigh/default/ucast_solicit", "1"),
    ("net/ipv4/neigh/default/mcast_solicit", "2"),
    ("net/ipv6/neigh/default/delay_first_probe_time", "1"),
    ("net/ipv6/neigh/default/retrans_time_ms", "200"),
    ("net/ipv6/neigh/default/ucast_solicit", "1"),
    ("net/ipv6/neigh/default/mcast_solicit", "2"),
];

/// Addresses that link `k` has at the beginning.
pub(crate) fn addresses(link: usize) -> [String; 2] {
    [format!("10.{link}.0.1/24"), format!("fd00:{link}::1/64")]
}

impl Node {
    fn new(role: &str, kind: &Kind) -> Result<Self> {
        let [node, far, store] =
            ["node", "far", "store"].map(|what| Namespace::create(PREFIX, &format!("{role}{what}")));
        let (node, far, store) = (node?, far?, store?);
        for (key, value) in SETTINGS {
            // An older kernel lacks some of them.
            let _ = node.write_sysctl(key, value);
        }
        far.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        far.write_sysctl("net/ipv6/conf/all/disable_ipv6", "1")?;
        node.ip_words(&["link", "set", "lo", "up"])?;
        let mut ends = BTreeMap::new();
        for link in 0..LINKS {
            let (near, end) = (format!("n{link}"), format!("p{link}"));
            let [mac, end_mac] = macs(link);
            veth(
                End { namespace: &node, device: &near, mac },
                End { namespace: &far, device: &end, mac: end_mac },
            )?;
            far.ip_words(&["link", "set", &end, "arp", "off", "up"])?;
            for address in addresses(link) {
                node.ip_words(&["addr", "add", &address, "dev", &near])?;
            }
            node.ip_words(&["link", "set", &near, "up"])?;
            // A receive queue of its own, without which a veth refuses frames that XDP redirects to it.
            for (place, device) in [(&node, &near), (&far, &end)] {
                let words =
                    ["netns", "exec", place.name(), "ethtool", "-K", device, "tx", "off", "gro", "on"];
                let _ = trieline_testbed::command::ip(&words);
            }
            ends.insert(far.ifindex(&end)?, link);
        }
        let wire = Wire::open(&far)?;
        let made = Self { node, far, store, wire, ends };
        made.load(kind.many)?;
        Ok(made)
    }

    /// Routes of both families that no command of the walk names.
    fn load(&self, many: usize) -> Result<()> {
        let line = |number: usize| {
            let (link, half) = (1 + number % 3, number / 2);
            if number.is_multiple_of(2) {
                format!("route add 20.{}.{}.0/24 via 10.{link}.0.2", half >> 8 & 255, half & 255)
            } else {
                format!("route add fd20:{:x}::/48 via fd00:{link}::2", half)
            }
        };
        if many > 0 {
            let arguments = ["-n", self.node.name(), "-force"];
            trieline_testbed::command::ip_batch(&arguments, (0..many).map(line), |_| true)?;
        }
        Ok(())
    }

    /// Runs a command.
    pub(crate) fn run(&self, command: &Command) -> Result<Said> {
        let place = match command.place {
            Place::Node => &self.node,
            Place::Far => &self.far,
            Place::Store => &self.store,
        };
        let text = command.text.replace("@node", self.node.name()).replace("@store", self.store.name());
        match text.split_once(' ') {
            Some(("sysctl", words)) => {
                let (key, value) = words.split_once(' ').unwrap_or((words, ""));
                let written = place.write_sysctl(&key.replace('.', "/"), value);
                Ok(Said { ok: written.is_ok(), text: String::new() })
            }
            Some(("sh", line)) => self.process(place, "sh", &["-c", line]),
            _ => {
                let words: Vec<&str> = text.split_whitespace().collect();
                self.process(place, words[0], &words[1..])
            }
        }
    }

    fn process(&self, place: &Namespace, program: &str, words: &[&str]) -> Result<Said> {
        let _inside = place.enter_here()?;
        let output = Process::new(program).args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|cause| Error::Io { what: format!("cannot start {program}"), cause })?;
        let text = if output.status.success() { output.stdout } else { output.stderr };
        Ok(Said { ok: output.status.success(), text: String::from_utf8_lossy(&text).into_owned() })
    }

    /// The output of a command of the node.
    pub(crate) fn shows(&self, words: &str) -> Result<String> {
        let words: Vec<&str> = words.split_whitespace().collect();
        Ok(self.process(&self.node, "ip", &words)?.text)
    }
}

/// The two nodes.
pub(crate) struct Twins {
    /// The node with trielined.
    pub(crate) with: Node,
    /// The node without.
    pub(crate) without: Node,
    daemon: Daemon,
    programs: Programs,
}

/// The audit's word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Audit {
    Equal,
    /// The kernel and trielined differ: the program's whole answer.
    Differs(String),
}

impl Twins {
    /// Makes both and starts trielined.
    pub(crate) fn new(kind: &Kind) -> Result<Self> {
        let (with, without) = (Node::new("a", kind)?, Node::new("b", kind)?);
        let programs = Programs::built();
        let mut daemon = Daemon::launch(programs.clone(), &with.node, |command| {
            for port in 0..PORTS {
                command.args(["--dev", &format!("n{port}")]);
            }
            if kind.generic {
                command.arg("--generic");
            }
        })?;
        daemon.ready(Duration::from_secs_f64(120.0 * patience()), || true)?;
        Ok(Self { with, without, daemon, programs })
    }

    /// Runs a command on both. An answer means that the two kernels said different things.
    pub(crate) fn run(&self, command: &Command) -> Result<Option<String>> {
        let (with, without) = (self.with.run(command)?, self.without.run(command)?);
        Ok((with.ok != without.ok)
            .then(|| format!("{command}: {with:?} with trielined, {without:?} without")))
    }

    /// An error when trielined has ended.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.daemon.check()
    }

    /// The daemon's log.
    pub(crate) fn log(&self) -> String {
        self.daemon.log()
    }

    /// Asks `trieline node audit` once.
    pub(crate) fn audit(&self) -> Result<Audit> {
        let words = ["-n", self.with.node.name(), "node", "audit", "--no-repair"];
        let output = Process::new(&self.programs.trieline).args(words).stdin(Stdio::null()).output();
        let output = output.map_err(|cause| Error::Io { what: "cannot start trieline".into(), cause })?;
        if output.status.success() {
            return Ok(Audit::Equal);
        }
        let text = [output.stdout, output.stderr].concat();
        Ok(Audit::Differs(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Packets that XDP forwarded so far.
    pub(crate) fn forwarded(&self) -> Option<u64> {
        let status = self.daemon.status()?;
        let verdicts = status["counters"].as_array()?;
        let forwarded = verdicts.iter().filter(|row| row["kind"] == "forward");
        Some(forwarded.filter_map(|row| row["packets"].as_u64()).sum())
    }

    /// Differences of the two kernels' own words, if they stay.
    pub(crate) fn diverged(&self) -> Result<Option<String>> {
        let until = Instant::now() + Duration::from_millis(1500);
        loop {
            let (with, without) = (kernel(&self.with)?, kernel(&self.without)?);
            if with == without {
                return Ok(None);
            }
            if Instant::now() > until {
                let only = |of: &[String], not: &[String], mark: &str| {
                    let lines = of.iter().filter(|line| !not.contains(line));
                    lines.map(|line| format!("{mark} {line}\n")).collect::<String>()
                };
                return Ok(Some(only(&with, &without, "with:   ") + &only(&without, &with, "without:")));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

/// Words of `ip`'s output whose next word changes by itself.
const VOLATILE: &[&str] = &[
    "expires",
    "valid_lft",
    "preferred_lft",
    "link-netnsid",
    "link-netns",
    "unbalanced_time",
    "used",
    "probes",
    // Tunnels of the kernel's own have a random one.
    "permaddr",
];

/// A kernel's state as `ip` shows it, without what changes by itself.
fn kernel(node: &Node) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for words in [
        "-d -o -4 route show table all",
        "-d -o -6 route show table all",
        "-4 rule show",
        "-6 rule show",
        "-o addr show",
        "-o link show",
        "-d -o nexthop show",
        "-o neigh show nud permanent",
    ] {
        for line in node.shows(words)?.lines() {
            // The kernel makes these for packets that it sent itself.
            if line.contains(" lladdr 33:33:")
                || line.contains(" lladdr 01:00:5e:")
                || line.contains(" lladdr ff:ff:")
            {
                continue;
            }
            let mut kept = Vec::new();
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                if VOLATILE.contains(&word) {
                    words.next();
                } else if word == "prog/xdp" {
                    // The program's number and tag, up to the line that `-o` joined.
                    words.by_ref().find(|word| *word == "\\");
                } else if !word.starts_with("xdp") && word != "\\" {
                    kept.push(word);
                }
            }
            lines.push(kept.join(" "));
        }
    }
    lines.sort();
    Ok(lines)
}
