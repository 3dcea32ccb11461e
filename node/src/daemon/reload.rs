//! The daemon follows a configuration that was read anew: all of it or nothing. Files are read beside the traffic first.

use super::{Config, Daemon, Error};
use crate::filter::Replacement;
use crate::function::{self, Numbers, Prepared};
use crate::kernel::seg6::Encap;
use crate::ports::Ports;
use crate::tenant::Tenants;
use trieline_lpm::Prefix;

/// A configuration whose filters' files are being read.
#[derive(Debug)]
pub(super) struct Pending {
    job: u64,
    config: Config,
    numbers: Numbers,
}

impl Config {
    /// Keys that only a start looks at, and that are others in `new`.
    fn fixed_in(&self, new: &Self) -> Vec<&'static str> {
        [
            ("generic", self.mode != new.mode),
            ("home", self.home != new.home),
            ("image", self.image_bytes != new.image_bytes),
            ("next_hops", self.actions != new.actions),
            ("receive_buffer", self.receive_buffer != new.receive_buffer),
        ]
        .into_iter()
        .filter_map(|(key, differs)| differs.then_some(key))
        .collect()
    }
}

impl Daemon {
    /// Begins to follow a configuration; the number of the job that tells how it ends.
    pub(super) fn reload(&mut self, config: Config) -> Result<u64, Error> {
        let begun = self.begin(config);
        begun.inspect_err(|error| tracing::error!("not reloaded: {error}; all stays as it was"))
    }

    fn begin(&mut self, config: Config) -> Result<u64, Error> {
        self.notice_detached();
        if self.detached {
            return Err(Error::Detached);
        }
        self.expect_devices(&config.devices)?;
        let fixed = self.limits.fixed_in(&config);
        if !fixed.is_empty() {
            tracing::warn!(
                "{}: {} as before; a change counts after a stop, `trieline node detach` and a start",
                fixed.join(", "),
                if fixed.len() == 1 { "is" } else { "are" }
            );
        }
        let numbers = self.functions.numbers(&config.functions, self.dataplane.functions())?;
        let lists = function::lists(&config.functions, &numbers);
        let job = self.filters.replace(config.filters.clone(), lists);
        self.pending = Some(Pending { job, config, numbers });
        Ok(job)
    }

    /// A name that is new has to be a device's; one that is waited for already is waited for further.
    fn expect_devices(&self, names: &[String]) -> Result<(), Error> {
        let mut missing = Ports::missing_of(names, &self.mirror.world);
        match missing.find(|name| !self.ports.names.iter().any(|known| known == name)) {
            Some(name) => Err(Error::NoDevice { name: name.into() }),
            None => Ok(()),
        }
    }

    /// Puts in force what was read meanwhile: filters that are read anew, and a configuration.
    pub(super) fn use_files(&mut self) {
        for replacement in self.filters.finish(self.publisher.image(), self.dataplane.filters()) {
            let job = replacement.job;
            let done = match self.pending.take_if(|pending| pending.job == job) {
                Some(pending) => self.take(pending, replacement),
                None => Err(Error::Overtaken),
            };
            match &done {
                Ok(()) => {
                    tracing::info!(devices = self.ports.names.join(" "), "reloaded");
                    self.name_functions();
                }
                Err(error) => tracing::error!("not reloaded: {error}; all stays as it was"),
            }
            self.filters.end(job, done.err().map(|error| error.to_string()));
        }
        // A port asks filters and functions from the first on.
        let used = (self.filters.any(), self.functions.any());
        if (self.ports.filters, self.ports.functions) != used {
            (self.ports.filters, self.ports.functions) = used;
            self.mirror.changes.world = true;
        }
    }

    /// Takes a configuration over. What may fail comes first and is undone.
    fn take(&mut self, pending: Pending, mut replacement: Replacement) -> Result<(), Error> {
        let Pending { config, numbers, .. } = pending;
        replacement.failure()?;
        self.expect_devices(&config.devices)?;
        let functions = self.functions.prepare(config.functions, &numbers, self.dataplane.functions())?;
        let names = std::mem::replace(&mut self.ports.names, config.devices);
        let tenants = std::mem::replace(&mut self.mirror.world.tenants, config.tenants);
        self.mirror.changes.world = true;
        let done = match self.attach(&tenants) {
            Ok(()) => self.put(replacement, functions),
            Err(error) => {
                self.functions.discard(functions, self.dataplane.functions());
                Err(error)
            }
        };
        if let Err(error) = done {
            (self.ports.names, self.mirror.world.tenants) = (names, tenants);
            return Err(error);
        }
        self.look_beside();
        self.accept_beside(config.bypass_netfilter);
        self.mirror.world.rfc = config.rfc;
        Ok(())
    }

    /// Puts filters and functions in force, or neither.
    fn put(&mut self, replacement: Replacement, functions: Prepared) -> Result<(), Error> {
        let image = self.publisher.image();
        let preceded = self.functions.replace_filters(&functions, self.dataplane.functions());
        let former = preceded
            .map_err(Error::from)
            .and_then(|()| Ok(self.filters.put(replacement, image, self.dataplane.filters())?));
        let former = match former {
            Ok(former) => former,
            Err(error) => {
                self.functions.discard(functions, self.dataplane.functions());
                return Err(error);
            }
        };
        let mut grace = self.dataplane.grace();
        match self.functions.commit(functions, self.dataplane.functions(), &mut grace) {
            Ok(()) => self.filters.keep(former, image),
            Err(error) => {
                if let Err(other) = self.filters.restore(former, image, self.dataplane.filters()) {
                    tracing::error!("the filters of the new configuration stay in force: {other}");
                }
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Attaches to the devices that are named now, whose packets pass until their ports are set, and asks for the links anew
    /// when what is declared of them has changed.
    fn attach(&mut self, before: &Tenants) -> Result<(), Error> {
        self.ports.attach_new(&self.mirror.world, &mut self.dataplane)?;
        self.open_exits();
        if self.mirror.world.tenants != *before {
            self.mirror.dump_world(&mut self.requests)?;
        }
        Ok(())
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
}
