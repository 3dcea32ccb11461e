//! Plane `fib`: an XDP program that forwards by `bpf_fib_lookup`, on an ingress of its own.

use libbpf_rs::{Link, MapCore, MapFlags, Object};

use crate::{
    error::{During, Result},
    object::{self, Compiled, compiled, word},
    topology::Topology,
};

const COMPILED: fn() -> Compiled = || compiled!("xdp_fib");

/// The program on f0, as long as this lives.
pub struct XdpFib {
    object: Object,
    _link: Link,
}

impl XdpFib {
    /// Loads and attaches it; n1 is the only device that packets may leave by.
    pub fn attach(topology: &Topology) -> Result<XdpFib> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        // Where the map looks for the device, too.
        let _inside = topology.node.enter_here()?;
        let n1 = topology.n1.index.to_ne_bytes();
        compiled
            .map(&object, "egress")?
            .update(&n1, &n1, MapFlags::ANY)
            .during(|| "cannot put n1 into the device map of plane fib".into())?;
        let link = compiled
            .program_mut(&object, "forward")?
            .attach_xdp(topology.f0.index as i32)
            .during(|| "cannot attach the program of plane fib to f0".into())?;
        Ok(XdpFib { object, _link: link })
    }

    /// Unicast frames so far that the program left to the kernel.
    pub fn passed(&self) -> Result<u64> {
        Ok(word(&object::read(&COMPILED().map(&self.object, ".bss.passed")?)?, 0))
    }
}
