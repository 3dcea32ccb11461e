//! A frame in words: its headers from the outside in, as far as they are whole.

use serde::Serialize;
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};
use trieline_router::kernel::link::mac_text;

/// Headers that are shown of one frame.
const LAYERS: usize = 24;

/// The layers of an Ethernet frame; the last names the rest.
pub fn frame(bytes: &[u8]) -> Vec<Value> {
    let mut reader = Reader { bytes, layers: Vec::new() };
    if reader.ethernet().is_none() || !reader.bytes.is_empty() {
        let left = reader.bytes.len();
        if left > 0 {
            reader.push(json!({ "layer": "payload", "length": left }));
        }
    }
    reader.layers
}

/// The keys of layers, in this order.
const KEYS: [&str; 26] = [
    "src",
    "dst",
    "vlan",
    "priority",
    "ttl",
    "hoplimit",
    "tos",
    "class",
    "flowlabel",
    "length",
    "payload",
    "protocol",
    "next",
    "fragment",
    "offset",
    "df",
    "left",
    "last",
    "flags",
    "tag",
    "segs",
    "tlvs",
    "type",
    "code",
    "sport",
    "dport",
];

/// The layers, one a line.
pub fn text(layers: &[Value]) -> String {
    let mut text = String::new();
    for layer in layers {
        text += &format!("    {}", word(&layer["layer"]));
        for key in KEYS {
            if let Some(value) = layer.get(key) {
                text += &format!(" {key} {}", word(value));
            }
        }
        text += "\n";
    }
    text
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The destination that a router looks up: that of the outermost IP header.
pub fn destination(layers: &[Value]) -> Option<std::net::IpAddr> {
    address(layers, "dst")
}

/// Its source, which policy rules may ask for.
pub fn source(layers: &[Value]) -> Option<std::net::IpAddr> {
    address(layers, "src")
}

fn address(layers: &[Value], key: &str) -> Option<std::net::IpAddr> {
    let ip = layers.iter().find(|layer| ["IPv4", "IPv6"].iter().any(|name| layer["layer"] == *name))?;
    ip[key].as_str()?.parse().ok()
}

struct Reader<'a> {
    bytes: &'a [u8],
    layers: Vec<Value>,
}

