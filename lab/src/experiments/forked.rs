//! A forked node under test, with marked frames through it: shared by `churn` and `convergence`.

use std::{net::Ipv4Addr, os::unix::process::CommandExt, path::PathBuf, process::Command, time::Duration};

use serde::{Deserialize, Serialize};
use trieline_testbed::daemon::{Daemon, Programs};

use crate::{
    Context, Error, Result,
    fork::{Fork, Way},
    frames::Kind,
    netlink::{Change, Netlink},
    netns,
    traffic::{Flows, Load, Receiver, Running, Sender},
};

/// How long trielined may take to forward.
const PATIENCE: Duration = Duration::from_secs(120);

/// The forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// The kernel; no trielined runs in its namespace.
    Kernel,
    /// XDP, after trielined.
    Xdp,
}

impl Plane {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        if self == Plane::Kernel { "kernel" } else { "xdp" }
    }
}

/// The product as a node runs it.
#[derive(Clone, Debug)]
pub(super) struct Product {
    pub(super) programs: Programs,
    /// Without one it has no filters.
    pub(super) configuration: Option<PathBuf>,
}

/// The verdicts of the XDP program: what it did with packets so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Verdicts {
    pub(super) forwarded: u64,
    pub(super) passed: u64,
}

/// A forked node with a receiver at both ends. Dropping it takes everything down.
pub(super) struct Node<'c> {
    pub(super) plane: Plane,
    pub(super) netlink: Netlink,
    pub(super) receiver: Receiver,
    pub(super) fork: Fork,
    product: Option<Product>,
    daemon: Option<Daemon>,
    cpu: u32,
    context: &'c Context<'c>,
}

impl<'c> Node<'c> {
    /// Makes it, for so many flows. Frames are sent on the last CPU. trielined does not run yet.
    pub(super) fn create(product: Option<&Product>, flows: usize, context: &'c Context<'c>) -> Result<Self> {
        context.check()?;
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        if cores < 2 {
            let why = "expected two processors or more: traffic on one, changes and trielined on the other";
            return Err(Error::Traffic(why.into()));
        }
        let fork = Fork::create()?;
        let mut receiver = Receiver::new(flows)?;
        for way in [Way::A, Way::B] {
            receiver.attach(&fork.sink, fork.end(way).index)?;
        }
        let (netlink, cpu) = (fork.netlink()?, netns::last_cpu()?);
        let plane = if product.is_some() { Plane::Xdp } else { Plane::Kernel };
        Ok(Node { plane, netlink, receiver, fork, product: product.cloned(), daemon: None, cpu, context })
    }

    /// Starts trielined, if this node has the product, and waits until it forwards.
    pub(super) fn start(&mut self) -> Result<()> {
        let Some(product) = &self.product else { return Ok(()) };
        let arguments = |command: &mut Command| {
            if let Some(file) = &product.configuration {
                command.arg("--config").arg(file);
            }
            command.args(["--dev", "n0", "--dev", "n1", "--dev", "n2"]);
            // A group of its own: Ctrl-C reaches us, and we end it.
            command.process_group(0);
        };
        let mut daemon = Daemon::launch(product.programs.clone(), &self.fork.node, arguments)?;
        let ready = daemon.ready(PATIENCE, || !self.context.interrupted());
        self.context.check()?;
        ready?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Kills trielined as `kill -9` does; what it pinned forwards on.
    pub(super) fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// Asks trielined to end and waits until it has; what it pinned forwards on.
    pub(super) fn end(&mut self) -> Result<()> {
        self.daemon.take().map_or(Ok(()), |daemon| Ok(daemon.end().map(drop)?))
    }

    /// Makes trielined read its configuration again.
    pub(super) fn reload(&self) {
        if let Some(daemon) = &self.daemon {
            daemon.reload();
        }
    }

    /// An error if trielined, which should run, has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        self.context.check()?;
        Ok(self.daemon.as_mut().map_or(Ok(()), Daemon::check)?)
    }

    /// An error with the end of trielined's log, if it runs.
    pub(super) fn failed(&self, what: String) -> Error {
        match &self.daemon {
            Some(daemon) => daemon.failed(what).into(),
            None => Error::Traffic(what),
        }
    }

    /// A way to ask `trieline` about this node, from any thread; none for the kernel.
    pub(super) fn asker(&self) -> Option<Asker> {
        let product = self.product.as_ref()?;
        Some(Asker { programs: product.programs.clone(), namespace: self.fork.node.name().to_owned() })
    }

    /// The counts of the XDP program so far; zeros for the kernel.
    pub(super) fn verdicts(&self) -> Result<Verdicts> {
        let Some(asker) = self.asker() else { return Ok(Verdicts::default()) };
        let status = asker.ask(&["node", "status"]);
        let counters = status.as_ref().and_then(|status| status["counters"].as_array());
        let counters = counters.ok_or_else(|| self.failed("cannot read trielined's status".into()))?;
        let sum = |kind: &str| {
            let of = counters.iter().filter(|counter| counter["kind"] == kind);
            of.filter_map(|counter| counter["packets"].as_u64()).sum()
        };
        Ok(Verdicts { forwarded: sum("forward"), passed: sum("pass") })
    }

    /// A sender of frames to these hosts: in turn, or in the given order of their places.
    pub(super) fn sender(
        &self,
        hosts: impl IntoIterator<Item = Ipv4Addr>,
        order: Option<Vec<usize>>,
    ) -> Result<Sender> {
        let mut flows = Flows::to(hosts.into_iter().map(Into::into));
        if let Some(order) = order {
            flows = flows.in_order(order);
        }
        let kind = Kind::Ipv4;
        let frame = kind.frame_of(kind.marked_bytes(), self.fork.g0.mac, self.fork.n0.mac);
        Sender::new(&[frame], &flows)
    }

    /// Starts a stream of `rate` frames a second for at most `seconds`, and counts what arrives from now on.
    pub(super) fn stream(&mut self, sender: Sender, rate: u32, seconds: f64) -> Result<Running> {
        let load = Load::paced(rate.into(), (f64::from(rate) * seconds) as u64).on(self.cpu);
        self.receiver.begin(load.tag)?;
        sender.start(&self.fork.source, self.fork.g0.index, load)
    }
}

impl Drop for Node<'_> {
    fn drop(&mut self) {
        // A daemon that runs takes its forwarding down itself when it is dropped. The rest of an ended one is taken down here.
        if let (None, Some(asker)) = (&self.daemon, self.asker())
            && let Err(error) = asker.programs.detach(&asker.namespace)
        {
            tracing::warn!(%error, "forwarding not taken down");
        }
    }
}

/// Asks `trieline` about a node.
#[derive(Clone, Debug)]
pub(super) struct Asker {
    programs: Programs,
    namespace: String,
}

impl Asker {
    /// The document of a command; none when it fails.
    pub(super) fn ask(&self, words: &[&str]) -> Option<serde_json::Value> {
        self.programs.ask(&self.namespace, words)
    }
}

/// Makes all changes, with progress, unless the caller wants the experiment to stop.
pub(super) fn make(
    netlink: &mut Netlink,
    changes: impl IntoIterator<Item = Change>,
    context: &Context,
) -> Result<()> {
    let mut before = 0;
    netlink.make(changes, |made| {
        context.progress.advance(made - before);
        before = made;
        !context.interrupted()
    })?;
    context.check()
}
