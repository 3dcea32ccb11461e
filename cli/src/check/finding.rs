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
    /// The command that mends it.
    pub mend: Option<String>,
}

impl Finding {
    fn new(level: Level, about: &str, what: impl Into<String>) -> Self {
        Self { level, about: about.into(), what: what.into(), mend: None }
    }

    /// Nothing to do.
    pub fn go(about: &str, what: impl Into<String>) -> Self {
        Self::new(Level::Go, about, what)
    }

    /// trielined starts, but the operator should know.
    pub fn warn(about: &str, what: impl Into<String>) -> Self {
        Self::new(Level::Warn, about, what)
    }

    /// trielined does not start, or does not forward here.
    pub fn no_go(about: &str, what: impl Into<String>) -> Self {
        Self::new(Level::NoGo, about, what)
    }

    /// Adds the command that mends it.
    pub fn mend(self, command: impl Into<String>) -> Self {
        Self { mend: Some(command.into()), ..self }
    }
}
