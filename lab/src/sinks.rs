//! Attaches the sinks and the bare redirect to a topology, and reads what arrived.

use std::{
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object, TC_EGRESS, TC_INGRESS, TcHook, TcHookBuilder};

use trieline_testbed::namespace::Namespace;

use crate::{
    error::{During, Result},
    object::{self, Compiled, compiled, get, types},
    topology::Topology,
};

/// The counts of a sink since it was cleared.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Unicast frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// CLOCK_MONOTONIC at the first, in nanoseconds; 0 = none.
    pub first_ns: u64,
    /// The first frame (XDP sink only).
    pub frame: Vec<u8>,
}

/// A tc program on the egress of a device, as long as this lives.
pub struct Egress<'t> {
    namespace: &'t Namespace,
    hook: Option<TcHook>,
}

impl<'t> Egress<'t> {
    /// Attaches it.
    pub fn attach(namespace: &'t Namespace, device: u32, program: BorrowedFd) -> Result<Egress<'t>> {
        let _inside = namespace.enter_here()?;
        let mut builder = TcHookBuilder::new(program);
        let mut hook = builder.ifindex(device as i32).replace(true).handle(1).priority(1).hook(TC_EGRESS);
        hook.create().during(|| format!("cannot make clsact on device {device}"))?;
        let mut egress = Egress { namespace, hook: Some(hook) };
        if let Some(hook) = &mut egress.hook {
            hook.attach().during(|| format!("cannot attach a tc program to device {device}"))?;
        }
        Ok(egress)
    }

    /// Detaches it.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn detach(mut self) -> Result<()> {
        self.remove()
    }

    fn remove(&mut self) -> Result<()> {
        let Some(mut hook) = self.hook.take() else { return Ok(()) };
        let _inside = self.namespace.enter_here()?;
        // Both attach points together name the qdisc itself.
        hook.attach_point(TC_EGRESS | TC_INGRESS);
        hook.destroy().during(|| "cannot remove clsact".into())
    }
}

impl Drop for Egress<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(%error, "tc program not removed");
        }
    }
}

/// XDP sink on s0 and bare redirect on r0, as long as this lives; the tc sink comes and goes.
pub struct Sinks<'t> {
    topology: &'t Topology,
    // Before the object goes.
    tc: Option<Egress<'t>>,
    object: Object,
    _links: [Link; 2],
}

const COMPILED: fn() -> Compiled = || compiled!("sinks");

/// Which sink to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// On s0, behind the veth pair.
    Xdp,
    /// On n1's egress: the kernel path without its transmit.
    Tc,
}

impl Sink {
    fn section(self) -> &'static str {
        match self {
            Sink::Xdp => ".bss.xdp",
            Sink::Tc => ".bss.tc",
        }
    }
}

/// The bare redirect on r0 alone, as long as this lives.
pub struct Redirect {
    _object: Object,
    _link: Link,
}

impl Redirect {
    /// Loads and attaches it.
    pub fn attach(topology: &Topology) -> Result<Redirect> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        let link = attach_redirect(topology, &object)?;
        Ok(Redirect { _object: object, _link: link })
    }
}

fn attach_redirect(topology: &Topology, object: &Object) -> Result<Link> {
    let compiled = COMPILED();
    let _inside = topology.node.enter_here()?;
    compiled
        .map(object, "egress")?
        .update(&0u32.to_ne_bytes(), &topology.n1.index.to_ne_bytes(), MapFlags::ANY)
        .during(|| "cannot put n1 into the device map".into())?;
    let program = compiled.program_mut(object, "redirect")?;
    program.attach_xdp(topology.r0.index as i32).during(|| "cannot attach the redirect to r0".into())
}

impl<'t> Sinks<'t> {
    /// Loads and attaches.
    pub fn attach(topology: &'t Topology) -> Result<Sinks<'t>> {
        let compiled = COMPILED();
        let object = compiled.load(compiled.open()?)?;
        let sink = {
            let _inside = topology.sink.enter_here()?;
            let program = compiled.program_mut(&object, "sink")?;
            program.attach_xdp(topology.s0.index as i32).during(|| "cannot attach the sink to s0".into())?
        };
        let redirect = attach_redirect(topology, &object)?;
        Ok(Sinks { topology, object, tc: None, _links: [sink, redirect] })
    }

    /// Drops on n1's egress, in tc, whatever the kernel sends (frames that XDP redirects do not pass there), or stops doing so.
    pub fn set_tc(&mut self, on: bool) -> Result<()> {
        if on == self.tc.is_some() {
            return Ok(());
        }
        if let Some(egress) = self.tc.take() {
            return egress.detach();
        }
        let program = COMPILED().program(&self.object, "tc_sink")?;
        let Topology { node, n1, .. } = self.topology;
        self.tc = Some(Egress::attach(node, n1.index, program.as_fd())?);
        Ok(())
    }

    /// Forgets what a sink saw.
    pub fn clear(&self, sink: Sink) -> Result<()> {
        object::write(&COMPILED().map(&self.object, sink.section())?, &[])
    }

    /// The counts of a sink.
    pub fn seen(&self, sink: Sink) -> Result<Seen> {
        let bytes = object::read(&COMPILED().map(&self.object, sink.section())?)?;
        let kept = std::mem::offset_of!(types::lab_sink, kept);
        let kept = bytes.get(kept..kept + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
        let frame = std::mem::offset_of!(types::lab_sink, frame);
        Ok(Seen {
            frames: get!(bytes, lab_sink.frames),
            bytes: get!(bytes, lab_sink.bytes),
            first_ns: get!(bytes, lab_sink.first_ns),
            frame: bytes.get(frame..frame + kept as usize).unwrap_or_default().to_vec(),
        })
    }

    /// As [`Sinks::seen`], once `frames` have arrived or a moment has passed: the last few may still be on their way.
    pub fn settled(&self, sink: Sink, frames: u64) -> Result<Seen> {
        let until = Instant::now() + Duration::from_millis(100);
        loop {
            let seen = self.seen(sink)?;
            if seen.frames >= frames || Instant::now() > until {
                return Ok(seen);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
