//! Numbers for next hops: routes name where to go in words, a table holds values.

use super::format::Format;
use super::list::PrefixList;
use crate::IpPrefix;
use crate::image::layout::VALUE_MAX;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::string::String;
use std::vec::Vec;

/// Routes as they are read. Of several routes to one prefix the first (printed first: the best metric) counts.
#[derive(Debug, Default)]
pub(super) struct Hops {
    routes: Vec<(IpPrefix, usize)>,
    seen: HashSet<IpPrefix>,
    hops: Vec<(String, Option<u32>)>,
    numbers: HashMap<String, usize>,
}

impl Hops {
    /// Adds a route to `hop`; `nhid` is the id of its next hop object, if it has one.
    pub fn push(&mut self, prefix: IpPrefix, hop: String, nhid: Option<u32>) {
        if !self.seen.insert(prefix) {
            return;
        }
        let next = self.hops.len();
        let at = *self.numbers.entry(hop.clone()).or_insert_with(|| {
            self.hops.push((hop, nhid));
            next
        });
        self.routes.push((prefix, at));
    }

    /// The list. Where every route has an nhid, its value is that; otherwise next hops are numbered 1, 2, … as they appeared.
    pub fn finish(self, format: Format) -> PrefixList {
        let id = |nhid: &Option<u32>| nhid.filter(|id| (1..=VALUE_MAX).contains(id));
        let ids: Option<Vec<u32>> = self.hops.iter().map(|(_, nhid)| id(nhid)).collect();
        let values = ids.unwrap_or_else(|| (1..=self.hops.len() as u32).collect());
        let mut list = PrefixList::new(format);
        for (prefix, at) in self.routes {
            list.prefixes.push(prefix, Some(values[at]));
        }
        list.names = BTreeMap::new();
        for ((hop, _), value) in self.hops.into_iter().zip(values) {
            list.names.entry(value).or_insert(hop);
        }
        list
    }
}
