//! The structs and numbers of `bpf/intf.h`, by their names in C: generated from the BTF of the compiled hooks.

#[allow(
    missing_docs,
    dead_code,
    clippy::all,
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::undocumented_unsafe_blocks,
    unsafe_op_in_unsafe_fn
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/trace.skel.rs"));
}
pub(crate) use generated::types::{
    tr_config, tr_cpu, tr_flags, tr_identity, tr_inside, tr_limits, tr_payload, tr_point, tr_record, tr_ring,
    tr_stamp, tr_stamps, tr_traced, tr_transport, tr_who,
};
