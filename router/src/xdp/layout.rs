//! The structs of `bpf/intf.h` and `image.h`, generated from the object's BTF: written once, in C.

// Generated code is its author's business, not the lints'.
#[allow(
    missing_docs,
    dead_code,
    unused,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::expect_used
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/node.skel.rs"));
}

/// Numbers that are macros in `intf.h`.
#[allow(missing_docs, dead_code)]
mod defines {
    include!(concat!(env!("OUT_DIR"), "/defines.rs"));
}

pub use defines::*;
pub use generated::types::*;
