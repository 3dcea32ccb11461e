//! Filters and functions while the daemon runs: replaced together, put in force when their files have been read.

use super::Daemon;
use crate::{filter, function};

impl Daemon {
    /// Begins to replace filters and functions; the functions follow when the filters are there.
    pub(super) fn replace_filters(&mut self, filters: Vec<filter::Config>, functions: Vec<function::Config>) {
        match self.functions.numbers(&functions) {
            Ok(numbers) => {
                self.filters.replace(filters, function::lists(&functions, &numbers));
                self.new_functions = Some(functions);
            }
            Err(error) => tracing::error!(%error, "not reloaded: filters and functions stay as they were"),
        }
    }

    /// Puts filters in force whose files have been read; a port asks them from the first on.
    pub(super) fn use_filters(&mut self) {
        let replaced = self.filters.finish(self.publisher.image(), self.dataplane.filters());
        if let Some(functions) = self.new_functions.take_if(|_| replaced) {
            let bound = self.dataplane.functions();
            let numbers = self.functions.numbers(&functions);
            match numbers.and_then(|numbers| self.functions.apply(functions, &numbers, bound)) {
                Ok(()) => tracing::info!("functions reloaded"),
                Err(error) => tracing::error!(%error, "functions not reloaded"),
            }
        }
        let used = (self.filters.any(), self.functions.any());
        if (self.ports.filters, self.ports.functions) != used {
            (self.ports.filters, self.ports.functions) = used;
            self.mirror.changes.world = true;
        }
    }
}
