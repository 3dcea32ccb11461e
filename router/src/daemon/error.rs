//! The reasons why a daemon cannot run.

use crate::api::instance;
use crate::kernel::ethtool::Offload;
use crate::{filter, sid_hook};

/// The state of a daemon after another program has removed its tables.
pub(super) const DETACHED: &str =
    "detached (`trieline node detach`): the kernel forwards alone until you restart trielined";

/// Why a daemon cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The namespace has no such device.
    #[error("{name}: no such device in this network namespace")]
    NoDevice {
        /// As configured.
        name: String,
    },
    /// Forwarded packets have to meet netfilter's rules.
    #[error(
        "{obstacle}: packets that XDP forwards would bypass it; remove it, or accept that: bypass_netfilter = true \
         (--bypass-netfilter)"
    )]
    Netfilter {
        /// The rules.
        obstacle: String,
    },
    /// A device's packets are not what was sent.
    #[error("{device}: {} {}; ethtool -K {device} {} off", offload.name(), offload.harm(), offload.name())]
    Offload {
        /// Its name.
        device: String,
        /// Because of this.
        offload: Offload,
    },
    /// Another daemon, or no place for the pins.
    #[error(transparent)]
    Instance(#[from] instance::Error),
    /// The kernel.
    #[error(transparent)]
    Netlink(#[from] crate::kernel::socket::Error),
    /// The dataplane.
    #[error(transparent)]
    Dataplane(#[from] crate::xdp::error::Error),
    /// The image.
    #[error(transparent)]
    Publish(#[from] crate::fib::publish::Error),
    /// A filter.
    #[error(transparent)]
    Filter(#[from] filter::Error),
    /// A SID hook.
    #[error(transparent)]
    SidHook(#[from] sid_hook::Error),
    /// Another program has removed its tables.
    #[error("{DETACHED}")]
    Detached,
    /// A second reload came before trielined followed the first.
    #[error("another reload came before this one was done")]
    Overtaken,
    /// The control socket.
    #[error("control socket: {0}")]
    Socket(#[from] std::io::Error),
}

/// Whether the kernel had no memory for something.
pub(super) fn is_out_of_memory(error: &Error) -> bool {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let mut system = causes.filter_map(|error| error.downcast_ref::<std::io::Error>());
    system.any(|error| error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()))
}
