//! Refuses options that no hook can do, before any is attached.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::filter::{PROCESSES_MAX, check_process, check_processes_are_the_hosts, network_namespace};
use crate::layout::CAPTURE_MAX;
use crate::options::{Client, Leaves, Options};
use crate::record::Transport;
use crate::rings::Rings;
use crate::user::Probe;

impl Options {
    /// Refuses what no hook can do.
    pub(crate) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(Error::Argument(text));
        if !self.slots.is_power_of_two() || self.slots > 1 << 23 {
            return wrong(format!("ring of {} records: expected a power of two up to 8388608", self.slots));
        }
        if self.capture > CAPTURE_MAX || !self.capture.is_multiple_of(8) {
            return wrong(format!(
                "capture of {} bytes: expected a multiple of 8 up to {CAPTURE_MAX}",
                self.capture
            ));
        }
        Rings::of(self)?;
        let names = self.clients.iter().filter(|client| matches!(client, Client::Name(_))).count();
        if names > 1 || self.clients.len() - names > PROCESSES_MAX {
            return wrong(format!("clients: expected at most {PROCESSES_MAX} processes and one name"));
        }
        for client in &self.clients {
            if let Client::Process(process) = client {
                check_processes_are_the_hosts()?;
                check_process(*process)?;
            }
        }
        if self.has_streams() && self.backend == Some(Backend::SystemCalls) {
            return wrong("streams are not followed by hooks on system calls".into());
        }
        if self.stamp.is_some() {
            self.check_stamp()?;
        }
        if self.arrivals && (self.id.is_none() || self.filter.port.is_none()) {
            return wrong("arrivals at devices are of messages over UDP, by their port and id".into());
        }
        if self.decode.is_some() && (self.capture == 0 || self.id.is_some()) {
            return wrong("decoding needs captured bytes and no id at an offset".into());
        }
        if !self.probes.is_empty() || self.backend == Some(Backend::User) {
            self.check_probes()?;
        }
        Ok(())
    }

    /// Refuses what only sockets have.
    fn check_probes(&self) -> Result<()> {
        let of_sockets = self.id.is_some()
            || self.decode.is_some()
            || self.capture > 0
            || !self.clients.is_empty()
            || self.stages
            || self.filter.port.is_some()
            || self.leaves != Leaves::Queue
            || self.backend.is_some_and(|backend| backend != Backend::User);
        if of_sockets {
            return Err(Error::Argument(
                "functions have neither sockets nor payloads: no id, decoder, capture, client, stage, port, device queue or other hooks \
                 with probes in them"
                    .into(),
            ));
        }
        Probe::check(&self.probes)
    }

    /// Refuses stamps that could not be written, or not be read.
    fn check_stamp(&self) -> Result<()> {
        let is_id = self.id.is_some_and(|id| id.bytes == 8) && self.leaves == Leaves::Queue;
        if !is_id || !self.filter.transports.contains(&Transport::Udp) {
            return Err(Error::Argument(
                "stamps are ids of eight bytes in messages over UDP, read at the device's queue".into(),
            ));
        }
        let clients = self.clients.iter().filter_map(|client| match client {
            Client::Process(process) => Some(process),
            Client::Name(_) => None,
        });
        let own = network_namespace("thread-self");
        match self.filter.processes.iter().chain(clients).find(|process| {
            let theirs = network_namespace(&process.to_string());
            theirs.is_some() && theirs != own
        }) {
            Some(process) => Err(Error::OtherNamespace(*process)),
            None => Ok(()),
        }
    }
}
