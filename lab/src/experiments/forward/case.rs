//! Those that have a turn in each round of `forward`, and the result of a turn.

use serde::{Deserialize, Serialize};

use super::path::Path;
use crate::{Error, Result};

/// The forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// The kernel, into the XDP sink on s0.
    Kernel,
    /// The kernel, into a tc sink on n1's egress: without the transmit.
    KernelTcSink,
    /// The kernel by an nftables flowtable, into the XDP sink.
    Flowtable,
    /// An XDP program by `bpf_fib_lookup`, into the XDP sink.
    Fib,
    /// XDP, into the XDP sink.
    Xdp,
}

impl Plane {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Plane::Kernel => "kernel",
            Plane::KernelTcSink => "kernel-tc-sink",
            Plane::Flowtable => "flowtable",
            Plane::Fib => "fib",
            Plane::Xdp => "xdp",
        }
    }

    /// Whether a failure of it takes its own rows only, and not the run.
    pub(super) fn is_rival(self) -> bool {
        matches!(self, Plane::Fib | Plane::Flowtable)
    }

    /// The reason why it cannot do the work of a path.
    pub(super) fn refusal(self, path: Path) -> Option<&'static str> {
        let is_plain = matches!(path, Path::Ipv4 | Path::Ipv4Full | Path::Ipv6);
        match self {
            Plane::Fib | Plane::Flowtable if !is_plain => Some("it does not do SRv6"),
            Plane::Flowtable if path != Path::Ipv4 => {
                Some("it keeps a flow for each destination, and these are more than conntrack has room for")
            }
            _ => None,
        }
    }
}

/// One of those that have a turn in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Case {
    /// The bare redirect.
    Redirect,
    /// The generator alone, by the path whose frames it makes.
    Generator(Path),
    /// A path through a plane.
    Path(Path, Plane),
}

impl Case {
    /// All of them.
    pub(super) fn all(paths: &[Path], planes: &[Plane]) -> Vec<Case> {
        let of = |path: &Path| {
            let planes = planes.iter().filter(|plane| plane.refusal(*path).is_none());
            let through = planes.map(|plane| Case::Path(*path, *plane)).collect::<Vec<_>>();
            std::iter::once(Case::Generator(*path)).chain(through)
        };
        std::iter::once(Case::Redirect).chain(paths.iter().flat_map(of)).collect()
    }
}

/// A turn, with the first frame that arrived.
pub(super) struct Sample {
    pub(super) turn: Turn,
    pub(super) first: Vec<u8>,
    /// The reason why the turn says nothing about its rival.
    pub(super) refused: Option<String>,
}

impl Sample {
    /// A rival's turn that failed.
    pub(super) fn failed(why: String) -> Sample {
        Sample { turn: Turn { ns: f64::NAN, sent: 0, delivered: 0 }, first: Vec::new(), refused: Some(why) }
    }
}

/// The result of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) ns: f64,
    pub(super) sent: u64,
    pub(super) delivered: u64,
}

impl Turn {
    /// Whether frames of it did not arrive. No figure is made of such a turn: lost frames cost less than forwarded ones.
    pub(super) fn is_lossy(&self) -> bool {
        self.delivered < self.sent
    }

    /// Nanoseconds a frame; NaN of a turn that lost some.
    pub(super) fn ns(&self) -> f64 {
        if self.is_lossy() { f64::NAN } else { self.ns }
    }
}

/// An error unless the first frame of a turn, as the sink keeps it, is the kernel's.
pub(super) fn same(path: &str, plane: Plane, got: &[u8], expected: &[u8]) -> Result<()> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if got == expected {
        return Ok(());
    }
    let what = format!("{path}: {} sent {} where the kernel sent {}", plane.name(), hex(got), hex(expected));
    Err(Error::Daemon { what, stderr: String::new() })
}
