//! Filters and functions while the daemon runs: replaced together, put in force when their files have been read.

use super::Daemon;
use crate::kernel::seg6::Encap;
use crate::{filter, function};
use trieline_lpm::Prefix;

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

    /// Says which functions no packet can come to.
    pub(super) fn name_functions(&self) {
        let (v6, paths) = (&self.mirror.v6, &self.mirror.paths);
        for (name, sid) in self.functions.sids() {
            let prefix = Prefix::host(u128::from(sid));
            let routes = v6.local.get(&prefix).iter().chain(v6.main.get(&prefix));
            let mut hops = routes.filter_map(|route| paths.get(route.path)).flat_map(|path| &path.hops);
            if !hops.any(|hop| matches!(hop.encap, Some(Encap::Seg6Local(_)))) {
                tracing::warn!(function = name, %sid, "the kernel has no such SID yet (ip -6 route … encap seg6local): the function waits for it");
            }
        }
    }

    /// Puts filters in force whose files have been read; a port asks them from the first on.
    pub(super) fn use_filters(&mut self) {
        let replaced = self.filters.finish(self.publisher.image(), self.dataplane.filters());
        if let Some(functions) = self.new_functions.take_if(|_| replaced) {
            let bound = self.dataplane.functions();
            let numbers = self.functions.numbers(&functions);
            match numbers.and_then(|numbers| self.functions.apply(functions, &numbers, bound)) {
                Ok(()) => {
                    tracing::info!("functions reloaded");
                    self.name_functions();
                }
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
