//! One node under test of `forward`: sends a turn of frames along a path through a plane, and looks at what arrives.

use std::{path::Path as File, time::Duration};

use super::{
    Mirror, Plane,
    rows::{Series, Turn},
};
use crate::{
    Context, Error, Result,
    daemon::{Daemon, Product},
    experiments::traffic::Path,
    frames::Kind,
    generator::Generator,
    measure::rounded,
    sinks::{Sink, Sinks},
    topology::{Device, Topology},
};

/// A topology with everything attached.
pub(super) struct Bench<'t> {
    pub(super) topology: &'t Topology,
    pub(super) generator: &'t Generator,
    pub(super) sinks: Sinks<'t>,
    pub(super) context: &'t Context<'t>,
}

impl Bench<'_> {
    /// One turn of every path and plane.
    pub(super) fn round(
        &mut self,
        paths: &[Path],
        planes: &[Plane],
        frames: u64,
        mut series: Option<&mut Series>,
    ) -> Result<()> {
        let r0 = self.topology.r0.clone();
        let redirect = self.turn("encap", Kind::Ipv4, &r0, Sink::Xdp, frames)?.0;
        if let Some(series) = &mut series {
            series.redirect.push(redirect);
        }
        for (p, path) in paths.iter().enumerate() {
            let ns = self.generator_alone(*path, frames)?;
            if let Some(series) = &mut series {
                series.generator[p].push(ns);
            }
            let mut kernels = Vec::new();
            for (q, plane) in planes.iter().enumerate() {
                let (ingress, sink) = match plane {
                    Plane::Kernel => (self.topology.k0.clone(), Sink::Xdp),
                    Plane::KernelTcSink => (self.topology.k0.clone(), Sink::Tc),
                    Plane::Xdp => (self.topology.n0.clone(), Sink::Xdp),
                };
                let (turn, first) = self.turn(path.name(), path.kind(), &ingress, sink, frames)?;
                match plane {
                    Plane::Kernel => kernels = first,
                    Plane::KernelTcSink => {}
                    Plane::Xdp => same(path.name(), &first, &kernels)?,
                }
                if let Some(series) = &mut series {
                    series.turns[p][q].push(turn);
                }
            }
        }
        Ok(())
    }

    /// Sends a turn; with the first frame that arrived.
    pub(super) fn turn(
        &mut self,
        name: &str,
        kind: Kind,
        ingress: &Device,
        sink: Sink,
        frames: u64,
    ) -> Result<(Turn, Vec<u8>)> {
        self.context.check()?;
        self.sinks.set_tc(sink == Sink::Tc)?;
        self.sinks.clear(sink)?;
        let out = self.topology.towards(ingress);
        let frame = kind.frame(out.mac, ingress.mac);
        let sent = self.generator.run(name, &self.topology.source, out.index, &frame, frames, false)?;
        let seen = self.sinks.settled(sink, sent.frames)?;
        self.context.progress.advance(1);
        Ok((Turn { ns: sent.ns(), sent: sent.frames, delivered: seen.frames }, seen.frame))
    }

    /// Nanoseconds a frame of the generator alone.
    pub(super) fn generator_alone(&mut self, path: Path, frames: u64) -> Result<f64> {
        self.context.check()?;
        let out = &self.topology.g0;
        let frame = path.kind().frame(out.mac, self.topology.n0.mac);
        let sent = self.generator.run(path.name(), &self.topology.source, out.index, &frame, frames, true)?;
        self.context.progress.advance(1);
        Ok(sent.ns())
    }

    /// Starts the product and waits until XDP forwards every path. The tc sink stops what the kernel still forwards, so only
    /// XDP's frames reach s0.
    pub(super) fn start(
        &mut self,
        product: &Product,
        paths: &[Path],
        configuration: Option<&File>,
    ) -> Result<(Daemon, Mirror)> {
        const PATIENCE: Duration = Duration::from_secs(60);
        self.context.progress.phase("mirroring", 0);
        self.sinks.set_tc(true)?;
        self.sinks.clear(Sink::Xdp)?;
        let n0 = self.topology.n0.clone();
        let devices = [n0.name, self.topology.n1.name];
        let mut daemon = Daemon::start(product, &self.topology.node, &devices, configuration)?;
        let mut first_ns = 0;
        let mut missing = paths.to_vec();
        while let Some(path) = missing.first().copied() {
            self.context.check()?;
            daemon.check()?;
            if daemon.age() > PATIENCE {
                let names: Vec<_> = missing.iter().map(|path| path.name()).collect();
                return Err(daemon.failed(format!(
                    "after {} s XDP does not forward {} (probes of 64 frames, the kernel's forwarding stopped)",
                    PATIENCE.as_secs(),
                    names.join(", ")
                )));
            }
            let before = self.sinks.seen(Sink::Xdp)?;
            let out = self.topology.towards(&n0);
            let frame = path.kind().frame(out.mac, n0.mac);
            let sent =
                self.generator.run(path.name(), &self.topology.source, out.index, &frame, 64, false)?;
            std::thread::sleep(Duration::from_millis(2));
            let after = self.sinks.seen(Sink::Xdp)?;
            if first_ns == 0 {
                first_ns = after.first_ns;
            }
            if after.frames - before.frames == sent.frames {
                missing.remove(0);
            }
        }
        let all = daemon.age();
        self.sinks.set_tc(false)?;
        let mirror = Mirror {
            start_to_first_forwarded_ms: rounded(
                first_ns.saturating_sub(daemon.started_ns()) as f64 / 1e6,
                1,
            ),
            start_to_all_paths_ms: rounded(all.as_secs_f64() * 1e3, 1),
            status: daemon.status(),
        };
        Ok((daemon, mirror))
    }
}

/// An error unless the first frame of a turn, as the sink keeps it, is what it must be.
pub(super) fn same(path: &str, got: &[u8], expected: &[u8]) -> Result<()> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if got == expected {
        return Ok(());
    }
    let what = format!("{path}: XDP sent {} where the kernel sent {}", hex(got), hex(expected));
    Err(Error::Daemon { what, stderr: String::new() })
}
