//! The daemon does not start if packets would bypass netfilter's rules, or are not what was sent.

use crate::bypass::scan::Probes;
use crate::bypass::state::Bypass;
use crate::daemon::error::Error;
use crate::daemon::ports::Ports;
use crate::kernel::family;
use crate::kernel::socket::Netlink;
use crate::rib::mirror::Mirror;

/// The address families, and their names.
pub(super) const FAMILIES: [(u8, &str); 2] = [(family::INET, "IPv4"), (family::INET6, "IPv6")];

/// Looks for the first time. Fails if packets would bypass rules without `bypass_netfilter`: unless they are forwarded already.
pub(super) fn check_at_start(
    mirror: &mut Mirror,
    probes: &mut Probes,
    requests: &mut Netlink,
    ports: &Ports,
) -> Result<(), Error> {
    let vrf = mirror.leads_into_vrf();
    let kernel = &mut mirror.kernel;
    kernel.bypass = Bypass::read(probes, requests, kernel, &ports.devices(kernel), vrf);
    if ports.are_attached() {
        return Ok(());
    }
    if let Some((device, offload)) = kernel.bypass.offloads.first() {
        return Err(Error::Offload { device: kernel.name(*device), offload: *offload });
    }
    match FAMILIES.iter().find_map(|(family, _)| kernel.bypass.obstacle(*family)) {
        Some(obstacle) if !kernel.settings.bypass_netfilter => Err(Error::Netfilter { obstacle }),
        _ => Ok(()),
    }
}
