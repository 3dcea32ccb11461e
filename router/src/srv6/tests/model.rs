//! The model's SRv6: endpoints and headends of IPv6 packets, after net/ipv6/seg6_local.c and seg6_iptunnel.c.

use trieline_router::{Action, Adjacency, CsidLengths, Endpoint, Flavours, Headend, Target};

use super::model::*;

type Sent = (&'static str, Vec<u8>);

/// An SRH that names a next segment.
struct Next {
    destination: [u8; 16],
    left: u8,
    /// Bytes of the SRH, and what follows it.
    len: usize,
    next_header: u8,
}

impl Model {
    /// `len`: of the packet; what follows it is padding.
    pub(super) fn seg6(&self, action: &Action, link: &[u8], data: &[u8], len: usize) -> Step<Sent> {
        match action {
            Action::Encaps { adjacency, outer, headend } => {
                next_hop6(data)?;
                let (verdict, next, inner) = if headend.l2 {
                    ("h_encaps_l2", 143, carried(link, &data[..len])?)
                } else {
                    ("h_encaps_ipv6", 41, data[..len].to_vec())
                };
                let packet = under(adjacency, (outer, headend), next, data, inner)?;
                Ok((verdict, framed(adjacency, 0x86dd, &packet)))
            }
            Action::Insert { adjacency, outer } => {
                Ok(("h_insert", inserted(adjacency, outer, &data[..len])?))
            }
            Action::Endpoint { target: Target::Insert { adjacency, outer }, .. } => {
                next_segment(data, len)?;
                Ok(("end_b6", inserted(adjacency, outer, &data[..len])?))
            }
            Action::Endpoint { target: Target::Encaps { adjacency, outer, headend }, .. } => {
                let next = next_segment(data, len)?;
                next_hop6(data)?;
                let mut inner = data[..len].to_vec();
                inner[24..40].copy_from_slice(&next.destination);
                inner[43] = next.left;
                let packet = under(adjacency, (outer, headend), 41, data, inner)?;
                Ok(("end_b6_encaps", framed(adjacency, 0x86dd, &packet)))
            }
            Action::Endpoint { target: Target::Device { ifindex, mtu }, .. } => {
                let (at, next) = decapsulated(data)?;
                if next != 143 {
                    return Err("seg6_headers");
                }
                let inner = data.get(at..len).filter(|inner| inner.len() >= 14).ok_or("seg6_link")?;
                if inner[12] < 6 {
                    return Err("seg6_link");
                }
                let device = Adjacency {
                    ifindex: *ifindex,
                    mtu: *mtu,
                    destination: [0; 6],
                    source: [0; 6],
                    vlan: None,
                };
                fits(&device, inner.len() - 14)?;
                Ok(("end_dx2", inner.to_vec()))
            }
            Action::Endpoint { endpoint, flavours, target } => {
                let adjacency = match target {
                    Target::Adjacency(adjacency) => Some(adjacency),
                    _ => None,
                };
                match endpoint {
                    Endpoint::End => self.end("end", *flavours, None, data, len),
                    Endpoint::EndX => self.end("end_x", *flavours, adjacency, data, len),
                    Endpoint::EndT => self.end("end_t", *flavours, None, data, len),
                    Endpoint::EndDx4 => self.decap4("end_dx4", adjacency, data, len),
                    Endpoint::EndDt4 => self.decap4("end_dt4", None, data, len),
                    Endpoint::EndDx6 => self.decap6("end_dx6", adjacency, data, len),
                    Endpoint::EndDt6 => self.decap6("end_dt6", None, data, len),
                    Endpoint::EndDt46 => match decapsulated(data)? {
                        (_, 4) => self.decap4("end_dt4", None, data, len),
                        _ => self.decap6("end_dt6", None, data, len),
                    },
                    other => panic!("{other:?} has its target above"),
                }
            }
            _ => Err("no_action"),
        }
    }

    fn end(
        &self,
        verdict: &'static str,
        flavours: Flavours,
        adjacency: Option<&Adjacency>,
        data: &[u8],
        len: usize,
    ) -> Step<Sent> {
        let mut out = next_hop6(data)?;
        match argument(flavours, &data[24..40]) {
            Some(destination) => out[24..40].copy_from_slice(&destination),
            None => {
                let next = next_segment(data, len)?;
                out[24..40].copy_from_slice(&next.destination);
                out[43] = next.left;
                if flavours == Flavours::PSP && next.left == 0 {
                    out.drain(40..40 + next.len);
                    out[6] = next.next_header;
                    let payload = (len - 40 - next.len) as u16;
                    out[4..6].copy_from_slice(&payload.to_be_bytes());
                }
            }
        }
        let [_, destination] = addresses6(&out);
        let adjacency = match adjacency {
            Some(adjacency) => adjacency,
            None => match self.route6(destination) {
                Some(Action::Forward(adjacency)) if !special6(destination) => adjacency,
                _ => return Err("seg6_next"),
            },
        };
        let len = len - (data.len() - out.len());
        fits(adjacency, len)?;
        Ok((verdict, framed(adjacency, 0x86dd, &cut(out, len))))
    }

    fn decap4(
        &self,
        verdict: &'static str,
        adjacency: Option<&Adjacency>,
        data: &[u8],
        len: usize,
    ) -> Step<Sent> {
        let (at, 4) = decapsulated(data)? else { return Err("seg6_headers") };
        let inner = data.get(at..).filter(|inner| inner.len() >= 20 && at + 20 <= len).ok_or("seg6_inner")?;
        let total = usize::from(u16::from_be_bytes([inner[2], inner[3]]));
        let [source, destination] = addresses4(inner);
        if inner[0] != 0x45 || inner[8] <= 1 || total < 20 || total > len - at {
            return Err("seg6_inner");
        }
        if special4(source) || special4(destination) {
            return Err("seg6_inner");
        }
        self.foreign(source)?;
        let adjacency = match (adjacency, self.route4(destination)) {
            (Some(adjacency), _) | (None, Some(Action::Forward(adjacency))) => adjacency,
            _ => return Err("seg6_inner_no_route"),
        };
        fits(adjacency, len - at)?;
        let mut inner = next_hop4(inner);
        if self.ecn {
            let own = inner[1] & 3;
            let combined = combined(own, data)?;
            inner[1] ^= own ^ combined;
            // RFC 1624: as much is added to the sum as to the word, so that a wrong checksum stays wrong.
            let sum = !u16::from_be_bytes([inner[10], inner[11]]);
            let sum = u32::from(sum) + 0xffff + u32::from(combined) - u32::from(own);
            let sum = (sum & 0xffff) + (sum >> 16);
            inner[10..12].copy_from_slice(&(!(sum as u16 + (sum >> 16) as u16)).to_be_bytes());
        }
        Ok((verdict, framed(adjacency, 0x0800, &cut(inner, len - at))))
    }

    fn decap6(
        &self,
        verdict: &'static str,
        adjacency: Option<&Adjacency>,
        data: &[u8],
        len: usize,
    ) -> Step<Sent> {
        let (at, 41) = decapsulated(data)? else { return Err("seg6_headers") };
        let inner = data.get(at..).filter(|inner| inner.len() >= 40 && at + 40 <= len).ok_or("seg6_inner")?;
        let total = 40 + usize::from(u16::from_be_bytes([inner[4], inner[5]]));
        let [source, destination] = addresses6(inner);
        if inner[0] >> 4 != 6
            || inner[6] == 0
            || total > len - at
            || special6(source)
            || special6(destination)
        {
            return Err("seg6_inner");
        }
        let mut out = next_hop6(inner).map_err(|_| "seg6_inner")?;
        let adjacency = match (adjacency, self.route6(destination)) {
            (Some(adjacency), _) | (None, Some(Action::Forward(adjacency))) => adjacency,
            _ => return Err("seg6_inner_no_route"),
        };
        fits(adjacency, len - at)?;
        if self.ecn {
            let own = out[1] >> 4 & 3;
            out[1] ^= (own ^ combined(own, data)?) << 4;
        }
        Ok((verdict, framed(adjacency, 0x86dd, &cut(out, len - at))))
    }
}

/// RFC 6040, figure 4: by the inner field, then the outer one; Not-ECT, ECT(1), ECT(0), CE.
pub const ECN: [[Option<u8>; 4]; 4] = [
    [Some(0), Some(0), Some(0), None],
    [Some(1), Some(1), Some(1), Some(3)],
    [Some(2), Some(1), Some(2), Some(3)],
    [Some(3), Some(3), Some(3), Some(3)],
];

/// The inner field after decapsulation of the packet in `rewrite_failed`.
fn combined(own: u8, outer: &[u8]) -> Step<u8> {
    ECN[usize::from(own)][usize::from(outer[1] >> 4 & 3)].ok_or("ecn")
}

/// Where the inner packet begins, and its kind.
fn decapsulated(data: &[u8]) -> Step<(usize, u8)> {
    if data[6] != 43 {
        return Ok((40, data[6]));
    }
    let [next, len, kind, left, last, flags, ..] = data[40..] else { return Err("seg6_headers") };
    let whole = data.len() >= 48 && kind == 4 && flags & 8 == 0;
    let listed =
        usize::from(len) == 2 * (usize::from(last) + 1) && usize::from(left) <= usize::from(last) + 1;
    match left {
        _ if !whole => Err("seg6_headers"),
        0 => Ok((40 + (usize::from(len) + 1) * 8, next)),
        _ if listed => Err("segments_left"),
        _ => Err("seg6_headers"),
    }
}

fn next_segment(data: &[u8], len: usize) -> Step<Next> {
    let extension =
        |next: u8| if matches!(next, 0 | 43 | 44 | 51 | 59 | 60) { "seg6_headers" } else { "no_segment" };
    if data[6] != 43 {
        return Err(extension(data[6]));
    }
    if len < 48 {
        return Err("srh");
    }
    let srh = &data[40..len];
    let (bytes, left, last) = ((usize::from(srh[1]) + 1) * 8, usize::from(srh[3]), usize::from(srh[4]));
    if left == 0 {
        return Err(extension(srh[0]));
    }
    let list = 8 + 16 * (last + 1);
    if srh[2] != 4 || bytes > srh.len() || list > bytes || left > last + 1 {
        return Err("srh");
    }
    if srh[5] & 8 != 0 {
        return Err("seg6_headers");
    }
    let mut tlvs = &srh[list..bytes];
    for walked in 0.. {
        match *tlvs {
            [] => break,
            _ if walked == 16 => return Err("seg6_headers"),
            [_, len, ..] if 2 + usize::from(len) <= tlvs.len() => tlvs = &tlvs[2 + usize::from(len)..],
            _ => return Err("srh"),
        }
    }
    let at = 8 + 16 * (left - 1);
    Ok(Next {
        destination: srh[at..at + 16].try_into().unwrap(),
        left: left as u8 - 1,
        len: bytes,
        next_header: srh[0],
    })
}

/// The destination after a step of NEXT-C-SID, if an argument is left.
fn argument(flavours: Flavours, destination: &[u8]) -> Option<[u8; 16]> {
    let CsidLengths { block, node_function } = flavours.next_csid?;
    let (block, own) = (usize::from(block), usize::from(block) + usize::from(node_function));
    if destination[own..].iter().all(|byte| *byte == 0) {
        return None;
    }
    let mut next = [0; 16];
    next[..block].copy_from_slice(&destination[..block]);
    next[block..block + 16 - own].copy_from_slice(&destination[own..]);
    Some(next)
}

/// `inner` under an outer header that takes class, label and, as Linux does it, hop limit from the packet in `data`.
fn under(
    adjacency: &Adjacency,
    (outer, headend): (&[u8], &Headend),
    next: u8,
    data: &[u8],
    mut inner: Vec<u8>,
) -> Step<Vec<u8>> {
    fits(adjacency, outer.len() + inner.len())?;
    if headend.rfc && !headend.l2 {
        inner[7] -= 1;
    }
    let mut packet = pushed(outer, next, &inner);
    packet[..4].copy_from_slice(&data[..4]);
    match headend {
        Headend { rfc: false, .. } => packet[7] = data[7] - 1,
        Headend { l2: true, .. } => packet[1] &= !0x30,
        _ => {}
    }
    Ok(packet)
}

fn inserted(adjacency: &Adjacency, outer: &[u8], packet: &[u8]) -> Step<Vec<u8>> {
    let out = next_hop6(packet)?;
    fits(adjacency, packet.len() + outer.len() - 40)?;
    let mut out = [&out[..40], &outer[40..], &out[40..]].concat();
    let payload = (out.len() - 40) as u16;
    out[4..6].copy_from_slice(&payload.to_be_bytes());
    (out[40], out[6]) = (packet[6], 43);
    out[48..64].copy_from_slice(&packet[24..40]);
    out[24..40].copy_from_slice(&outer[24..40]);
    Ok(framed(adjacency, 0x86dd, &out))
}
