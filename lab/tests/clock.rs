//! The clock that the lab trusts: a BPF program's own, at its first and at its last packet. The caller's clock, which also counts
//! what the system call sleeps before the first packet, must say the same of every *further* packet.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use trieline_lab::{
    experiments::structure::{Mode, Structure, Timed},
    netns,
    tables::generate,
};
use trieline_testbed::needs_root;

/// The least disturbed of some calls.
fn shortest(structure: &Structure, count: u32) -> Timed {
    let calls = (0..7).map(|_| structure.time_empty(Mode::Packet, count).unwrap());
    calls.min_by_key(|timed| timed.span.outside()).unwrap()
}

#[test]
fn both_clocks_agree_about_further_packets() {
    needs_root!();
    netns::measure_here().unwrap();
    let entries: Vec<_> = generate::hosts(16).into_iter().zip(1..).collect();
    let structure = Structure::lpm_trie(&entries, &[0]).unwrap();
    let (few, many) = (shortest(&structure, 1 << 20), shortest(&structure, 1 << 24));
    let further = (many.span.outside().as_secs_f64() - few.span.outside().as_secs_f64()) * 1e9
        / (many.lookups - few.lookups) as f64;
    eprintln!(
        "empty program: {:.2} ns a packet by its own clock over 2^20, {:.2} over 2^24; {further:.2} a further packet by the \
         caller's; of a call {:?} before the first packet, {:?} after the last",
        few.ns(),
        many.ns(),
        few.span.before,
        few.span.after
    );
    // Other people's work on this machine is the tolerance.
    assert!((many.ns() / further - 1.0).abs() < 0.25, "{} against {further}", many.ns());
}
