//! The experiments by name.

pub mod contest;
pub mod engines;
pub mod forward;
mod hooked;
pub mod map_curve;
pub mod map_free;
pub mod map_ops;
pub mod map_tables;
pub mod structure;
pub mod structures;
pub mod trace_hooks;
pub mod trace_overhead;
pub mod traffic;
pub mod tries;

/// Name and purpose of each.
pub const LIST: [(&str, &str); 10] = [
    ("engines", "trieline's tables in user space against Poptrie, DPDK's FIBs, DIR-24-8 and Rust crates"),
    ("map-curve", "lookups in LPM_TRIE and trieline by the number of entries, beside the published curve"),
    (
        "map-free",
        "CPU time and longest stall of freeing LPM_TRIE and trieline, whole and a table beside a live one",
    ),
    ("map-ops", "lookup, update, delete and free of LPM_TRIE and trieline beside the published figures"),
    ("map-tables", "LPM_TRIE against trieline on the same tables, per packet and in a loop"),
    (
        "structures",
        "every candidate for the image's structure on every kind of table: memory, time, lines touched",
    ),
    ("trace-hooks", "what a hook on messages costs by its kind, by what it does, and to others"),
    (
        trace_overhead::NAME,
        "what ways to take times inside a broker add to a message's way: the paper's experiment, whole",
    ),
    ("tries", "the classic tries by their thresholds against the kernel's routes and trieline, one core"),
    ("forward", "IPv4, IPv6, decapsulation and encapsulation through the kernel and through XDP"),
];
