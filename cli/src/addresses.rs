//! The addresses of a command: its arguments, and standard input line by line as it comes.

use anyhow::{Context, anyhow, bail};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, StdinLock, stdin};
use std::net::IpAddr;

/// Most bytes of a line.
const LINE: u64 = 1024;

/// A key that a table is searched for.
pub trait Asked: Clone + Display {
    /// An example, for messages.
    const EXAMPLE: &'static str;
    /// Reads it.
    fn parse(text: &str) -> Option<Self>;
    /// 4, 6, or 0 for keys that are not addresses.
    fn family(&self) -> u8;
}

impl Asked for IpAddr {
    const EXAMPLE: &'static str = "192.0.2.1 or 2001:db8::1";

    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }

    fn family(&self) -> u8 {
        family_of(self)
    }
}

/// An error unless `what`, of family `is` (0: not an address), is of the family of -4 or -6.
pub fn expect_family(asked: Option<u8>, is: u8, what: &impl std::fmt::Display) -> Result<(), String> {
    match asked {
        Some(asked) if is == 0 => Err(format!("invalid address {what}: -{asked} expects IPv{asked}")),
        Some(asked) if asked != is => Err(format!("{what} is IPv{is}; -{asked} expects IPv{asked}")),
        _ => Ok(()),
    }
}

/// 4 or 6.
pub fn family_of(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// An address, or the wish to read them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Query<T = IpAddr> {
    Address(T),
    Stdin,
}

/// An argument.
pub fn parse_query<T: Asked>(text: &str) -> Result<Query<T>, String> {
    if text == "-" {
        return Ok(Query::Stdin);
    }
    T::parse(text).map(Query::Address).ok_or_else(|| format!("expected an address, such as {}", T::EXAMPLE))
}

/// Hands out addresses as they are there.
pub struct Addresses<'a, T> {
    queries: std::slice::Iter<'a, Query<T>>,
    family: Option<u8>,
    stdin: Option<BufReader<StdinLock<'static>>>,
    number: usize,
    failed: Option<anyhow::Error>,
}

impl<'a, T: Asked> Addresses<'a, T> {
    /// All of `family`, if that is given.
    pub fn new(queries: &'a [Query<T>], family: Option<u8>) -> Self {
        Self { queries: queries.iter(), family, stdin: None, number: 0, failed: None }
    }

    /// The next ones, up to `most`, fewer where standard input has no more for the moment; none at the end. Keys before a bad one are
    /// returned first.
    pub fn batch(&mut self, most: usize) -> anyhow::Result<Vec<T>> {
        let mut found = Vec::new();
        while found.len() < most && self.failed.is_none() {
            let is_dry = self.stdin.as_ref().is_some_and(|stdin| stdin.buffer().is_empty());
            if is_dry && !found.is_empty() {
                break;
            }
            match self.next() {
                Ok(Some(address)) => found.push(address),
                Ok(None) => break,
                Err(error) => self.failed = Some(error),
            }
        }
        match self.failed.take() {
            Some(error) if found.is_empty() => Err(error),
            failed => {
                self.failed = failed;
                Ok(found)
            }
        }
    }

    fn next(&mut self) -> anyhow::Result<Option<T>> {
        loop {
            if self.stdin.is_some() {
                match self.line()? {
                    Some(address) => return Ok(Some(address)),
                    None => self.stdin = None,
                }
            }
            match self.queries.next() {
                Some(Query::Address(address)) => {
                    expect_family(self.family, address.family(), address)
                        .map_err(trieline_terminal::usage)?;
                    return Ok(Some(address.clone()));
                }
                Some(Query::Stdin) => self.stdin = Some(BufReader::new(stdin().lock())),
                None => return Ok(None),
            }
        }
    }

    /// The address of the next line that has one.
    fn line(&mut self) -> anyhow::Result<Option<T>> {
        let Some(stdin) = &mut self.stdin else { return Ok(None) };
        loop {
            let mut line = Vec::new();
            stdin.take(LINE).read_until(b'\n', &mut line).context("cannot read standard input")?;
            if line.is_empty() {
                return Ok(None);
            }
            self.number += 1;
            if line.len() as u64 == LINE && line.last() != Some(&b'\n') {
                bail!("standard input, line {}: over {LINE} bytes; expected an address a line", self.number);
            }
            let text = String::from_utf8_lossy(&line);
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let address = T::parse(text).ok_or_else(|| {
                let shown: String = text.chars().take(100).collect();
                anyhow!(
                    "standard input, line {}: invalid address {shown:?}: expected one such as {}",
                    self.number,
                    T::EXAMPLE
                )
            })?;
            if let Err(error) = expect_family(self.family, address.family(), &address) {
                bail!("standard input, line {}: {error}", self.number);
            }
            return Ok(Some(address));
        }
    }
}