impl<'a> Reader<'a> {
    /// The next `N` bytes, without taking them.
    fn head<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes.get(..N)?.try_into().ok()
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.bytes = self.bytes.get(bytes..)?;
        Some(())
    }

    fn push(&mut self, layer: Value) {
        self.layers.push(layer);
    }

    /// Cuts what lies behind a header's own length: padding.
    fn cut(&mut self, length: usize) {
        self.bytes = self.bytes.get(..length).unwrap_or(self.bytes);
    }

    fn ethernet(&mut self) -> Option<()> {
        let head: [u8; 14] = self.head()?;
        self.skip(14)?;
        self.push(json!({ "layer": "Ethernet", "src": mac_text(&head[6..12]), "dst": mac_text(&head[..6]) }));
        let mut kind = u16::from_be_bytes([head[12], head[13]]);
        while matches!(kind, 0x8100 | 0x88a8) && self.layers.len() < LAYERS {
            let tag: [u8; 4] = self.head()?;
            self.skip(4)?;
            let tci = u16::from_be_bytes([tag[0], tag[1]]);
            self.push(json!({ "layer": "802.1Q", "vlan": tci & 0xfff, "priority": tci >> 13 }));
            kind = u16::from_be_bytes([tag[2], tag[3]]);
        }
        match kind {
            0x0800 => self.ipv4(),
            0x86dd => self.ipv6(),
            0x0806 => {
                self.push(json!({ "layer": "ARP" }));
                Some(())
            }
            other => {
                self.push(json!({ "layer": format!("ethertype 0x{other:04x}") }));
                Some(())
            }
        }
    }

    fn ipv4(&mut self) -> Option<()> {
        let head: [u8; 20] = self.head()?;
        let address =
            |at: usize| Ipv4Addr::new(head[at], head[at + 1], head[at + 2], head[at + 3]).to_string();
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let fragment = u16::from_be_bytes([head[6], head[7]]);
        let mut layer = json!({
            "layer": "IPv4", "src": address(12), "dst": address(16), "ttl": head[8], "tos": head[1],
            "length": length, "protocol": head[9],
        });
        if fragment & 0x3fff != 0 {
            layer["fragment"] = json!(u32::from(fragment & 0x1fff) * 8);
        }
        if fragment & 0x4000 != 0 {
            layer["df"] = json!(true);
        }
        self.push(layer);
        self.cut(length);
        self.skip(usize::from(head[0] & 15) * 4)?;
        if fragment & 0x1fff == 0 { self.upper(head[9]) } else { Some(()) }
    }

    fn ipv6(&mut self) -> Option<()> {
        let head: [u8; 40] = self.head()?;
        let flow = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        self.push(json!({
            "layer": "IPv6", "src": ipv6(&head[8..24]), "dst": ipv6(&head[24..40]), "hoplimit": head[7],
            "class": flow >> 20 & 0xff, "flowlabel": format!("0x{:05x}", flow & 0xfffff),
            "payload": length, "next": head[6],
        }));
        self.cut(40 + length);
        self.skip(40)?;
        self.upper(head[6])
    }

    /// The layers that follow by a protocol number.
    fn upper(&mut self, mut protocol: u8) -> Option<()> {
        while self.layers.len() < LAYERS {
            match protocol {
                4 => return self.ipv4(),
                41 => return self.ipv6(),
                // The frame inside H.Encaps.L2.
                143 => return self.ethernet(),
                43 => protocol = self.routing()?,
                0 | 60 => {
                    let head: [u8; 2] = self.head()?;
                    self.push(json!({ "layer": if protocol == 0 { "hop-by-hop" } else { "dst-options" } }));
                    self.skip((usize::from(head[1]) + 1) * 8)?;
                    protocol = head[0];
                }
                44 => {
                    let head: [u8; 8] = self.head()?;
                    let offset = u16::from_be_bytes([head[2], head[3]]) & 0xfff8;
                    self.push(json!({ "layer": "fragment", "offset": offset }));
                    self.skip(8)?;
                    if offset != 0 {
                        return Some(());
                    }
                    protocol = head[0];
                }
                other => return self.transport(other),
            }
        }
        Some(())
    }

    /// A routing header (RFC 8754 when of type 4).
    fn routing(&mut self) -> Option<u8> {
        let head: [u8; 8] = self.head()?;
        let length = (usize::from(head[1]) + 1) * 8;
        let body = self.bytes.get(8..length)?;
        let layer = if head[2] == 4 {
            let count = usize::from(head[4]) + 1;
            let segments: Vec<Value> = body.chunks_exact(16).take(count).map(|s| ipv6(s).into()).collect();
            let tlvs = body.len().saturating_sub(16 * count);
            let mut layer = json!({
                "layer": "SRH", "left": head[3], "last": head[4], "flags": head[5],
                "tag": u16::from_be_bytes([head[6], head[7]]), "next": head[0], "segs": segments,
            });
            if tlvs > 0 {
                layer["tlvs"] = json!(tlvs);
            }
            layer
        } else {
            json!({ "layer": "routing", "type": head[2], "left": head[3] })
        };
        self.push(layer);
        self.skip(length)?;
        Some(head[0])
    }

    fn transport(&mut self, protocol: u8) -> Option<()> {
        let name = match protocol {
            1 => "ICMP",
            6 => "TCP",
            17 => "UDP",
            58 => "ICMPv6",
            132 => "SCTP",
            _ => {
                self.push(json!({ "layer": format!("protocol {protocol}") }));
                return Some(());
            }
        };
        let head: [u8; 4] = self.head()?;
        let mut layer = Map::new();
        layer.insert("layer".into(), name.into());
        if matches!(protocol, 1 | 58) {
            layer.insert("type".into(), head[0].into());
            layer.insert("code".into(), head[1].into());
        } else {
            layer.insert("sport".into(), u16::from_be_bytes([head[0], head[1]]).into());
            layer.insert("dport".into(), u16::from_be_bytes([head[2], head[3]]).into());
        }
        self.push(Value::Object(layer));
        Some(())
    }
}

