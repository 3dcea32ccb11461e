//! Prefixes and addresses of tables on the command line: IPv4, IPv6, or keys of any width as hexadecimal digits.

use crate::addresses::Asked;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use trieline_lpm::io::KeyPrefix;
use trieline_lpm::{IpPrefix, PrefixError};

/// A prefix of any table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyPrefix {
    /// Of addresses.
    Ip(IpPrefix),
    /// Of other keys.
    Key(KeyPrefix),
}

impl AnyPrefix {
    /// 4, 6 or 0.
    pub fn family(&self) -> u8 {
        match self {
            Self::Ip(IpPrefix::V4(_)) => 4,
            Self::Ip(IpPrefix::V6(_)) => 6,
            Self::Key(_) => 0,
        }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(prefix) => prefix.fmt(f),
            Self::Key(prefix) => prefix.fmt(f),
        }
    }
}

impl FromStr for AnyPrefix {
    type Err = PrefixError;

    fn from_str(text: &str) -> Result<Self, PrefixError> {
        match text.parse() {
            Err(not_ip @ PrefixError::Syntax { .. }) => match text.parse() {
                Err(PrefixError::Syntax { .. }) => Err(not_ip),
                key => key.map(Self::Key),
            },
            ip => ip.map(Self::Ip),
        }
    }
}

/// A key to look up: an address, or all bits of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum AnyAddress {
    /// An address.
    Ip(IpAddr),
    /// Another key.
    Key(KeyPrefix),
}

impl Asked for AnyAddress {
    const EXAMPLE: &'static str = "192.0.2.1 or 2001:db8::1, or a key in hexadecimal digits";

    fn parse(text: &str) -> Option<Self> {
        let key = || text.parse().ok().filter(|_| !text.contains('/')).map(Self::Key);
        text.parse().ok().map(Self::Ip).or_else(key)
    }

    fn family(&self) -> u8 {
        match self {
            Self::Ip(addr) => addr.family(),
            Self::Key(_) => 0,
        }
    }
}

impl fmt::Display for AnyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(addr) => addr.fmt(f),
            Self::Key(key) => key.key().iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}
