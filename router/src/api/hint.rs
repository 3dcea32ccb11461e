//! Why the packets of a route are the kernel's, where a person can do something about it: in words, with what helps.

use crate::api::verdict_hint;
use crate::fib::cause::Cause;
use crate::kernel::route::{NexthopGroup, kind};
use crate::rib::kernel_state::KernelState;
use crate::xdp::action::PassReason;

/// Why the packets of a nexthop group are the kernel's, and what helps: by the route, or else by the verdict. `None`: the kernel does its own
/// work. `cause`: as it was found when the route was resolved.
pub fn told(
    nhg: &NexthopGroup,
    reason: PassReason,
    cause: Option<&Cause>,
    kernel: &KernelState,
) -> Option<String> {
    if nhg.sid.is_some() && nhg.kind == kind::LOCAL {
        return Some(
            "the route's type is local, and only the kernel runs the behaviour of such a route; enter it without `local`".into(),
        );
    }
    of(nhg, cause, kernel).or_else(|| verdict_hint::of_nhg(nhg, reason, kernel))
}

/// The reason why only the kernel can follow a path, and what helps; `None`: the verdict is enough.
fn of(nhg: &NexthopGroup, cause: Option<&Cause>, kernel: &KernelState) -> Option<String> {
    if let Some(unknown) = nhg.unknown {
        return Some(format!("this version of trieline does not know {unknown}"));
    }
    if nhg.tos != 0 || nhg.source_len != 0 {
        return Some("the route selects by more than the destination (tos, from)".into());
    }
    cause?.text(kernel)
}
