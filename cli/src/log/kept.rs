//! An event of `tracing`, kept until it may be logged, or logged with another message.

use std::fmt::{Debug, Write};
use tracing::field::{DisplayValue, Field, Value, Visit, display};
use tracing::{Event, Metadata};

/// The field of the macros' text.
const MESSAGE: &str = "message";
/// The fields that say whom a line is about. Their number is limited by the configuration and the program, so what the log remembers is
/// limited as well. Numbers of devices are not among them: a device that comes again has a new one.
const SUBJECT: [&str; 7] = ["dev", "family", "filter", "kind", "sid_hook", "table", "vlan"];

/// A value, as it was given.
#[derive(Debug)]
enum Given {
    /// Text, which lines quote.
    Text(String),
    /// Anything else, as its text.
    Other(DisplayValue<String>),
}

impl Given {
    fn value(&self) -> &dyn Value {
        match self {
            Self::Text(text) => text,
            Self::Other(other) => other,
        }
    }
}

/// An event with its values.
#[derive(Debug)]
pub(super) struct Kept {
    metadata: &'static Metadata<'static>,
    message: String,
    /// In the order of the fields; `None`: the event has no value for the field.
    values: Vec<Option<Given>>,
}

impl Kept {
    /// A copy of an event.
    pub(super) fn of(event: &Event<'_>) -> Self {
        let metadata = event.metadata();
        let values = metadata.fields().iter().map(|_| None).collect();
        let mut kept = Self { metadata, message: String::new(), values };
        event.record(&mut kept);
        kept
    }

    /// Where the event comes from.
    pub(super) fn metadata(&self) -> &'static Metadata<'static> {
        self.metadata
    }

    /// The text of the macro.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    /// Whom the line is about.
    pub(super) fn subject(&self) -> String {
        self.words(|name| SUBJECT.contains(&name))
    }

    /// The message and the values, as a line shows them.
    pub(super) fn line(&self) -> String {
        let words = self.words(|_| true);
        [self.message.as_str(), words.as_str()].join(if words.is_empty() { "" } else { " " })
    }

    /// `key=value` of these fields.
    fn words(&self, wanted: impl Fn(&str) -> bool) -> String {
        let mut words = String::new();
        for (field, value) in self.metadata.fields().iter().zip(&self.values) {
            let Some(value) = value.as_ref().filter(|_| wanted(field.name())) else { continue };
            let space = if words.is_empty() { "" } else { " " };
            // A write to a string does not fail.
            let _ = match value {
                Given::Text(text) => write!(words, "{space}{}={text:?}", field.name()),
                Given::Other(other) => write!(words, "{space}{}={other}", field.name()),
            };
        }
        words
    }

    /// Gives `then` the event with another message.
    pub(super) fn with_message<T>(&self, message: &str, then: impl FnOnce(&Event<'_>) -> T) -> T {
        let fields = self.metadata.fields();
        let message = display(message);
        let values: Vec<Option<&dyn Value>> = fields
            .iter()
            .zip(&self.values)
            .map(|(field, value)| match field.name() {
                MESSAGE => Some(&message as &dyn Value),
                _ => value.as_ref().map(Given::value),
            })
            .collect();
        // One value a field, as the macros do it.
        then(&Event::new(self.metadata, &fields.value_set_all(&values)))
    }

    fn put(&mut self, field: &Field, given: Given) {
        if let Some(value) = self.values.get_mut(field.index()) {
            *value = Some(given);
        }
    }
}

impl Visit for Kept {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            MESSAGE => value.clone_into(&mut self.message),
            _ => self.put(field, Given::Text(value.into())),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            MESSAGE => self.message = format!("{value:?}"),
            _ => self.put(field, Given::Other(display(format!("{value:?}")))),
        }
    }
}
