//! The second protocol under every order that the memory model allows. It is about the answer of a lookup that found nothing while
//! prefixes come and go, the default route changes, and its root is replaced. Run as [`super::model`].
//!
//! Two roots that lead to one shared word (a leaf's code, changed in place), one fallback each. The writer makes changes that each
//! have a number. A lookup may see the states from the last change done before it began up to the last that began before it ended. It is
//! right if its answer is that of one of them. The steps are those of `Table::publish`, `Root::change_fallback` and `Image::publish_root`
//! on one side, of `TableReader::lookup` and `again` on the other. Each has a variant that must fail.

use super::layout::REPLACED;
use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use loom::thread;
use std::sync::Arc as Plain;
use std::sync::atomic::AtomicUsize as Count;
use std::vec::Vec;

/// The answer for one address.
struct Table {
    /// Which root is published.
    directory: AtomicU32,
    fallbacks: [AtomicU32; 2],
    /// The word below both roots: the value of the address's own prefix, 0 = none.
    shared: AtomicU32,
    /// Changes begun, and changes done.
    begun: AtomicUsize,
    done: AtomicUsize,
}

/// A change of the one prefix, or of the default route.
#[derive(Clone, Copy, Debug)]
enum Step {
    Prefix(u32),
    Fallback(u32),
    /// The default route goes, and the image has no memory for another root: after a grace period, in place.
    Gone,
}
use Step::{Fallback, Gone, Prefix};

/// The product's protocol, or a variant that must fail.
#[derive(Clone, Copy)]
struct Protocol {
    /// A replaced root gets a mark before anything below changes again.
    marks: bool,
    /// A reader that finds the mark looks once more.
    looks_again: bool,
    /// The other fallback comes with a root of its own.
    copies: bool,
    /// The reader's load of the shared word: keeps the fallback's behind it.
    load: Ordering,
    /// The writer's store of the shared word: keeps the mark before it.
    store: Ordering,
    /// Nothing is stored in place before all lookups have ended that began before.
    waits: bool,
}

const PRODUCT: Protocol =
    Protocol { marks: true, looks_again: true, copies: true, load: Acquire, store: Release, waits: true };

/// The answers of each state, the first being that of fallback 1 and no prefix.
fn states(steps: &[Step]) -> Vec<u32> {
    let (mut prefix, mut fallback) = (0, 1);
    let mut states = Vec::from([1]);
    for step in steps {
        match *step {
            Prefix(value) => prefix = value,
            Fallback(value) => fallback = value,
            Gone => fallback = 0,
        }
        states.push(if prefix != 0 { prefix } else { fallback });
    }
    states
}

impl Table {
    fn new() -> Self {
        Self {
            directory: AtomicU32::new(0),
            fallbacks: [AtomicU32::new(1), AtomicU32::new(0)],
            shared: AtomicU32::new(0),
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        }
    }

    fn lookup(&self, protocol: Protocol) -> u32 {
        loop {
            let root = self.directory.load(Acquire) as usize;
            let value = self.shared.load(protocol.load);
            let fallback = self.fallbacks[root].load(Acquire);
            if fallback & REPLACED == 0 || !protocol.looks_again {
                return if value != 0 { value } else { fallback & !REPLACED };
            }
            thread::yield_now();
        }
    }

    fn change(&self, step: Step, protocol: Protocol) {
        match step {
            Prefix(value) => self.shared.store(value, protocol.store),
            Fallback(value) if !protocol.copies => {
                self.fallbacks[self.directory.load(Relaxed) as usize].store(value, Release);
            }
            Fallback(value) => {
                let old = self.directory.load(Relaxed);
                self.fallbacks[1 - old as usize].store(value, Relaxed);
                self.directory.swap(1 - old, Ordering::AcqRel);
                if protocol.marks {
                    self.fallbacks[old as usize].fetch_or(REPLACED, Release);
                }
            }
            Gone => self.fallbacks[self.directory.load(Relaxed) as usize].store(0, Release),
        }
    }
}

/// Runs one lookup, or two, beside the steps; returns the number of runs in which a lookup saw another state than the first.
fn check(protocol: Protocol, lookups: usize, steps: &'static [Step]) -> usize {
    let seen = Plain::new(Count::new(0));
    let count = Plain::clone(&seen);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(move || {
        let table = loom::sync::Arc::new(Table::new());
        let states = states(steps);
        let mut readers = Vec::new();
        // A grace period: lookups that began before it have ended. Before it is a thread of its own, so that it is waited for.
        let waits_at = steps.iter().position(|step| matches!(step, Gone));
        let start = |table: &loom::sync::Arc<Table>| {
            let (table, states, count) = (table.clone(), states.clone(), Plain::clone(&count));
            thread::spawn(move || {
                for _ in 0..lookups {
                    let first = table.done.load(SeqCst);
                    let answer = table.lookup(protocol);
                    let last = table.begun.load(SeqCst);
                    assert!(states[first..=last].contains(&answer), "{answer} in states {first} to {last}");
                    count.fetch_add(usize::from(answer != states[0]), Relaxed);
                }
            })
        };
        readers.push(start(&table));
        for (at, step) in steps.iter().enumerate() {
            if Some(at) == waits_at && protocol.waits {
                readers.drain(..).for_each(|reader| reader.join().unwrap());
                readers.push(start(&table));
            }
            table.begun.store(at + 1, SeqCst);
            table.change(*step, protocol);
            table.done.store(at + 1, SeqCst);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    seen.load(Relaxed)
}

/// A prefix that goes after the default route has changed, and so on.
static SEQUENCES: [&[Step]; 6] = [
    &[Prefix(5), Fallback(3)],
    &[Prefix(5), Fallback(3), Prefix(0)],
    &[Fallback(3), Prefix(5), Prefix(0)],
    &[Prefix(5), Fallback(3), Prefix(6)],
    &[Prefix(5), Gone, Prefix(0)],
    &[Prefix(5), Prefix(0), Gone],
];

#[test]
fn every_answer_is_that_of_a_state() {
    for steps in SEQUENCES {
        let seen = check(PRODUCT, 1, steps);
        std::println!("{steps:?}: another state in {seen} cases");
        assert!(seen > 0, "the model never comes to where it matters");
    }
    check(PRODUCT, 2, SEQUENCES[0]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_without_the_mark() {
    check(Protocol { marks: false, ..PRODUCT }, 1, SEQUENCES[1]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_mark_is_not_looked_at() {
    check(Protocol { looks_again: false, ..PRODUCT }, 1, SEQUENCES[1]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_fallback_changes_in_place() {
    check(Protocol { copies: false, ..PRODUCT }, 1, SEQUENCES[0]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_fallback_is_loaded_before_the_walk() {
    check(Protocol { load: Relaxed, ..PRODUCT }, 1, SEQUENCES[1]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_mark_comes_after_the_next_change() {
    check(Protocol { store: Relaxed, ..PRODUCT }, 1, SEQUENCES[1]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_a_default_route_goes_in_place_without_a_grace_period() {
    check(Protocol { waits: false, ..PRODUCT }, 1, SEQUENCES[4]);
}
