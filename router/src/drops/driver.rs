//! Counters of drivers (`ethtool -S`), for kernels that let no program count: losses of frames that XDP redirected to a device.
//!
//! A driver counts what any XDP program of any network namespace redirects to its device, since the driver was loaded. The command reads
//! them when somebody asks; the daemon does not.

use std::io;
use std::process::Command;

use super::counts::{AfterRedirect, DropCount, EgressCount, Source};

/// The reason that metrics and JSON have for losses that a driver counted.
const REASON: &str = "driver";

/// Whether a driver counts lost frames under this name. docs/operation.md lists the drivers.
fn counts_losses(name: &str) -> bool {
    // veth: tx_queue_0_xdp_xmit_errors; gve: tx_xdp_xmit_errors[0]; mvneta, mvpp2, mtk_eth_soc: tx_xdp_xmit_errors.
    let name = name.split('[').next().unwrap_or_default();
    let is_xmit_error = name.starts_with("tx") && name.ends_with("xdp_xmit_errors");
    // virtio_net: tx_queue_0_xdp_tx_drops, tx0_xdp_tx_drops in newer ones.
    let is_tx_drop = name.starts_with("tx") && name.ends_with("xdp_tx_drops");
    // Not mlx5's tx_xdp_full, which grows by one for all frames of a bulk.
    is_xmit_error || is_tx_drop
}

/// The sum of the lost frames in what `ethtool -S` printed; `None`: the driver does not count them.
fn losses(printed: &str) -> Option<u64> {
    let counters = printed.lines().filter_map(|line| line.trim().rsplit_once(": "));
    let losses = counters.filter(|(name, _)| counts_losses(name));
    losses.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).reduce(u64::saturating_add)
}

/// The lost frames of a device of this thread's network namespace, as its driver counts them.
fn read(dev: &str) -> Result<u64, String> {
    let output = Command::new("ethtool").args(["-S", dev]).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "ethtool is not installed".to_owned(),
        _ => format!("cannot run ethtool: {error}"),
    })?;
    losses(&String::from_utf8_lossy(&output.stdout))
        .ok_or_else(|| format!("the driver of {dev} does not count them"))
}

impl AfterRedirect {
    /// Reads the counters of the drivers of these devices if no program at a tracepoint counts.
    pub fn or_drivers<'a>(self, devices: impl IntoIterator<Item = (&'a str, u32)>) -> Self {
        if self.source.is_some() {
            return self;
        }
        let mut unknown: Vec<String> = self.unknown.into_iter().collect();
        let mut counted = Vec::new();
        for (dev, ifindex) in devices {
            match read(dev) {
                Ok(packets) => counted.push(EgressCount {
                    dev: Some(dev.to_owned()),
                    ifindex,
                    sent: None,
                    drops: vec![DropCount { reason: REASON.into(), packets }],
                }),
                Err(why) if !unknown.contains(&why) => unknown.push(why),
                Err(_) => {}
            }
        }
        let source = (!counted.is_empty()).then_some(Source::Drivers);
        Self {
            source,
            unknown: (!unknown.is_empty()).then(|| unknown.join("; ")),
            devices: counted,
            former: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_found_by_their_names() {
        let of = |lines: &str| losses(&format!("NIC statistics:\n{lines}"));
        assert_eq!(
            of(
                "     tx_queue_0_xdp_xmit: 9\n     tx_queue_0_xdp_xmit_errors: 2\n     tx_queue_1_xdp_xmit_errors: 3"
            ),
            Some(5)
        );
        assert_eq!(of("     tx_xdp_full: 1\n     tx_xdp_err: 1"), None, "not one a frame");
        assert_eq!(of("     tx0_xdp_tx_drops: 4\n     tx1_xdp_tx_drops: 0"), Some(4));
        assert_eq!(of("     tx_xdp_xmit_errors[0]: 1\n     tx_xdp_xmit_errors[1]: 1"), Some(2));
        assert_eq!(of("     rx_xdp_tx_errors: 4\n     tx_errors: 4"), None, "no loss of a redirected frame");
    }
}
