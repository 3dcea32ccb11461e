//! The daemon follows a configuration that was read anew: all of it or nothing. Files are read beside the traffic first.

use super::{Config, Daemon, Error};
use crate::filter::Replacement;
use crate::function::{self, Numbers, Prepared};
use crate::kernel::seg6::Encap;
use crate::ports::Ports;
use crate::tenant::Tenants;
use crate::world::Settings;
use trieline_lpm::Prefix;

/// A configuration whose filters' files are being read.
#[derive(Debug)]
pub(super) struct Pending {
    job: u64,
    config: Config,
    numbers: Numbers,
    /// Keys that only a restart follows.
    waits: Vec<String>,
}

impl Config {
    /// What decides how the kernel's state is read.
    pub(super) fn settings(&self) -> Settings {
        let Self { bypass_netfilter, rfc, ref tenants, .. } = *self;
        Settings { bypass_netfilter, rfc, tenants: tenants.clone() }
    }

    /// Keys that only a start follows, and that differ in `new`.
    fn waiting_in(&self, new: &Self) -> Vec<&'static str> {
        // Without `..`: a new key has to be followed by a reload (`_`) or named here.
        let Self { mode, home, image_bytes, actions, receive_buffer, .. } = self;
        let Self {
            devices: _,
            mode: new_mode,
            home: new_home,
            image_bytes: new_image_bytes,
            actions: new_actions,
            receive_buffer: new_receive_buffer,
            max_stale: _,
            filters: _,
            bypass_netfilter: _,
            rfc: _,
            functions: _,
            tenants: _,
        } = new;
        [
            ("generic", mode != new_mode),
            ("home", home != new_home),
            ("image", image_bytes != new_image_bytes),
            ("next_hops", actions != new_actions),
            ("receive_buffer", receive_buffer != new_receive_buffer),
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
        let waits: Vec<String> = self.limits.waiting_in(&config).into_iter().map(str::to_owned).collect();
        if !waits.is_empty() {
            tracing::warn!(
                "{}: {} as before; restart trielined to follow the change (no packet is lost)",
                waits.join(", "),
                if waits.len() == 1 { "is" } else { "are" }
            );
        }
        let numbers = self.functions.numbers(&config.functions, self.dataplane.functions())?;
        let lists = function::lists(&config.functions, &numbers);
        let job = self.filters.replace(config.filters.clone(), lists);
        self.pending = Some(Pending { job, config, numbers, waits });
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
            let mut waits = Vec::new();
            let done = match self.pending.take_if(|pending| pending.job == job) {
                Some(mut pending) => {
                    waits = std::mem::take(&mut pending.waits);
                    self.take(pending, replacement)
                }
                None => Err(Error::Overtaken),
            };
            match &done {
                Ok(()) => {
                    tracing::info!(devices = self.ports.names.join(" "), "reloaded");
                    self.name_functions();
                }
                Err(error) => tracing::error!("not reloaded: {error}; all stays as it was"),
            }
            let failed = done.err().map(|error| error.to_string());
            self.filters.end(job, failed, waits);
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
        let after = config.settings();
        let functions = self.functions.prepare(config.functions, &numbers, self.dataplane.functions())?;
        let settings = std::mem::replace(&mut self.mirror.world.settings, after);
        let names = std::mem::replace(&mut self.ports.names, config.devices);
        self.mirror.changes.world = true;
        let done = match self.attach(&settings.tenants) {
            Ok(()) => self.put(replacement, functions),
            Err(error) => {
                self.functions.discard(functions, self.dataplane.functions());
                Err(error)
            }
        };
        if let Err(error) = done {
            (self.ports.names, self.mirror.world.settings) = (names, settings);
            return Err(error);
        }
        self.limits.max_stale = config.max_stale;
        self.look_beside();
        if self.mirror.world.settings.bypass_netfilter != settings.bypass_netfilter {
            self.name_skipped();
        }
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
        if self.mirror.world.settings.tenants != *before {
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
