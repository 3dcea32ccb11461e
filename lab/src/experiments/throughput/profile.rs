//! Traffic profiles: a TOML file names a path, frames and flows. The generator TRex gets the same frames as a script.

use std::{
    fmt::Write as _,
    fs,
    net::{IpAddr, Ipv4Addr},
    path::Path as File,
};

use serde::Deserialize;
use toml::Spanned;

use super::case::{PLACES, Path, SIZES, Traffic};
use crate::{Error, Result, error::During, frames::ETHERNET, traffic::FLOWS_MAX};

/// Most sizes of a profile: the generator holds as many frames.
const FRAMES_MAX: usize = 8;

/// Version of TRex whose script language and limits these are (`trex_stl_stream.h`, `trex_stl_stream_vm.h` in `src/stx/stl`).
const TREX: &str = "v2.60";
/// Most bytes of an instruction of TRex's field engine, which counts them in 16 bits. A longer list of values would be cut without a word.
const TREX_INSTRUCTION: usize = u16::MAX as usize;
/// Of them: what stands before a list of 32-bit values.
const TREX_HEAD: usize = 22;
/// Most flows of a script: as many addresses as fit into an instruction.
pub const TREX_FLOWS: usize = (TREX_INSTRUCTION - TREX_HEAD) / size_of::<u32>();
/// Most bytes of a frame, which TRex counts in 16 bits, too.
const TREX_FRAME: usize = u16::MAX as usize;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    name: Option<String>,
    path: Path,
    flows: Option<Spanned<usize>>,
    destinations: Option<Spanned<String>>,
    frame: Spanned<Vec<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    size: Spanned<usize>,
    weight: Option<Spanned<usize>>,
}

impl Traffic {
    /// Reads a profile.
    ///
    /// # Errors
    /// With file, line, value and what was expected.
    pub fn read(file: &File) -> Result<Traffic> {
        let text = fs::read_to_string(file).during(|| format!("cannot read {}", file.display()))?;
        let stem =
            file.file_stem().map_or_else(|| "profile".into(), |stem| stem.to_string_lossy().into_owned());
        Traffic::parse(&text, &stem).map_err(|why| Error::Table { path: file.to_owned(), why })
    }

    /// A profile's text; without a name in it, it has the name `stem`.
    fn parse(text: &str, stem: &str) -> std::result::Result<Traffic, String> {
        let profile: Profile =
            toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        let bad = |at: usize, value: &dyn std::fmt::Display, field: &str, expected: &str| {
            let line = text[..at].lines().count().max(1);
            Err(format!("line {line}: invalid {value} for {field}: expected {expected}"))
        };
        let number = |value: &Spanned<usize>, field: &str, range: std::ops::RangeInclusive<usize>| {
            let (number, at) = (*value.get_ref(), value.span().start);
            if range.contains(&number) {
                return Ok(number);
            }
            bad(at + 1, &number, field, &format!("{} to {}", range.start(), range.end())).map(|()| 0)
        };
        let mut frames = Vec::new();
        for entry in profile.frame.get_ref() {
            let weight =
                entry.weight.as_ref().map_or(Ok(1), |weight| number(weight, "weight", 1..=PLACES))?;
            frames.push((number(&entry.size, "size", SIZES)?, weight));
        }
        let at = profile.frame.span().start + 1;
        let total: usize = frames.iter().map(|(_, weight)| weight).sum();
        if !(1..=FRAMES_MAX).contains(&frames.len()) {
            bad(at, &format!("{} tables", frames.len()), "frame", &format!("1 to {FRAMES_MAX}"))?;
        }
        if total > PLACES {
            bad(at, &format!("{total} (the sum)"), "weight", &format!("{PLACES} at most"))?;
        }
        let flows = profile.flows.as_ref().map_or(Ok(1), |flows| number(flows, "flows", 1..=FLOWS_MAX))?;
        let network = match &profile.destinations {
            None => profile.path.network(),
            Some(text) => match network(text.get_ref()) {
                Some(network) => network,
                None => {
                    bad(
                        text.span().start + 1,
                        text.get_ref(),
                        "destinations",
                        "an IPv4 prefix of length 24",
                    )?;
                    profile.path.network()
                }
            },
        };
        let size = profile.name.unwrap_or_else(|| stem.to_owned());
        Ok(Traffic { size, path: profile.path, frames, flows, network })
    }

