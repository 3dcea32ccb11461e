//! Ids that the tracer itself writes into messages: at which devices, and what became of the packets there.

use std::fs;
use std::io;
use std::mem::{offset_of, size_of};
use std::str::FromStr;

use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ProgramMut};
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};

use crate::error::{Error, Result};
use crate::layout::{tr_stamp, tr_stamps};

/// The program that writes them.
pub(crate) const PROGRAM: &str = "stamp_leaving";

/// Where the application has reserved bytes for a stamp: `OFFSET`, eight bytes of zeros, or `OFFSET:BYTES` with those that it leaves there
/// in hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StampAt {
    /// Bytes before it.
    pub offset: u32,
    /// The bytes that the application leaves there, the first byte lowest.
    pub reserved: u64,
}

impl FromStr for StampAt {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "stamp `{text}`: expected OFFSET up to 65535, as in 8, or OFFSET:BYTES, the eight reserved ones in hexadecimal, as in \
                 8:ffffffffffffffff"
            )
        };
        let (offset, bytes) = text.split_once(':').unwrap_or((text, "0000000000000000"));
        let is_bytes = bytes.len() == 16 && bytes.bytes().all(|digit| digit.is_ascii_hexdigit());
        let reserved = u64::from_str_radix(bytes, 16).ok().filter(|_| is_bytes).ok_or_else(wrong)?;
        let offset = offset.parse::<u16>().map_err(|_| wrong())?.into();
        Ok(StampAt { offset, reserved: reserved.swap_bytes() })
    }
}

/// Counts of messages that left over UDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// A stamp was written.
    pub written: u64,
    /// Other bytes than those reserved were there: a stamp already, or the message's own.
    pub taken: u64,
    /// The message ended before the place did.
    pub short: u64,
    /// Packets of several messages (`UDP_SEGMENT`), and fragments.
    pub several: u64,
    /// The packet could not be written.
    pub failed: u64,
}

impl Stamps {
    /// The counts so far.
    pub(crate) fn read(map: &MapHandle) -> Result<Stamps> {
        let found = map.lookup(&[0; 4], MapFlags::ANY).map_err(Error::bpf("cannot read a map"))?;
        let found = found.filter(|found| found.len() == size_of::<tr_stamps>()).unwrap_or_default();
        let count = |tr_stamp(index): tr_stamp| {
            let at = offset_of!(tr_stamps, counts) + 8 * index as usize;
            found.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Ok(Stamps {
            written: count(tr_stamp::TR_STAMP_WRITTEN),
            taken: count(tr_stamp::TR_STAMP_TAKEN),
            short: count(tr_stamp::TR_STAMP_SHORT),
            several: count(tr_stamp::TR_STAMP_SEVERAL),
            failed: count(tr_stamp::TR_STAMP_FAILED),
        })
    }
}

/// The devices of this thread's network namespace.
pub(crate) fn devices() -> std::result::Result<Vec<u32>, libbpf_rs::Error> {
    let table = fs::read_to_string("/proc/thread-self/net/dev")?;
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).map_err(io::Error::from)?;
    let names = table.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name.trim());
    // One that went away meanwhile needs no program.
    Ok(names.filter_map(|name| name_to_index(&socket, name).ok()).collect())
}

/// Attaches the program where packets leave; the links end it.
pub(crate) fn attach(
    program: &ProgramMut<'_>,
    devices: &[u32],
    links: &mut Vec<Link>,
) -> std::result::Result<(), libbpf_rs::Error> {
    for device in devices {
        // Despite its name it makes a link of the program's own kind at a device (libbpf, bpf_program_attach_fd): here tcx.
        links.push(program.attach_xdp(*device as i32)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_an_offset_and_reserved_bytes() {
        assert_eq!("8".parse(), Ok(StampAt { offset: 8, reserved: 0 }));
        assert_eq!("0:01000000000000ff".parse(), Ok(StampAt { offset: 0, reserved: 0xff00_0000_0000_0001 }));
        for bad in ["", "-1", "65536", "8:", "8:ff", "8:+1000000000000ff", "8:8"] {
            assert!(bad.parse::<StampAt>().unwrap_err().contains("OFFSET:BYTES"), "{bad}");
        }
    }
}
