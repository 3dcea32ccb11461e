//! Traffic control: queueing disciplines that the operator chose, and filters on packets that come in or go out.

use super::attribute::{Attributes, FLAG_DUMP, Request, read_text, read_u32};
use super::message;
use super::socket::{Error, Netlink};
use std::collections::{BTreeMap, BTreeSet};

/// Traffic control of one device.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Kinds of the queueing disciplines on its way out that are not the ones it came with.
    pub disciplines: BTreeSet<String>,
    /// It has filters or programs on packets that come in.
    pub ingress: bool,
    /// It has filters or programs on packets that go out.
    pub egress: bool,
}

/// `struct tcmsg`: family, device, handle, parent, more.
const FIXED: usize = 20;
const DEVICE_AT: usize = 4;
const HANDLE_AT: usize = 8;

/// `TC_H_CLSACT` with `TC_H_MIN_INGRESS` and `TC_H_MIN_EGRESS`
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;

/// Decodes a queueing discipline that the operator chose: its device and kind. One that a device came with has no handle.
pub(crate) fn decode_discipline(payload: &[u8]) -> Option<(u32, String)> {
    let device = read_u32(payload.get(DEVICE_AT..)?)?;
    let handle = read_u32(payload.get(HANDLE_AT..)?)?;
    let kind = read_text(Attributes::new(payload.get(FIXED..)?).find(1)?);
    (handle != 0).then_some((device, kind))
}

fn request(kind: u16, device: u32, parent: u32) -> Request {
    let numbers = [0, device, 0, parent, 0].map(u32::to_ne_bytes);
    Request::new(kind, FLAG_DUMP, numbers.as_flattened())
}

/// Asks for the traffic control of `devices`; those without any are left out. O(disciplines + filters).
pub fn read(socket: &mut Netlink, devices: &BTreeSet<u32>) -> Result<BTreeMap<u32, Traffic>, Error> {
    let mut found: BTreeMap<u32, Traffic> = BTreeMap::new();
    let mut hooks = BTreeSet::new();
    socket.dump(request(message::GET_DISCIPLINE, 0, 0), |message| {
        let Some((device, kind)) = decode_discipline(message.payload) else { return };
        if !devices.contains(&device) {
            return;
        }
        // These two queue nothing: filters hang on them.
        if matches!(kind.as_str(), "clsact" | "ingress") {
            hooks.insert(device);
        } else {
            found.entry(device).or_default().disciplines.insert(kind);
        }
    })?;
    for device in hooks {
        let mut has = |parent| -> Result<bool, Error> {
            let mut any = false;
            socket.dump(request(message::GET_FILTER, device, parent), |_| any = true)?;
            Ok(any)
        };
        let (ingress, egress) = (has(INGRESS)?, has(EGRESS)?);
        if ingress || egress {
            let traffic = found.entry(device).or_default();
            (traffic.ingress, traffic.egress) = (ingress, egress);
        }
    }
    for device in devices {
        let (ingress, egress) = crate::kernel::kernel_hooks::tcx_programs(*device);
        if ingress + egress > 0 {
            let traffic = found.entry(*device).or_default();
            traffic.ingress |= ingress > 0;
            traffic.egress |= egress > 0;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::attribute::HEADER;

    #[test]
    fn only_disciplines_with_a_handle_were_chosen() {
        let reported = |handle: u32, kind: &[u8]| {
            let numbers = [0, 7, handle, 0xffff_ffff, 1].map(u32::to_ne_bytes);
            let message = Request::new(0, 0, numbers.as_flattened()).attribute(1, kind).finish(0);
            decode_discipline(&message[HEADER..])
        };
        assert_eq!(reported(0x8001_0000, b"tbf\0"), Some((7, "tbf".into())));
        assert_eq!(reported(0, b"noqueue\0"), None);
        assert_eq!(decode_discipline(&[0; 19]), None);
    }
}