    /// A script of TRex's stateless mode with the same frames and flows. Its streams have the profile's shares of 1 packet a second;
    /// `start -m` sets the rate. MAC addresses are those of TRex's ports.
    ///
    /// # Errors
    /// TRex cannot send this traffic: too many flows, or a frame that is too long with its outer headers.
    pub fn trex(&self, seed: u64) -> Result<String> {
        let refuse = |value: usize, field: &str, expected: String| {
            Err(Error::Traffic(format!("invalid {value} for {field}: expected {expected} (TRex {TREX})")))
        };
        if self.flows > TREX_FLOWS {
            return refuse(self.flows, "flows", format!("{TREX_FLOWS} at most"));
        }
        let mut whole = self.frames.iter().map(|(size, _)| size + self.path.outer().0);
        if let Some(size) = whole.find(|size| *size > TREX_FRAME) {
            return refuse(size, "size", format!("{TREX_FRAME} at most, with outer headers"));
        }
        let flows = self.flows(seed);
        let ends: Vec<(u32, u16)> = flows
            .ends()
            .filter_map(|(address, port)| match address {
                IpAddr::V4(address) => Some((u32::from(address), port)),
                IpAddr::V6(_) => None,
            })
            .collect();
        let frames = self.frames([0; 6], [0; 6]);
        let inner = frames.first().map_or(ETHERNET, |frame| frame.kind.inner());
        let mut script = format!(
            "# Traffic profile {}, as a script of the stateless mode (STL) of TRex {TREX}.\n\
             from trex_stl_lib.api import *\n\n\
             # Destination and UDP source port of each flow, which take turns.\n\
             ADDRESSES = {:?}\n\
             PORTS = {:?}\n\
             # Packets a second, EtherType, and the frame behind the Ethernet header.\n\
             FRAMES = [\n",
            self.size.replace(char::is_control, " "),
            ends.iter().map(|(address, _)| address).collect::<Vec<_>>(),
            ends.iter().map(|(_, port)| port).collect::<Vec<_>>(),
        );
        for (frame, (_, weight)) in frames.iter().zip(&self.frames) {
            let hex: String = frame.towards4(Ipv4Addr::from(ends.first().map_or(0, |(address, _)| *address)))
                [ETHERNET..]
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let ethertype = u16::from_be_bytes([frame.bytes[ETHERNET - 2], frame.bytes[ETHERNET - 1]]);
            let _ = writeln!(script, "    ({weight}, {ethertype:#06x}, \"{hex}\"),");
        }
        let _ = write!(
            script,
            "]\n\n\n\
             class Profile:\n    \
                 def get_streams(self, direction=0, **kwargs):\n        \
                     return [self.stream(*frame) for frame in FRAMES]\n\n    \
                 def stream(self, pps, ethertype, rest):\n        \
                     packet = Ether(type=ethertype) / Raw(load=bytes.fromhex(rest))\n        \
                     vm = [\n            \
                         STLVmFlowVar(name=\"address\", value_list=ADDRESSES, size=4, op=\"inc\"),\n            \
                         STLVmFlowVar(name=\"port\", value_list=PORTS, size=2, op=\"inc\"),\n            \
                         STLVmWrFlowVar(fv_name=\"address\", pkt_offset={}),\n            \
                         STLVmWrFlowVar(fv_name=\"port\", pkt_offset={}),\n            \
                         STLVmFixIpv4(offset={inner}),\n        \
                     ]\n        \
                     return STLStream(packet=STLPktBuilder(pkt=packet, vm=vm), mode=STLTXCont(pps=pps))\n\n\n\
             def register():\n    return Profile()\n",
            inner + 16,
            inner + 20
        );
        Ok(script)
    }
}