/// The five-tuple of a frame: that of its outermost IP header.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub struct Flow {
    #[serde(skip_serializing_if = "Option::is_none")]
    src: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dst: Option<String>,
    /// A name (`udp`), or a number; of a frame that is not IP the layer's.
    protocol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    sport: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dport: Option<u64>,
}

/// The five-tuple of a frame's layers.
pub fn flow(layers: &[Value]) -> Flow {
    let is_ip = |layer: &Value| ["IPv4", "IPv6"].iter().any(|name| layer["layer"] == *name);
    let Some(at) = layers.iter().position(is_ip) else {
        let protocol = layers.get(1).map(|layer| word(&layer["layer"])).unwrap_or_default();
        return Flow { protocol: protocol.to_lowercase(), ..Flow::default() };
    };
    let (ip, inside) = (&layers[at], &layers[at + 1..]);
    let text = |key: &str| ip[key].as_str().map(str::to_owned);
    let number = ip.get("protocol").or(ip.get("next")).map(word).unwrap_or_default();
    let is_upper = |layer: &&Value| {
        layer.get("sport").is_some() || layer["layer"].as_str().is_some_and(|name| name.starts_with("ICMP"))
    };
    let upper = inside.iter().take_while(|layer| !is_ip(layer)).find(is_upper);
    Flow {
        src: text("src"),
        dst: text("dst"),
        protocol: upper.map_or(number, |layer| word(&layer["layer"]).to_lowercase()),
        sport: upper.and_then(|layer| layer["sport"].as_u64()),
        dport: upper.and_then(|layer| layer["dport"].as_u64()),
    }
}

impl std::fmt::Display for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.protocol)?;
        let end = |address: &str, port: Option<u64>| match port {
            Some(port) if address.contains(':') => format!("[{address}]:{port}"),
            Some(port) => format!("{address}:{port}"),
            None => address.to_owned(),
        };
        match (&self.src, &self.dst) {
            (Some(src), Some(dst)) => write!(f, " {} > {}", end(src, self.sport), end(dst, self.dport)),
            _ => Ok(()),
        }
    }
}

fn ipv6(bytes: &[u8]) -> String {
    let octets: [u8; 16] = bytes.try_into().unwrap_or_default();
    Ipv6Addr::from(octets).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
            .collect()
    }

    /// An IPv4 packet inside an SRH inside IPv6 with a tag, and padding after it.
    #[test]
    fn headers_from_the_outside_in() {
        let hex = "020000000001 020000000009 8100 2064 86dd \
                   6b812345 0034 2b 3f fd000001000000000000000000000001 fd000002000000000000000000000001 \
                   04 02 04 00 00 00 0000 fd000002000000000000000000000001
                   4500001c 0001 4000 40 11 0000 0a000002 0a320001 04d2 0035 0008 0000 ffff";
        let layers = frame(&bytes(hex));
        let names: Vec<_> = layers.iter().map(|layer| layer["layer"].as_str().unwrap()).collect();
        assert_eq!(names, ["Ethernet", "802.1Q", "IPv6", "SRH", "IPv4", "UDP", "payload"]);
        assert_eq!(layers[1]["vlan"], 100);
        assert_eq!((&layers[2]["class"], &layers[2]["flowlabel"]), (&json!(0xb8), &json!("0x12345")));
        assert_eq!(layers[3]["segs"], json!(["fd00:2::1"]));
        assert_eq!((&layers[4]["ttl"], &layers[4]["df"]), (&json!(64), &json!(true)));
        assert_eq!(layers[5]["dport"], 53);
        assert_eq!(destination(&layers), Some("fd00:2::1".parse().unwrap()));
        assert!(text(&layers).contains("SRH"), "{}", text(&layers));
    }

    /// Wherever a frame is cut off, the text ends with its last bytes.
    #[test]
    fn cut_frames_are_dissected_to_their_end() {
        let whole = bytes(
            "020000000001 020000000009 0800 4500001c 0001 0000 40 11 0000 0a000002 0a320001 04d20035 00080000",
        );
        for length in 0..=whole.len() {
            let layers = frame(&whole[..length]);
            assert_eq!(layers.iter().any(|layer| layer["layer"] == "UDP"), length >= 38, "{length}");
        }
    }
}
