//! The walk's memory: how its random commands see the node.

use crate::script::{Command, node};
use crate::twin::{LINKS, PORTS, macs};
use std::collections::BTreeSet;
use trieline_testbed::random::Random;

/// Kinds of devices that a kernel may lack.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kinds {
    pub(crate) bridge: bool,
    pub(crate) dummy: bool,
    pub(crate) vlan: bool,
    pub(crate) vrf: bool,
    pub(crate) bond: bool,
}

/// Invents commands.
pub(crate) struct Verbs {
    pub(super) random: Random,
    pub(super) without: BTreeSet<String>,
    pub(super) kinds: Kinds,
    /// Names of `n0` to `n4` at this time.
    pub(super) links: Vec<String>,
    /// Their MAC addresses.
    pub(crate) macs: Vec<[u8; 6]>,
    /// Devices that the walk made.
    pub(super) made: Vec<String>,
    /// Alternative names in use.
    pub(super) altnames: Vec<(usize, String)>,
    /// Routes and rules that were added, as what `del` takes.
    pub(super) routes: Vec<String>,
    pub(super) rules: Vec<String>,
    pub(super) doubled: usize,
}

impl Verbs {
    pub(crate) fn new(random: Random, without: BTreeSet<String>, kinds: Kinds) -> Self {
        Self {
            random,
            without,
            kinds,
            links: (0..LINKS).map(|link| format!("n{link}")).collect(),
            macs: (0..LINKS).map(|link| macs(link)[0]).collect(),
            made: Vec::new(),
            altnames: Vec::new(),
            routes: Vec::new(),
            rules: Vec::new(),
            doubled: 0,
        }
    }

    /// Whether something may be used.
    pub(super) fn may(&self, name: &str) -> bool {
        !self.without.contains(name)
    }

    /// One case of `n`, if it may be used.
    pub(super) fn now(&mut self, name: &str, n: usize) -> bool {
        // The random number is taken either way: leaving one thing out changes nothing else.
        let now = self.random.one_in(n);
        now && self.may(name)
    }

    pub(super) fn link(&mut self) -> usize {
        self.random.pick(&[0, 1, 1, 2, 2, 3, 3, 4])
    }

    /// A device's name: a link's, or one that the walk made.
    pub(super) fn device(&mut self) -> String {
        if !self.made.is_empty() && self.random.one_in(4) {
            return self.random.pick(&self.made);
        }
        let link = self.link();
        self.links[link].clone()
    }

    pub(super) fn table(&mut self) -> String {
        match self.random.below(10) {
            0..6 => String::new(),
            6..8 => " table 100".into(),
            8 => " table 200".into(),
            _ if self.may("local-table") => " table local".into(),
            _ => " table 100".into(),
        }
    }

    /// An address of a host on a link.
    pub(super) fn gateway(&mut self, six: bool) -> (usize, String) {
        let link = self.link();
        let host = self.random.pick(&[2, 2, 2, 3, 9]);
        (link, if six { format!("fd00:{link}::{host}") } else { format!("10.{link}.0.{host}") })
    }

    /// Address of the node that it has at the beginning.
    pub(super) fn own(&mut self, six: bool) -> String {
        let link = self.random.below(PORTS);
        if six { format!("fd00:{link}::1") } else { format!("10.{link}.0.1") }
    }
}

/// A command of either family.
pub(super) fn family(six: bool, words: &str) -> Command {
    node(if six { format!("ip -6 {words}") } else { format!("ip {words}") })
}
