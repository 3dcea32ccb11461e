//! Entries of maps that are not as trielined wrote them, in words.

/// An entry that has something else than trielined wrote.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Damage {
    /// The entry.
    pub name: String,
    /// The content that trielined wrote.
    pub written: String,
    /// The content that packets meet.
    pub found: String,
}

impl Damage {
    /// An entry; `None`: there is none.
    pub fn new(
        name: impl Into<String>,
        written: Option<impl ToString>,
        found: Option<impl ToString>,
    ) -> Self {
        let text = |content: Option<String>| content.unwrap_or_else(|| "none".into());
        Self {
            name: name.into(),
            written: text(written.map(|written| written.to_string())),
            found: text(found.map(|found| found.to_string())),
        }
    }
}
