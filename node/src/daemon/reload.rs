//! The daemon follows a configuration that was read anew.

use super::{Config, DETACHED, Daemon, Error};
use crate::tenant::Tenants;

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
    /// Takes devices, tenants, filters and whether packets may go past netfilter; where devices or tenants fail, all stays as it
    /// was.
    pub(super) fn reload(&mut self, config: Config) {
        self.notice_detached();
        if self.detached {
            tracing::error!("not reloaded: {DETACHED}");
            return;
        }
        let fixed = self.limits.fixed_in(&config);
        if !fixed.is_empty() {
            tracing::warn!(
                "{}: {} as before; a change counts after a stop, `trieline node detach` and a start",
                fixed.join(", "),
                if fixed.len() == 1 { "is" } else { "are" }
            );
        }
        let names = std::mem::replace(&mut self.ports.names, config.devices);
        let before = std::mem::replace(&mut self.mirror.world.tenants, config.tenants);
        self.look_beside();
        match self.take(&names, &before) {
            Ok(()) => {
                tracing::info!(devices = self.ports.names.join(" "), "reloaded");
                self.accept_beside(config.bypass_netfilter);
            }
            Err(error) => {
                tracing::error!(%error, "not reloaded: devices and tenants stay as they were");
                self.ports.names = names;
                self.mirror.world.tenants = before;
            }
        }
        self.mirror.world.rfc = config.rfc;
        self.replace_filters(config.filters, config.functions);
        self.mirror.changes.world = true;
        self.publish();
    }

    /// Attaches to the devices that are named now, whose packets pass until their ports are set, and asks for the links anew
    /// when what is declared of them has changed.
    ///
    /// A name that is new has to be a device's; one that is waited for already is waited for further.
    fn take(&mut self, names: &[String], before: &Tenants) -> Result<(), Error> {
        let (world, dataplane) = (&mut self.mirror.world, &mut self.dataplane);
        let mut missing = self.ports.missing(world);
        if let Some(name) = missing.find(|name| !names.iter().any(|known| known == name)) {
            return Err(Error::NoDevice { name: name.into() });
        }
        drop(missing);
        self.ports.open(world, dataplane);
        self.ports.attach(world, dataplane)?;
        if self.mirror.world.tenants != *before {
            self.mirror.dump_world(&mut self.requests)?;
        }
        Ok(())
    }
}