/// The network of `A.B.C.0/24`.
fn network(text: &str) -> Option<Ipv4Addr> {
    let network: Ipv4Addr = text.strip_suffix("/24")?.parse().ok()?;
    (network.octets()[3] == 0).then_some(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "path = \"encap\"\nflows = 3\ndestinations = \"198.18.7.0/24\"\n\n[[frame]]\nsize = 64\nweight = 7\n\n[[frame]]\nsize = 1518\n";

    #[test]
    fn a_profile_is_traffic() {
        let traffic = Traffic::parse(MIXED, "mixed").unwrap();
        let network = Ipv4Addr::new(198, 18, 7, 0);
        let expected = Traffic {
            size: "mixed".into(),
            path: Path::Encap,
            frames: vec![(64, 7), (1518, 1)],
            flows: 3,
            network,
        };
        assert_eq!(traffic, expected);
        let named = Traffic::parse(&format!("name = \"x\"\n{MIXED}"), "mixed").unwrap();
        assert_eq!(named.size, "x");
        let least = Traffic::parse("path = \"decap\"\n[[frame]]\nsize = 100\n", "f").unwrap();
        assert_eq!((least.flows, least.network), (1, Path::Decap.network()));
    }

    #[test]
    fn a_bad_value_is_named_with_its_line() {
        for (from, to, expected) in [
            ("size = 64", "size = 63", "line 6: invalid 63 for size: expected 64 to 1518"),
            ("weight = 7", "weight = 0", "line 7: invalid 0 for weight: expected 1 to 64"),
            ("weight = 7", "weight = 64", "invalid 65 (the sum) for weight: expected 64 at most"),
            ("flows = 3", "flows = 70000", "line 2: invalid 70000 for flows: expected 1 to 65536"),
            (
                "7.0/24",
                "7.1/24",
                "line 3: invalid 198.18.7.1/24 for destinations: expected an IPv4 prefix of length 24",
            ),
            ("\"encap\"", "\"up\"", "unknown variant `up`, expected one of `ipv4`, `encap`, `decap`"),
            ("flows = 3", "flow = 3", "unknown field `flow`"),
            ("flows = 3", "flows = \"3\"", "line 2"),
        ] {
            let error = Traffic::parse(&MIXED.replacen(from, to, 1), "x").unwrap_err();
            assert!(error.contains(expected), "{to}: {error}");
        }
        let none = Traffic::parse("path = \"ipv4\"\nframe = []\n", "x").unwrap_err();
        assert!(none.contains("line 2: invalid 0 tables for frame: expected 1 to 8"), "{none}");
        let gone = Traffic::read(File::new("/nonexistent/x.toml")).unwrap_err().to_string();
        assert!(gone.starts_with("cannot read /nonexistent/x.toml"), "{gone}");
    }

    #[test]
    fn the_script_has_every_frame_and_flow() {
        let traffic = Traffic::parse(MIXED, "mixed").unwrap();
        let script = traffic.trex(1).unwrap();
        assert!(script.starts_with(
            "# Traffic profile mixed, as a script of the stateless mode (STL) of TRex v2.60.\n"
        ));
        let list = |name: &str| {
            let line = script.lines().find_map(|line| line.strip_prefix(&format!("{name} = "))).unwrap();
            serde_json::from_str::<Vec<u32>>(line).unwrap()
        };
        let (addresses, ports) = (list("ADDRESSES"), list("PORTS"));
        assert_eq!((addresses.len(), ports.len()), (3, 3));
        let network = u32::from(traffic.network);
        assert!(
            addresses.iter().all(|address| address & !0xff == network)
                && ports.iter().all(|port| *port > 1023)
        );
        let frames: Vec<(&str, usize)> = script
            .lines()
            .filter_map(|line| line.trim().strip_prefix('(')?.strip_suffix("\"),"))
            .filter_map(|line| line.split_once(", 0x0800, \""))
            .map(|(weight, hex)| (weight, hex.len() / 2))
            .collect();
        assert_eq!(frames, [("7", 60 - ETHERNET), ("1", 1514 - ETHERNET)]);
        assert!(script.contains("pkt_offset=30") && script.contains("pkt_offset=34"), "{script}");
        let inside =
            Traffic::parse("path = \"decap\"\n[[frame]]\nsize = 64\n", "f").unwrap().trex(1).unwrap();
        assert!(inside.contains("0x86dd") && inside.contains(&format!("offset={}", 14 + 64)), "{inside}");
    }

    /// The field engine counts the bytes of an instruction in 16 bits: a list that is longer would lose its end.
    #[test]
    fn traffic_beyond_the_limits_of_trex_is_refused() {
        let with = |flows: usize| Traffic { flows, ..Traffic::parse(MIXED, "mixed").unwrap() };
        assert_eq!(TREX_FLOWS, 16_378);
        assert!(with(TREX_FLOWS).trex(1).unwrap().contains("ADDRESSES = ["));
        let error = with(TREX_FLOWS + 1).trex(1).unwrap_err().to_string();
        assert_eq!(error, "invalid 16379 for flows: expected 16378 at most (TRex v2.60)");
        let long = Traffic { frames: vec![(65_500, 1)], path: Path::Decap, ..with(1) };
        let error = long.trex(1).unwrap_err().to_string();
        assert!(
            error.contains("invalid 65564 for size: expected 65535 at most, with outer headers"),
            "{error}"
        );
    }
}
