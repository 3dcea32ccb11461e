//! The cost of a native program on a veth: shown before it is attached, and by `node status` and `--check`.

use crate::kernel::link::Link;
use crate::xdp::attachment::AttachMode;

/// The cost of a native program on a veth, and the choice.
pub const CUTS: &str = "native XDP on a veth: Linux then lets its peer send no packets above the MTU; TCP between containers of this host falls to a \
     third of the kernel's rate or less (measured: 0.06 to 0.35); --generic (generic = true) keeps more (0.3 to 1.3), a device that you leave out all";

/// Whether an attachment in `mode` makes the peer of a device send small packets only.
pub fn cuts(link: &Link, mode: AttachMode) -> bool {
    link.kind == "veth" && mode == AttachMode::Native
}

/// Warns of the cost for these devices before trielined attaches to them.
pub fn warn<'l>(links: impl Iterator<Item = &'l Link>, mode: AttachMode) {
    let devices: Vec<&str> = links.filter(|link| cuts(link, mode)).map(|link| link.name.as_str()).collect();
    if !devices.is_empty() {
        tracing::warn!(devices = devices.join(" "), "{CUTS}");
    }
}
