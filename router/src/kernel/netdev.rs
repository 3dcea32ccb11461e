//! XDP features of devices' drivers (family `netdev` of generic netlink, Linux 6.3): one dump of all devices, then the kernel's own

use super::attribute::{FLAG_DUMP, Request, read_u32};
use super::generic;
use super::socket::{Error, Message, Netlink, Received};
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};

/// `NETDEV_CMD_DEV_GET`, also the command of its answers.
const DEV_GET: u8 = 1;
/// `NETDEV_CMD_DEV_DEL_NTF`
const DEV_GONE: u8 = 3;
/// The last command about devices, `NETDEV_CMD_DEV_CHANGE_NTF`.
const DEV_CHANGED: u8 = 4;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;

/// `NETDEV_XDP_ACT_NDO_XMIT`
const NDO_XMIT: u64 = 4;
/// `NETDEV_XDP_ACT_NDO_XMIT_SG`
const NDO_XMIT_SG: u64 = 64;

/// XDP frames that a device takes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Takes {
    /// Frames that native XDP redirects to it. A device that does not take them loses them.
    pub redirects: bool,
    /// Also those in several buffers.
    pub frags: bool,
}

/// The XDP features of all devices, followed.
#[derive(Debug)]
pub struct Features {
    requests: Netlink,
    events: Netlink,
    family: u16,
    known: HashMap<u32, u64>,
}

/// Takes a message over; whether something changed.
fn apply(known: &mut HashMap<u32, u64>, family: u16, message: Message<'_>) -> bool {
    let command = message.payload.first().copied().unwrap_or_default();
    if message.kind != family || !(DEV_GET..=DEV_CHANGED).contains(&command) {
        return false;
    }
    let (mut device, mut features) = (None, 0);
    for (kind, value) in generic::attributes(message.payload) {
        match kind {
            IFINDEX => device = read_u32(value),
            XDP_FEATURES => features = value.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes)),
            _ => {}
        }
    }
    let Some(device) = device else { return false };
    if command == DEV_GONE {
        known.remove(&device).is_some()
    } else {
        known.insert(device, features) != Some(features)
    }
}

impl Features {
    /// Asks for all devices and listens from now on; `None`: this kernel does not tell (before Linux 6.3).
    pub fn start(buffer: usize) -> Result<Option<Self>, Error> {
        let Some((requests, family)) = generic::family(b"netdev\0")? else { return Ok(None) };
        let Some(group) = generic::group(b"netdev\0", "mgmt")? else { return Ok(None) };
        let mut events = Netlink::generic()?;
        events.subscribe(&[group], buffer)?;
        let mut features = Self { requests, events, family, known: HashMap::new() };
        features.send_request()?;
        Ok(Some(features))
    }

    fn send_request(&mut self) -> Result<(), Error> {
        let (mut known, family) = (HashMap::new(), self.family);
        let request = Request::new(family, FLAG_DUMP, &[DEV_GET, 1, 0, 0]);
        self.requests.dump(request, |message| {
            apply(&mut known, family, message);
        })?;
        self.known = known;
        Ok(())
    }

    /// Reads what is queued; whether something changed.
    pub fn follow(&mut self) -> Result<bool, Error> {
        let (known, family, mut changed) = (&mut self.known, self.family, false);
        loop {
            match self.events.changes(64, |message| changed |= apply(known, family, message))? {
                Received::All => return Ok(changed),
                Received::More => {}
                Received::Overrun => {
                    while self.events.changes(64, |_| {})? != Received::All {}
                    self.send_request()?;
                    return Ok(true);
                }
            }
        }
    }

    /// The frames that a device takes.
    pub fn of(&self, device: u32) -> Takes {
        let features = self.known.get(&device).copied().unwrap_or_default();
        Takes { redirects: features & NDO_XMIT != 0, frags: features & NDO_XMIT_SG != 0 }
    }
}

impl AsFd for Features {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attribute::HEADER;

    #[test]
    fn features_follow_the_messages() {
        const FAMILY: u16 = 0x20;
        let mut known = HashMap::new();
        let mut reported = |kind: u16, command: u8, features: u64| {
            let request = Request::new(0, 0, &[command, 1, 0, 0])
                .attribute(IFINDEX, &7_u32.to_ne_bytes())
                .attribute(XDP_FEATURES, &features.to_ne_bytes());
            let payload = request.finish(0).split_off(HEADER);
            let changed =
                apply(&mut known, kind, Message { kind: FAMILY, flags: 0, sequence: 0, payload: &payload });
            (changed, known.get(&7).copied())
        };
        assert_eq!(reported(FAMILY, DEV_GET, NDO_XMIT), (true, Some(NDO_XMIT)));
        assert_eq!(reported(FAMILY, DEV_CHANGED, NDO_XMIT), (false, Some(NDO_XMIT)));
        assert_eq!(reported(FAMILY, 5, 0), (false, Some(NDO_XMIT)), "of page pools");
        assert_eq!(reported(FAMILY + 1, DEV_CHANGED, 0), (false, Some(NDO_XMIT)), "of another family");
        assert_eq!(reported(FAMILY, DEV_CHANGED, 0), (true, Some(0)));
        assert_eq!(reported(FAMILY, DEV_GONE, 0), (true, None));
    }
}
