//! A finding of `node check`, with its level and the command that mends it.

use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing to do.
    Go,
    /// trielined starts, but the operator should know.
    Warn,
    /// trielined does not start, or does not forward here.
    NoGo,
}

impl Level {
    /// As printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Go => "go",
            Self::Warn => "warn",
            Self::NoGo => "no-go",
        }
    }
}

/// One answer.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub level: Level,
    /// `kernel`, `memory`, `netfilter`, …, or the device's name.
    pub about: String,
    /// In words.
    pub what: String,
    /// The command that mends it; none for `go`.
    pub mend: Option<String>,
}

impl Finding {
    /// Nothing to do.
    pub fn go(about: &str, what: impl Into<String>) -> Self {
        Self { level: Level::Go, about: about.into(), what: what.into(), mend: None }
    }

    /// trielined starts, but the operator should know; `mend` is the command that mends it.
    pub fn warn(about: &str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { level: Level::Warn, mend: Some(mend.into()), ..Self::go(about, what) }
    }

    /// trielined does not start, or does not forward here; `mend` is the command that mends it.
    pub fn no_go(about: &str, what: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { level: Level::NoGo, ..Self::warn(about, what, mend) }
    }
}
