//! The daemon follows a configuration that was read anew.

use super::{Config, Daemon, Error};
use crate::tenant::Tenants;

impl Daemon {
    /// Takes devices, tenants, filters and whether packets may go past netfilter; where devices or tenants fail, all stays as it
    /// was.
    pub(super) fn reload(&mut self, config: Config) {
        let names = std::mem::replace(&mut self.ports.names, config.devices);
        let before = std::mem::replace(&mut self.mirror.world.tenants, config.tenants);
        self.look_beside();
        match self.take(&before) {
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
    fn take(&mut self, before: &Tenants) -> Result<(), Error> {
        let (world, dataplane) = (&self.mirror.world, &mut self.dataplane);
        if let Some(name) = self.ports.missing(world) {
            return Err(Error::NoDevice { name: name.into() });
        }
        self.ports.open(world, dataplane);
        self.ports.attach(world, dataplane)?;
        if self.mirror.world.tenants != *before {
            self.mirror.dump_world(&mut self.requests)?;
        }
        Ok(())
    }
}
