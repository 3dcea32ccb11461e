//! Frames that XDP programs of a network namespace redirected in vain: the kernel's tracepoints count them, drivers as something else.

use libbpf_rs::{Link, Object};

use crate::{
    error::{During, Result},
    object::{self, Compiled, compiled, get},
};

const COMPILED: fn() -> Compiled = || compiled!("redirects");

/// The counts so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Errors {
    /// Frames that the kernel did not redirect: too long for the output device, which is down, or not there.
    pub refused: u64,
    /// Frames that the output device's driver did not take: its ring was full.
    pub dropped: u64,
}

impl Errors {
    /// Those since `before`.
    pub fn since(self, before: Errors) -> Errors {
        Errors { refused: self.refused - before.refused, dropped: self.dropped - before.dropped }
    }

    /// Both.
    pub fn all(self) -> u64 {
        self.refused + self.dropped
    }
}

/// Counts as long as this lives.
pub struct Redirects {
    object: Object,
    _links: [Link; 2],
}

impl Redirects {
    /// Counts frames that come in by devices of the namespace with this inode.
    ///
    /// # Errors
    /// The kernel has no BTF, or not these tracepoints.
    pub fn count(namespace: u64) -> Result<Redirects> {
        let compiled = COMPILED();
        let mut open = compiled.open()?;
        for mut map in open.maps_mut().filter(|map| map.name().to_string_lossy().ends_with(".namespace")) {
            map.set_initial_value(&(namespace as u32).to_ne_bytes())
                .during(|| "cannot name the namespace whose redirect errors count".into())?;
        }
        let object = compiled.load(open)?;
        let attach = |name: &str| {
            let program = compiled.program_mut(&object, name)?;
            program.attach().during(|| format!("cannot count redirect errors by {name}"))
        };
        let _links = [attach("refused")?, attach("handed")?];
        Ok(Redirects { object, _links })
    }

    /// The counts so far.
    pub fn errors(&self) -> Result<Errors> {
        let bytes = object::read(&COMPILED().map(&self.object, ".bss.redirects")?)?;
        Ok(Errors {
            refused: get!(bytes, lab_redirects.refused),
            dropped: get!(bytes, lab_redirects.dropped),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, sync::atomic::AtomicBool};

    use super::*;
    use crate::{
        Context, Quiet,
        frames::Kind,
        generator::{Destinations, Generator},
        sinks::Sinks,
        testing::alone,
        topology::Topology,
    };

    #[test]
    fn frames_that_cannot_be_redirected_count_in_their_namespace_only() {
        let Some(_alone) = alone() else { return };
        let interrupt = AtomicBool::new(false);
        let topology = Topology::create(&Context { progress: &Quiet, interrupt: &interrupt }).unwrap();
        let _sinks = Sinks::attach(&topology).unwrap();
        let mut generator = Generator::new();
        generator.destinations("x", &Destinations::V4(vec![Ipv4Addr::new(20, 1, 2, 3)])).unwrap();
        let here = Redirects::count(topology.node.inode()).unwrap();
        let elsewhere = Redirects::count(topology.source.inode()).unwrap();
        let send = || {
            let frame = Kind::Ipv4.frame(topology.gr.mac, topology.r0.mac);
            generator.run("x", &topology.source, topology.gr.index, &frame, 1000, false).unwrap();
        };
        send();
        assert_eq!(here.errors().unwrap(), Errors::default());
        topology.node.ip_words(&["link", "set", "n1", "down"]).unwrap();
        send();
        assert_eq!(here.errors().unwrap(), Errors { refused: 1000, dropped: 0 });
        assert_eq!(elsewhere.errors().unwrap(), Errors::default());
    }
}
