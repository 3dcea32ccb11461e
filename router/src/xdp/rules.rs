//! Rules: policies (lookups of more than one table), as `ip rule` makes them, written aside and named by ports and actions.
//!
//! A lookup id is a table's id or the first of a few linked rules. Rules that one leads to are never changed. To change them, trieline makes
//! another chain and moves all that name the old one to it. The old chain's places are used again after a grace period.

use std::collections::{BTreeMap, VecDeque};
use std::mem::offset_of;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use trieline_bpf::{Mapping, ReaderGrace};
use trieline_lpm::{Grace, IpPrefix, Prefix};

use crate::xdp::damage::Damage;
use crate::xdp::error::{Error, Result};
use crate::xdp::layout::{TL_LOOKUP_POLICY, TL_RULES_MAX, TL_VALUE_THROW, tl_rule, tl_rule_flags as Flags};

/// A lookup id with this bit is the index of a rule.
const RULES: u32 = TL_LOOKUP_POLICY;
/// As many rules are followed for a packet.
pub const RULES_MAX: usize = TL_RULES_MAX as usize;
/// The value of a `throw` route in a table: the next rule decides.
pub const VALUE_THROW: u32 = TL_VALUE_THROW;

/// The action of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RuleAction {
    /// The table of this id decides, when it has a route.
    Table(u32),
    /// The table of this id decides, when it has a route whose value is not the second number.
    Except(u32, u32),
    /// This value decides, as if a route had it.
    Value(u32),
    /// The rule at this place of the policy, from 0, decides next: a later one, or none where there are not so many.
    GoTo(usize),
}

/// One rule of a policy. Prefixes that are given must be of the packets' family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Only packets from here.
    pub from: Option<IpPrefix>,
    /// Only packets to here.
    pub to: Option<IpPrefix>,
    /// The packets that these two do not select, in place of those they do.
    pub inverted: bool,
    /// The action on packets that match.
    pub then: RuleAction,
}

/// An address in the first bits of two words, and a length.
fn words(prefix: Option<IpPrefix>) -> ([u64; 2], u8) {
    match prefix {
        None => ([0; 2], 0),
        Some(IpPrefix::V4(prefix)) => ([u64::from(prefix.addr()) << 32, 0], prefix.len() as u8),
        Some(IpPrefix::V6(prefix)) => {
            let addr = prefix.addr();
            ([(addr >> 64) as u64, addr as u64], prefix.len() as u8)
        }
    }
}

const WORDS: usize = size_of::<tl_rule>() / 8;
/// The word with the lengths, the flags and the table; the next has the next rule and the value left out.
const LENGTHS: usize = offset_of!(tl_rule, from_len) / 8;

/// Two numbers that lie in one word, in this order.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn split(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// The rule as it lies in the map; `place` returns the places of the rules after it.
fn encode(rule: &Rule, next: u32, place: impl Fn(usize) -> u32) -> [u64; WORDS] {
    let ((from, from_len), (to, to_len)) = (words(rule.from), words(rule.to));
    let (table, except, goto) = match rule.then {
        RuleAction::Table(id) => (id & !RULES, 0, Flags(0)),
        RuleAction::Except(id, value) => (id & !RULES, value, Flags(0)),
        RuleAction::Value(value) => (value | RULES, 0, Flags(0)),
        RuleAction::GoTo(at) => (place(at), 0, Flags::TL_RULE_GOTO),
    };
    let inverted = if rule.inverted { Flags::TL_RULE_NOT } else { Flags(0) };
    let [low, high, ..] = (Flags::TL_RULE_USED.0 | inverted.0 | goto.0).to_le_bytes();
    let [low, high] = u16::from_le_bytes([low, high]).to_ne_bytes();
    let lengths = u32::from_ne_bytes([from_len, to_len, low, high]);
    [from[0], from[1], to[0], to[1], pair(lengths, table), pair(next, except)]
}

/// Whether a rule as it lies in the map has a flag.
fn has(rule: &[u64; WORDS], flag: Flags) -> bool {
    let [_, _, low, high] = split(rule[LENGTHS]).0.to_ne_bytes();
    u32::from(u16::from_ne_bytes([low, high])) & flag.0 != 0
}

