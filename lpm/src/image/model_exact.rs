//! The protocol of hash tables under every order that the memory model allows. It is about a key that comes or goes while a shorter prefix
//! that covers it goes or comes. Run as [`super::model`].
//!
//! One word of a hash table, and one word below the root: the value of the shorter prefix. A lookup may see the states from the last change
//! done before it began up to the last that began before it ended. It is right if its answer is that of one of them. The steps are
//! those of `Table::publish` on one side, of `TableReader::attempt` on the other. Each has a variant that must fail.

use core::sync::atomic::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use loom::thread;
use std::sync::Arc as Plain;
use std::sync::atomic::AtomicUsize as Count;
use std::vec::Vec;

/// Set in the key's word if the key is there; the other bits are its value, or a number.
const THERE: u32 = 1 << 31;

struct Table {
    key: AtomicU32,
    cover: AtomicU32,
    /// Changes begun, and changes done.
    begun: AtomicUsize,
    done: AtomicUsize,
}

/// A change of the key and of what covers it; 0 = none, None = as it is.
#[derive(Clone, Copy, Debug)]
struct Step {
    key: Option<u32>,
    cover: Option<u32>,
}

const fn key(value: u32) -> Step {
    Step { key: Some(value), cover: None }
}

const fn cover(value: u32) -> Step {
    Step { key: None, cover: Some(value) }
}

const fn both(key: u32, cover: u32) -> Step {
    Step { key: Some(key), cover: Some(cover) }
}

/// The product's protocol, or a variant that must fail.
#[derive(Clone, Copy)]
struct Protocol {
    /// A reader looks at the key's word once more, after its walk.
    looks_again: bool,
    /// The word of a key that goes holds what it never held.
    numbers: bool,
    /// A key comes before its cover goes, and goes after its cover has come.
    orders: bool,
    /// The reader's first load of the key's word.
    first: Ordering,
    /// The reader's load of the cover.
    load: Ordering,
    /// The writer's store of the cover.
    store: Ordering,
}

const PRODUCT: Protocol = Protocol {
    looks_again: true,
    numbers: true,
    orders: true,
    first: Acquire,
    load: Acquire,
    store: Release,
};

/// The answers of each state; the first has a cover of value 1 and no key.
fn states(steps: &[Step]) -> Vec<u32> {
    let (mut own, mut cover) = (0, 1);
    let mut states = Vec::from([1]);
    for step in steps {
        (own, cover) = (step.key.unwrap_or(own), step.cover.unwrap_or(cover));
        states.push(if own != 0 { own } else { cover });
    }
    states
}

impl Table {
    fn lookup(&self, protocol: Protocol) -> u32 {
        loop {
            let seen = self.key.load(protocol.first);
            if seen & THERE != 0 {
                return seen & !THERE;
            }
            let cover = self.cover.load(protocol.load);
            if !protocol.looks_again || self.key.load(Acquire) == seen {
                return cover;
            }
            thread::yield_now();
        }
    }

    fn change(&self, step: Step, number: u32, protocol: Protocol) {
        let vacated = if protocol.numbers { number } else { 0 };
        let store_key = |key: u32| self.key.store(if key != 0 { key | THERE } else { vacated }, Release);
        let store_cover = || step.cover.into_iter().for_each(|cover| self.cover.store(cover, protocol.store));
        match step.key {
            Some(key) if (key != 0) == protocol.orders => {
                store_key(key);
                store_cover();
            }
            Some(key) => {
                store_cover();
                store_key(key);
            }
            None => store_cover(),
        }
    }
}

/// Runs one lookup beside the steps; returns the number of runs in which it saw another state than the first.
fn check(protocol: Protocol, steps: &'static [Step]) -> usize {
    let seen = Plain::new(Count::new(0));
    let count = Plain::clone(&seen);
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(4);
    model.check(move || {
        let table = loom::sync::Arc::new(Table {
            key: AtomicU32::new(0),
            cover: AtomicU32::new(1),
            begun: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        });
        let states = states(steps);
        let reader = {
            let (table, count) = (table.clone(), Plain::clone(&count));
            thread::spawn(move || {
                let first = table.done.load(SeqCst);
                let answer = table.lookup(protocol);
                let last = table.begun.load(SeqCst);
                assert!(states[first..=last].contains(&answer), "{answer} in states {first} to {last}");
                count.fetch_add(usize::from(answer != states[0]), Relaxed);
            })
        };
        for (at, step) in steps.iter().enumerate() {
            table.begun.store(at + 1, SeqCst);
            table.change(*step, at as u32 + 1, protocol);
            table.done.store(at + 1, SeqCst);
        }
        reader.join().unwrap();
    });
    seen.load(Relaxed)
}

static SEQUENCES: [&[Step]; 5] = [
    &[key(5), cover(0)],
    &[key(5), cover(0), cover(3), key(0)],
    &[both(5, 0)],
    &[key(5), cover(0), both(0, 4)],
    &[key(5), cover(2), key(6), cover(3)],
];

#[test]
fn every_answer_is_that_of_a_state() {
    for steps in SEQUENCES {
        let seen = check(PRODUCT, steps);
        std::println!("{steps:?}: another state in {seen} cases");
        assert!(seen > 0, "the model never comes to where it matters");
    }
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_word_is_not_looked_at_again() {
    check(Protocol { looks_again: false, ..PRODUCT }, SEQUENCES[0]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_a_key_that_goes_leaves_the_word_as_it_was() {
    check(Protocol { numbers: false, ..PRODUCT }, SEQUENCES[1]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_a_cover_goes_before_its_key_comes() {
    check(Protocol { orders: false, ..PRODUCT }, SEQUENCES[2]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_a_key_goes_before_its_cover_comes() {
    check(Protocol { orders: false, ..PRODUCT }, SEQUENCES[3]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_word_is_looked_at_again_before_the_walk() {
    check(Protocol { load: Relaxed, ..PRODUCT }, SEQUENCES[0]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_the_walk_begins_before_the_word_is_seen() {
    check(Protocol { first: Relaxed, ..PRODUCT }, SEQUENCES[3]);
}

#[test]
#[should_panic(expected = "in states")]
fn it_fails_where_a_cover_is_seen_gone_before_its_key_is_seen() {
    check(Protocol { store: Relaxed, ..PRODUCT }, SEQUENCES[0]);
}
