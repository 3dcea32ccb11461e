//! The list of structures for each family, and what building one of them yields.

use std::hash::Hash;

use trieline_lpm::Prefix;

use super::{
    dpdk::{self, Fib},
    engine::{Native, Subject},
    rivals::{PrefixTrie, Standard, Treebitmap},
    trieline::Ours,
};
use crate::{
    heap,
    measure::{Samples, thread_seconds},
    rivals::{Dir24, Poptrie},
};

/// Name of the product's own row.
pub const OURS: &str = "trieline";
/// No further build of one structure after so many seconds.
const BUILDS_SECONDS: f64 = 0.6;

type Build<A> = fn(&[Prefix<A>], &[u32]) -> Result<Box<dyn Subject<A>>, String>;

/// A structure by name, and how to build it of the n-th prefix (in order) with the n-th value, or why that cannot be.
pub struct Candidate<A> {
    /// As in a row.
    pub name: &'static str,
    build: Build<A>,
}

/// A family of addresses with its structures.
pub trait Family: Standard + Hash {
    /// All that are measured, ours first.
    fn candidates() -> Vec<Candidate<Self>>;
}

impl Family for u32 {
    fn candidates() -> Vec<Candidate<u32>> {
        let mut all = common();
        all.extend([
            Candidate {
                name: "dir-24-8",
                build: |prefixes, values| {
                    // As small as the values allow.
                    Ok(match Dir24::<u16>::build(prefixes, values) {
                        Ok(table) => Box::new(Native(table)),
                        Err(_) => Box::new(Native(Dir24::<u32>::build(prefixes, values)?)),
                    })
                },
            },
            Candidate {
                name: "dpdk-fib",
                build: |prefixes, values| Ok(Box::new(Fib::build(dpdk::get()?, 2, prefixes, values)?)),
            },
            Candidate {
                name: "dpdk-fib-4b",
                build: |prefixes, values| Ok(Box::new(Fib::build(dpdk::get()?, 4, prefixes, values)?)),
            },
        ]);
        all
    }
}

impl Family for u128 {
    fn candidates() -> Vec<Candidate<u128>> {
        let mut all = common();
        all.push(Candidate {
            name: "dpdk-fib6",
            build: |prefixes, values| Ok(Box::new(Fib::build(dpdk::get()?, 4, prefixes, values)?)),
        });
        all
    }
}

fn common<A: Family>() -> Vec<Candidate<A>>
where
    (A, u8): prefix_trie::Prefix,
{
    vec![
        Candidate {
            name: OURS,
            build: |prefixes, values| match Ours::build(prefixes, values) {
                Ok(table) => Ok(Box::new(Native(table))),
                Err(error) => Err(error.to_string()),
            },
        },
        Candidate {
            name: "poptrie",
            build: |prefixes, values| {
                let valued = prefixes.iter().copied().zip(values.iter().copied());
                Ok(Box::new(Native(Poptrie::build(valued).map_err(|error| error.to_string())?)))
            },
        },
        Candidate {
            name: "prefix-trie",
            build: |prefixes, values| Ok(Box::new(Native(PrefixTrie::build(prefixes, values)))),
        },
        Candidate {
            name: "treebitmap",
            build: |prefixes, values| Ok(Box::new(Native(Treebitmap::build(prefixes, values)))),
        },
    ]
}

/// A structure with what building it took.
pub struct Built<A: Family> {
    /// As in a row.
    pub name: &'static str,
    /// The structure.
    pub subject: Box<dyn Subject<A>>,
    /// Bytes of what a lookup reads.
    pub bytes: u64,
    /// Bytes of everything it keeps; none if they are not counted.
    pub bytes_total: Option<u64>,
    /// Seconds of CPU time: the median of up to three builds.
    pub build_s: f64,
}

impl<A: Family> Built<A> {
    /// Builds it, a fast one three times unless the run is `quick`.
    pub fn new(
        candidate: &Candidate<A>,
        prefixes: &[Prefix<A>],
        values: &[u32],
        quick: bool,
    ) -> Result<Self, String> {
        let mut seconds = Samples::default();
        loop {
            let before = heap::held();
            let began = thread_seconds();
            let subject = (candidate.build)(prefixes, values)?;
            seconds.push(subject.build_seconds().unwrap_or(thread_seconds() - began));
            let spent: f64 = seconds.values().iter().sum();
            if seconds.len() < 3 && spent < BUILDS_SECONDS && !quick {
                continue;
            }
            let counted =
                heap::held().zip(before).map(|(now, before)| now.saturating_sub(before).max(0) as u64);
            let bytes_total =
                subject.bytes_total().or(counted.map(|all| all.saturating_sub(subject.untouched())));
            let bytes = subject.bytes();
            return Ok(Built {
                name: candidate.name,
                subject,
                bytes,
                bytes_total,
                build_s: seconds.median(),
            });
        }
    }
}
