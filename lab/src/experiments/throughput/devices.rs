//! Two devices of this machine with the node under test between them: what they must be able to do.

use std::os::raw::c_int;

use libbpf_rs::libbpf_sys::{bpf_xdp_query, bpf_xdp_query_opts};
use serde::Deserialize;
use trieline_testbed::command;

use crate::{Error, Result};

/// `NETDEV_XDP_ACT_BASIC` and `NETDEV_XDP_ACT_NDO_XMIT` of linux/netdev.h.
const RECEIVES: u64 = 1 << 0;
const SENDS: u64 = 1 << 2;

/// A device in the calling thread's namespace.
#[derive(Clone, Debug)]
pub(super) struct OwnDevice {
    pub name: String,
    pub index: u32,
    pub mac: [u8; 6],
}

/// As `ip -j link` shows it.
#[derive(Deserialize)]
struct Shown {
    ifindex: u32,
    address: Option<String>,
    operstate: String,
}

impl OwnDevice {
    /// Looks for a device that is up and has a MAC address.
    pub fn named(name: &str) -> Result<OwnDevice> {
        let cannot = |why: &str| Error::Traffic(format!("cannot use device {name}: {why}"));
        let text =
            command::ip(&["-j", "link", "show", "dev", name]).map_err(|_| cannot("it is not there"))?;
        let shown = serde_json::from_str::<Vec<Shown>>(&text).ok().and_then(|shown| shown.into_iter().next());
        let shown = shown.ok_or_else(|| cannot("`ip -j link` does not show it"))?;
        let mac = shown.address.as_deref().and_then(mac).ok_or_else(|| cannot("it has no MAC address"))?;
        if shown.operstate == "DOWN" {
            return Err(cannot("it is down; `ip link set DEV up`, and look at the cable"));
        }
        Ok(OwnDevice { name: name.to_owned(), index: shown.ifindex, mac })
    }

    /// An error unless its driver takes frames that XDP sends.
    pub fn sends(&self) -> Result<()> {
        self.can(SENDS, "its driver has no XDP transmit (ndo_xdp_xmit)")
    }

    /// An error unless its driver runs XDP programs.
    pub fn receives(&self) -> Result<()> {
        self.can(RECEIVES, "its driver runs no XDP programs")
    }

    fn can(&self, feature: u64, why: &str) -> Result<()> {
        let mut options =
            bpf_xdp_query_opts { sz: size_of::<bpf_xdp_query_opts>() as u64, ..Default::default() };
        // SAFETY: libbpf writes no more than the size that the options name, and keeps no pointer.
        let code = unsafe { bpf_xdp_query(self.index as c_int, 0, &raw mut options) };
        if code < 0 {
            let cause = std::io::Error::from_raw_os_error(-code);
            return Err(Error::Io {
                what: format!("cannot ask for the XDP features of {}", self.name),
                cause,
            });
        }
        if options.feature_flags & feature == 0 {
            return Err(Error::Traffic(format!("cannot use device {}: {why}", self.name)));
        }
        Ok(())
    }
}

/// A MAC address as `ip` writes it.
pub fn mac(text: &str) -> Option<[u8; 6]> {
    let bytes: Option<Vec<u8>> =
        text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok().filter(|_| byte.len() == 2)).collect();
    bytes?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mac_addresses() {
        assert_eq!(mac("02:00:00:00:00:ff"), Some([2, 0, 0, 0, 0, 255]));
        for bad in ["", "02:00:00:00:00", "02:00:00:00:00:0g", "2:0:0:0:0:1", "00:00:00:00:00:00:00"] {
            assert_eq!(mac(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        let error = OwnDevice::named("nodev0").unwrap_err().to_string();
        assert_eq!(error, "cannot use device nodev0: it is not there");
    }
}
