//! Where an experiment's prefixes come from: a file, or the generator.

use std::path::Path;

use serde::{Deserialize, Serialize};
use trieline_lpm::{Prefix, io};

use super::generate;
use crate::error::{Error, Result};

/// Whether a table was read or made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Read from a file.
    File,
    /// Made by [`generate`].
    Generated,
}

/// Prefixes of both families, each once, in order.
#[derive(Clone, Debug)]
pub struct Tables {
    /// IPv4.
    pub v4: Vec<Prefix<u32>>,
    /// IPv6.
    pub v6: Vec<Prefix<u128>>,
    /// Where they come from.
    pub source: Source,
}

impl Tables {
    /// Generates tables of the Internet's shape.
    pub fn internet(v4: usize, v6: usize, seed: u64) -> Tables {
        Tables {
            v4: generate::internet(v4, seed),
            v6: generate::internet(v6, seed),
            source: Source::Generated,
        }
    }

    /// Reads a file: `prefix [value]` lines, gzip or not, or the output of `ip route`.
    pub fn read(path: &Path) -> Result<Tables> {
        let text = io::text::read(path);
        let (mut v4, mut v6): (Vec<_>, Vec<_>) = match text {
            Ok(table) => (
                table.prefixes.v4.into_iter().map(|(prefix, _)| prefix).collect(),
                table.prefixes.v6.into_iter().map(|(prefix, _)| prefix).collect(),
            ),
            Err(error) => match io::iproute::read(path) {
                Ok(routes) => (
                    routes.prefixes.v4.into_iter().map(|(prefix, _)| prefix).collect(),
                    routes.prefixes.v6.into_iter().map(|(prefix, _)| prefix).collect(),
                ),
                // The first form is the documented one: its complaint helps more.
                Err(_) => return Err(Error::Import(error)),
            },
        };
        v4.sort_unstable();
        v4.dedup();
        v6.sort_unstable();
        v6.dedup();
        if v4.is_empty() && v6.is_empty() {
            return Err(Error::Table { path: path.to_owned(), why: "holds no prefix".into() });
        }
        Ok(Tables { v4, v6, source: Source::File })
    }

    /// How many prefixes.
    pub fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