/// The rule that lies in the map so; not for those that go to another.
fn decode(rule: &[u64; WORDS], ipv4: bool) -> Rule {
    let (lengths, table) = split(rule[LENGTHS]);
    let [from_len, to_len, ..] = lengths.to_ne_bytes();
    let prefix = |hi: u64, lo: u64, len: u8| match (len, ipv4) {
        (0, _) => None,
        (_, true) => Some(IpPrefix::V4(Prefix::truncated((hi >> 32) as u32, len.into()))),
        (_, false) => {
            Some(IpPrefix::V6(Prefix::truncated(u128::from(hi) << 64 | u128::from(lo), len.into())))
        }
    };
    let then = match split(rule[LENGTHS + 1]).1 {
        _ if is_rules(table) => RuleAction::Value(table & !RULES),
        0 => RuleAction::Table(table),
        value => RuleAction::Except(table, value),
    };
    Rule {
        from: prefix(rule[0], rule[1], from_len),
        to: prefix(rule[2], rule[3], to_len),
        inverted: has(rule, Flags::TL_RULE_NOT),
        then,
    }
}

/// Whether a lookup id is made of rules, and not a table's id.
pub fn is_rules(lookup: u32) -> bool {
    lookup & RULES != 0
}

/// Whether an address is within a prefix, as the program asks it.
fn within(address: u128, prefix: [u64; 2], len: u8) -> bool {
    let prefix = u128::from(prefix[0]) << 64 | u128::from(prefix[1]);
    len == 0 || (address ^ prefix) >> (128 - u32::from(len.min(128))) == 0
}

/// An address in the first bits.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(addr) => u128::from(u32::from(addr)) << 96,
        IpAddr::V6(addr) => addr.into(),
    }
}

/// The map of rules.
#[derive(Debug)]
pub(crate) struct RuleMap {
    map: Mapping,
    capacity: u32,
}

impl RuleMap {
    pub(crate) fn new(map: Mapping, capacity: u32) -> Self {
        Self { map, capacity }
    }

    /// The words of a rule; of none there is, those of the place that is never used.
    fn words(&self, index: u32) -> &[AtomicU64] {
        let at = if index < self.capacity { index as usize * WORDS } else { 0 };
        &self.map.words64(self.capacity as usize * WORDS)[at..at + WORDS]
    }

    fn is_used(&self, index: u32) -> bool {
        self.words(index)[LENGTHS].load(Ordering::Acquire) != 0
    }

    /// The rules of a policy: indices with their words.
    fn chain(&self, lookup: u32) -> impl Iterator<Item = (u32, [u64; WORDS])> + '_ {
        let mut next = if is_rules(lookup) { lookup & !RULES } else { 0 };
        let walk = std::iter::from_fn(move || {
            let index = next;
            if !(1..self.capacity).contains(&index) {
                return None;
            }
            let mut rule = [0; WORDS];
            for (to, from) in rule.iter_mut().zip(self.words(index)) {
                *to = from.load(Ordering::Acquire);
            }
            next = split(rule[LENGTHS + 1]).0;
            Some((index, rule))
        });
        walk.take(RULES_MAX)
    }

    /// The rules of a lookup id, one after another, that concern packets between two addresses; a table's id is one for all packets.
    pub(crate) fn concerning(&self, lookup: u32, from: IpAddr, to: IpAddr) -> Vec<Rule> {
        if !is_rules(lookup) {
            return vec![Rule { from: None, to: None, inverted: false, then: RuleAction::Table(lookup) }];
        }
        let (mut reported, mut jumped) = (Vec::new(), None);
        for (index, rule) in self.chain(lookup) {
            if jumped.is_some_and(|target| target != index) {
                continue;
            }
            jumped = None;
            let (lengths, target) = split(rule[LENGTHS]);
            let [from_len, to_len, ..] = lengths.to_ne_bytes();
            let selected = within(bits(from), [rule[0], rule[1]], from_len)
                && within(bits(to), [rule[2], rule[3]], to_len);
            if selected == has(&rule, Flags::TL_RULE_NOT) {
                continue;
            }
            if has(&rule, Flags::TL_RULE_GOTO) {
                jumped = Some(target);
            } else {
                reported.push(decode(&rule, from.is_ipv4()));
            }
        }
        reported
    }
}

/// The rules of this dataplane, written by their one owner.
#[derive(Debug)]
pub struct Rules {
    map: RuleMap,
    grace: ReaderGrace,
    free: Vec<u32>,
    limbo: VecDeque<(u64, Vec<u32>)>,
    /// The policies that were made: by their lookup ids, each rule's place and words.
    made: BTreeMap<u32, Vec<(u32, [u64; WORDS])>>,
    /// The places that the earlier owner used.
    inherited: Vec<u32>,
}

