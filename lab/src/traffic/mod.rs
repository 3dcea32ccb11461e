//! Measuring traffic: a [`Sender`] whose program makes marked frames at a given rate, and a [`Receiver`] whose program counts them.
//!
//! Each frame carries behind its UDP header the run's tag, its flow, its sequence number within the flow and the monotonic clock. From these
//! the receiver knows per flow what was lost, repeated and reordered, and how long each frame took.
//!
//! ```no_run
//! # use trieline_lab::{Result, frames::Kind, topology::Topology, traffic::{Flows, Load, Receiver, Sender}};
//! # fn f(topology: &Topology) -> Result<()> {
//! let flows = Flows::within("198.18.0.0".parse().unwrap(), 24, 200, 1);
//! let mut receiver = Receiver::new(flows.count())?;
//! receiver.attach(&topology.sink, topology.s0.index)?;
//! let frame = Kind::Ipv4.frame(topology.gk.mac, topology.k0.mac);
//! let sender = Sender::new(&[frame], &flows)?;
//! let load = Load::paced(100_000.0, 50_000);
//! receiver.begin(load.tag)?;
//! let running = sender.start(&topology.source, topology.gk.index, load)?;
//! let (_sender, sent) = running.join()?;
//! let received = receiver.settled(sent.frames)?;
//! println!("{} lost, p99 {} ns", received.lost(&sent), received.latency.quantile(0.99));
//! # Ok(()) }
//! ```

mod flows;
mod latency;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use flows::Flows;
pub use latency::Latency;
pub use receiver::{FlowSeen, Received, Receiver};
pub use sender::{Load, Running, Sender, Sent};

use crate::object::{Compiled, compiled};

/// Most flows of a sender, and of a receiver.
pub const FLOWS_MAX: usize = 1 << 16;

const COMPILED: fn() -> Compiled = || compiled!("traffic");
