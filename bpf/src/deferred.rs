//! Programs that hand a part of themselves to a process: it may sleep there, whatever the program is.

use std::io;

use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::{Btf, TypeId};
pub use libbpf_rs::libbpf_sys::bpf_insn;
use libbpf_rs::libbpf_sys::{BPF_CALL, BPF_JMP, BPF_PSEUDO_KFUNC_CALL};

use crate::error::{Error, Result};

/// Kernel functions that take such a callback begin with these: work queues (Linux 6.10), task work (6.18). A timer's callback is none:
/// it runs in a softirq.
const TAKERS: [&str; 2] = ["bpf_wq_set_callback", "bpf_task_work_schedule"];

/// The kernel function by which a loaded program of these instructions, as libbpf keeps them, does so; `None` if it does not.
pub fn deferring(instructions: &[bpf_insn]) -> Result<Option<String>> {
    let mut called: Vec<u32> = instructions
        .iter()
        .filter(|one| {
            u32::from(one.code) == BPF_JMP | BPF_CALL && u32::from(one.src_reg()) == BPF_PSEUDO_KFUNC_CALL
        })
        // Those of modules, which have another offset, are not meant.
        .filter(|one| one.off == 0)
        .map(|one| one.imm as u32)
        .collect();
    called.sort_unstable();
    called.dedup();
    if called.is_empty() {
        return Ok(None);
    }
    let fail = |error| Error::kernel("cannot read the kernel's BTF", io::Error::other(error));
    let kernel: Btf<'_> = Btf::from_vmlinux().map_err(fail)?;
    let names = called.into_iter().filter_map(|id| {
        let function = kernel.type_by_id::<Func<'_>>(TypeId::from(id))?;
        Some(function.name()?.to_string_lossy().into_owned())
    });
    let mut takers = names.filter(|name| TAKERS.iter().any(|taker| name.starts_with(taker)));
    Ok(takers.next())
}
