//! Follows a reloaded configuration: all of it or nothing. Files are read beside the traffic first.

use super::config::Pending;
use super::{Config, Daemon, Error};
use crate::daemon::ports::Ports;
use crate::filter::Replacement;
use crate::kernel::seg6::Encap;
use crate::rib::kernel_state::Settings;
use crate::rib::tenant::Tenants;
use crate::sid_hook::{self, Prepared};
use trieline_lpm::Prefix;

impl Config {
    /// Settings that decide how trielined reads the kernel's state.
    pub(super) fn settings(&self) -> Settings {
        let Self { bypass_netfilter, rfc, ref tenants, .. } = *self;
        Settings { bypass_netfilter, rfc, tenants: tenants.clone() }
    }

    /// Keys that only a start follows, and that differ in `new`.
    fn waiting_in(&self, new: &Self) -> Vec<&'static str> {
        // Without `..`: a new key has to be followed by a reload (`_`) or named here.
        let Self { mode, map_type, image_bytes, actions, receive_buffer, .. } = self;
        let Self {
            devices: _,
            mode: new_mode,
            map_type: new_map_type,
            image_bytes: new_image_bytes,
            actions: new_actions,
            receive_buffer: new_receive_buffer,
            max_stale: _,
            filters: _,
            bypass_netfilter: _,
            rfc: _,
            sid_hooks: _,
            tenants: _,
            audit_rate: _,
        } = new;
        [
            ("generic", mode != new_mode),
            ("map_type", map_type != new_map_type),
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
        begun.inspect_err(|error| {
            tracing::error!("not reloaded: {error}; trielined keeps the old configuration")
        })
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
        let numbers = self.sid_hooks.numbers(&config.sid_hooks, self.dataplane.sid_hooks())?;
        let lists = sid_hook::lists(&config.sid_hooks, &numbers);
        let job = self.filters.replace(config.filters.clone(), lists);
        self.pending = Some(Pending { job, config, numbers, waits });
        Ok(job)
    }

    /// Logs the declared VLANs that no link stands for.
    pub(super) fn log_missing_vlans(&self) {
        let kernel = &self.mirror.kernel;
        for name in kernel.settings.tenants.missing(&kernel.links) {
            tracing::warn!(
                vlan = name,
                "VLAN device missing; XDP does not forward this VLAN until the device appears"
            );
        }
    }

    /// A name that is new has to be a device's; one that is waited for already is waited for further.
    fn expect_devices(&self, names: &[String]) -> Result<(), Error> {
        let mut missing = Ports::missing_of(names, &self.mirror.kernel);
        match missing.find(|name| !self.ports.names.iter().any(|known| known == name)) {
            Some(name) => Err(Error::NoDevice { name: name.into() }),
            None => Ok(()),
        }
    }

    /// Puts in force files that were read meanwhile: those of reloaded filters, and of a configuration.
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
                    self.log_missing_vlans();
                    self.log_sid_hooks();
                }
                Err(error) => tracing::error!("not reloaded: {error}; trielined keeps the old configuration"),
            }
            let failed = done.err().map(|error| error.to_string());
            self.filters.end(job, failed, waits);
        }
        // A port asks filters and SID hooks from the first on.
        let used = (self.filters.any(), self.sid_hooks.any());
        if (self.ports.filters, self.ports.sid_hooks) != used {
            (self.ports.filters, self.ports.sid_hooks) = used;
            self.mirror.changes.kernel = true;
        }
    }

    /// Takes a configuration over. Steps that may fail come first and can be undone.
    fn take(&mut self, pending: Pending, mut replacement: Replacement) -> Result<(), Error> {
        let Pending { config, numbers, .. } = pending;
        replacement.failure()?;
        self.expect_devices(&config.devices)?;
        let after = config.settings();
        let sid_hooks = self.sid_hooks.prepare(config.sid_hooks, &numbers, self.dataplane.sid_hooks())?;
        let settings = std::mem::replace(&mut self.mirror.kernel.settings, after);
        let names = std::mem::replace(&mut self.ports.names, config.devices);
        self.mirror.changes.kernel = true;
        let done = match self.attach(&settings.tenants) {
            Ok(()) => self.put(replacement, sid_hooks),
            Err(error) => {
                self.sid_hooks.discard(sid_hooks, self.dataplane.sid_hooks());
                Err(error)
            }
        };
        if let Err(error) = done {
            (self.ports.names, self.mirror.kernel.settings) = (names, settings);
            return Err(error);
        }
        self.limits.max_stale = config.max_stale;
        self.audit.set_rate(config.audit_rate);
        self.check_bypassed();
        if self.mirror.kernel.settings.bypass_netfilter != settings.bypass_netfilter {
            self.log_bypassed();
        }
        Ok(())
    }

    /// Puts filters and SID hooks in force, or neither.
    fn put(&mut self, replacement: Replacement, sid_hooks: Prepared) -> Result<(), Error> {
        let image = self.publisher.image();
        let preceded = self.sid_hooks.replace_filters(&sid_hooks, self.dataplane.sid_hooks());
        let former = preceded
            .map_err(Error::from)
            .and_then(|()| Ok(self.filters.put(replacement, image, self.dataplane.filters())?));
        let former = match former {
            Ok(former) => former,
            Err(error) => {
                self.sid_hooks.discard(sid_hooks, self.dataplane.sid_hooks());
                return Err(error);
            }
        };
        let mut grace = self.dataplane.grace();
        match self.sid_hooks.commit(sid_hooks, self.dataplane.sid_hooks(), &mut grace) {
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

    /// Attaches to the devices of the new configuration; their packets pass until their ports are set. If the declared tenants changed, it
    /// dumps the links again.
    fn attach(&mut self, before: &Tenants) -> Result<(), Error> {
        self.ports.attach_new(&self.mirror.kernel, &mut self.dataplane)?;
        self.open_egress();
        if self.mirror.kernel.settings.tenants != *before {
            self.mirror.dump_kernel_state(&mut self.requests)?;
        }
        Ok(())
    }

    /// Logs the SID hooks that no packet can reach.
    pub(super) fn log_sid_hooks(&self) {
        let (v6, nhgs) = (&self.mirror.v6, &self.mirror.nhgs);
        for (name, sid) in self.sid_hooks.sids() {
            let prefix = Prefix::host(u128::from(sid));
            let routes = v6.local.get(&prefix).iter().chain(v6.main.get(&prefix));
            let mut hops = routes.filter_map(|route| nhgs.get(route.nhg)).flat_map(|nhg| &nhg.hops);
            if !hops.any(|hop| hop.encap.as_ref().is_some_and(Encap::is_sid)) {
                tracing::warn!(sid_hook = name, %sid, "the kernel has no such SID yet (ip -6 route … encap seg6local); the hook waits for it");
            }
        }
    }
}