impl Rules {
    /// Takes the map over; rules that are set stay so until [`Rules::release_inherited`].
    pub(crate) fn new(map: RuleMap, grace: ReaderGrace) -> Self {
        let (inherited, free) = (1..map.capacity).rev().partition(|index| map.is_used(*index));
        Self { map, grace, free, limbo: VecDeque::new(), made: BTreeMap::new(), inherited }
    }

    /// A policy in which these rules decide one after another. No packet meets it before a port or an action names it. Waits for a
    /// grace period only when all that is free has just been released. Fails when there are none or too many
    /// ([`RULES_MAX`]), one goes back, or no room is left.
    pub fn make(&mut self, rules: &[Rule]) -> Result<u32> {
        let backwards = |(at, rule): (usize, &Rule)| matches!(rule.then, RuleAction::GoTo(to) if to <= at);
        if rules.iter().enumerate().any(backwards) {
            return Err(Error::argument("a rule goes to one that is not after it"));
        }
        if !(1..=RULES_MAX).contains(&rules.len()) {
            return Err(Error::argument(format!("{} rules: must be 1 to {RULES_MAX}", rules.len())));
        }
        self.reclaim();
        while self.free.len() < rules.len()
            && let Some((ticket, _)) = self.limbo.front()
        {
            self.grace.wait(*ticket);
            self.reclaim();
        }
        let Some(rest) = self.free.len().checked_sub(rules.len()) else {
            return Err(Error::Bpf(trieline_bpf::Error::Full {
                what: "rule",
                capacity: self.map.capacity - 1,
            }));
        };
        let places: Vec<u32> = self.free.drain(rest..).collect();
        let place = |at: usize| places.get(at).copied().unwrap_or(0);
        let encoded = rules.iter().enumerate().map(|(at, rule)| encode(rule, place(at + 1), place));
        let made: Vec<_> = places.iter().copied().zip(encoded).collect();
        self.write(&made);
        let lookup = place(0) | RULES;
        self.made.insert(lookup, made);
        Ok(lookup)
    }

    fn write(&self, made: &[(u32, [u64; WORDS])]) {
        for (index, rule) in made {
            for (to, from) in self.map.words(*index).iter().zip(rule) {
                to.store(*from, Ordering::Release);
            }
        }
    }

    /// Rules that are not as they were made.
    pub(crate) fn damage(&self) -> Vec<Damage> {
        let mut damaged = Vec::new();
        for (lookup, made) in &self.made {
            for (nth, (index, rule)) in made.iter().enumerate() {
                let found: Vec<u64> =
                    self.map.words(*index).iter().map(|word| word.load(Ordering::Acquire)).collect();
                if found != rule {
                    let name = format!("rule {} of lookup id {lookup:#x}", nth + 1);
                    let text = |words: &[u64]| Some(format!("{words:x?}"));
                    damaged.push(Damage::new(name, text(rule), text(&found)));
                }
            }
        }
        damaged
    }

    /// Writes all rules once more.
    pub(crate) fn repair(&mut self) {
        self.made.values().for_each(|made| self.write(made));
    }

    /// Gives a lookup id back, which nothing may name any more. Its rules are used again after a grace period.
    pub fn release(&mut self, lookup: u32) {
        let made = self.made.remove(&lookup).into_iter().flatten();
        self.retire(made.map(|(index, _)| index).collect());
    }

    /// After a restart, once nothing names the lookup ids of the owner before: releases them.
    pub fn release_inherited(&mut self) {
        let inherited = std::mem::take(&mut self.inherited);
        self.retire(inherited);
    }

    fn retire(&mut self, indices: Vec<u32>) {
        if !indices.is_empty() {
            let ticket = self.grace.begin();
            self.limbo.push_back((ticket, indices));
        }
    }

    /// Takes back what a grace period has freed; whether something still waits. Does not block.
    pub fn reclaim(&mut self) -> bool {
        if self.limbo.is_empty() {
            return false;
        }
        let passed = self.grace.passed();
        while let Some((_, indices)) = self.limbo.pop_front_if(|(ticket, _)| *ticket <= passed) {
            for index in indices {
                self.map.words(index).iter().for_each(|word| word.store(0, Ordering::Release));
                self.free.push(index);
            }
        }
        !self.limbo.is_empty()
    }
}
