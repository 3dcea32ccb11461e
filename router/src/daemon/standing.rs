//! Errors that last: the log has one line when an error begins, one when its cause changes, and one when it ends.

use std::collections::BTreeMap;
use std::fmt::Display;

/// The causes of the errors at present, by what trielined cannot do.
#[derive(Debug, Default)]
pub(super) struct Standing(BTreeMap<&'static str, String>);

impl Standing {
    /// The result of an attempt to do `what`; its error is logged if it is new. `then`: what trielined does about it.
    pub(super) fn note<T, E: Display>(
        &mut self,
        what: &'static str,
        then: &str,
        result: Result<T, E>,
    ) -> Option<T> {
        match result {
            Ok(done) => {
                if self.0.remove(what).is_some() {
                    tracing::info!("trielined can {what} again");
                }
                Some(done)
            }
            Err(error) => {
                let cause = error.to_string();
                if self.0.get(what) != Some(&cause) {
                    tracing::warn!(error = %cause, "cannot {what}; {then}");
                    self.0.insert(what, cause);
                }
                None
            }
        }
    }
}
