//! One node under test of `forward`: sends a turn of frames along a path through a plane, and looks at what arrives.

use std::{os::unix::process::CommandExt, path::Path as File, process::Command, time::Duration};

use trieline_testbed::daemon::{Daemon, Programs};

use super::{
    case::{Case, Plane, Sample, Turn},
    document::Mirror,
    path::Path,
};
use crate::{
    Context, Result,
    frames::Kind,
    generator::Generator,
    measure::rounded,
    sinks::{Sink, Sinks},
    topology::{Device, Topology},
    xdp_fib::XdpFib,
};

/// A topology with everything attached.
pub(super) struct Bench<'t> {
    pub(super) topology: &'t Topology,
    pub(super) generator: &'t Generator,
    pub(super) sinks: Sinks<'t>,
    /// Plane `fib`, where it has turns.
    pub(super) fib: Option<XdpFib>,
    pub(super) context: &'t Context<'t>,
}

impl Bench<'_> {
    /// One case's turn.
    pub(super) fn case(&mut self, case: Case, frames: u64) -> Result<Sample> {
        let (path, plane) = match case {
            Case::Redirect => {
                let r0 = self.topology.r0.clone();
                return self.turn("encap", Kind::Ipv4, &r0, Sink::Xdp, frames);
            }
            Case::Generator(path) => return self.generator_alone(path, frames),
            Case::Path(path, plane) => (path, plane),
        };
        let (ingress, sink) = match plane {
            Plane::Kernel => (self.topology.k0.clone(), Sink::Xdp),
            Plane::KernelTcSink => (self.topology.k0.clone(), Sink::Tc),
            Plane::Fib => (self.topology.f0.clone(), Sink::Xdp),
            Plane::Flowtable | Plane::Xdp => (self.topology.n0.clone(), Sink::Xdp),
        };
        let before = self.passed()?;
        let sample = self.turn(path.name(), path.kind(), &ingress, sink, frames)?;
        let passed = self.passed()? - before;
        let refused = (plane == Plane::Fib && passed > 0)
            .then(|| format!("bpf_fib_lookup left {passed} of {} frames to the kernel", sample.turn.sent));
        Ok(Sample { refused, ..sample })
    }

    /// Frames so far that plane `fib` left to the kernel.
    fn passed(&self) -> Result<u64> {
        self.fib.as_ref().map_or(Ok(0), XdpFib::passed)
    }

    /// Sends a turn; with the first frame that arrived.
    pub(super) fn turn(
        &mut self,
        name: &str,
        kind: Kind,
        ingress: &Device,
        sink: Sink,
        frames: u64,
    ) -> Result<Sample> {
        self.sinks.set_tc(sink == Sink::Tc)?;
        self.sinks.clear(sink)?;
        let out = self.topology.towards(ingress);
        let frame = kind.frame(out.mac, ingress.mac);
        let sent = self.generator.run(name, &self.topology.source, out.index, &frame, frames, false)?;
        let seen = self.sinks.settled(sink, sent.frames)?;
        let turn = Turn { ns: sent.ns(), sent: sent.frames, delivered: seen.frames };
        Ok(Sample { turn, first: seen.frame, refused: None })
    }

    /// A turn of the generator alone, whose frames go nowhere.
    pub(super) fn generator_alone(&mut self, path: Path, frames: u64) -> Result<Sample> {
        let out = &self.topology.g0;
        let frame = path.kind().frame(out.mac, self.topology.n0.mac);
        let sent = self.generator.run(path.name(), &self.topology.source, out.index, &frame, frames, true)?;
        Ok(Sample { turn: Turn { ns: sent.ns(), sent: 0, delivered: 0 }, first: Vec::new(), refused: None })
    }

    /// Starts the product and waits until XDP forwards every path. The tc sink stops what the kernel still forwards, so only
    /// XDP's frames reach s0.
    pub(super) fn start(
        &mut self,
        programs: &Programs,
        paths: &[Path],
        configuration: Option<&File>,
    ) -> Result<(Daemon, Mirror)> {
        const PATIENCE: Duration = Duration::from_secs(60);
        self.context.progress.phase("mirroring", 0);
        self.sinks.set_tc(true)?;
        self.sinks.clear(Sink::Xdp)?;
        let n0 = self.topology.n0.clone();
        let devices = [n0.name, self.topology.n1.name];
        let arguments = |command: &mut Command| {
            if let Some(file) = configuration {
                command.arg("--config").arg(file);
            }
            for device in devices {
                command.args(["--dev", device]);
            }
            // A group of its own: Ctrl-C reaches us, and we end it.
            command.process_group(0);
        };
        let mut daemon = Daemon::launch(programs.clone(), &self.topology.node, arguments)?;
        let mut first_ns = 0;
        let mut missing = paths.to_vec();
        while let Some(path) = missing.first().copied() {
            self.context.check()?;
            daemon.check()?;
            if daemon.age() > PATIENCE {
                let names: Vec<_> = missing.iter().map(|path| path.name()).collect();
                let failed = daemon.failed(format!(
                    "after {} s XDP does not forward {} (probes of 64 frames, the kernel's forwarding stopped)",
                    PATIENCE.as_secs(),
                    names.join(", ")
                ));
                return Err(failed.into());
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
