//! The cases of `queues` and their rows.

use serde::{Deserialize, Serialize};

use crate::measure::{Samples, rounded};

/// The forwarder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Plane {
    /// The kernel.
    Kernel,
    /// An XDP program by `bpf_fib_lookup`.
    Fib,
    /// trieline.
    Xdp,
}

impl Plane {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Plane::Kernel => "kernel",
            Plane::Fib => "fib",
            Plane::Xdp => "xdp",
        }
    }
}

/// How frames come from the CPU of the queue to the one that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handoff {
    /// Not at all: each CPU does all of its queue's work, to the end.
    None,
    /// An XDP program puts them into a CPU map, whose thread gives them to the kernel on the other CPU.
    Cpumap,
    /// The device's NAPI is a thread on the other CPU (`/sys/class/net/DEV/threaded`).
    ThreadedNapi,
    /// Receive packet steering to the other CPU (`rps_cpus`).
    Rps,
}

impl Handoff {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Handoff::None => "none",
            Handoff::Cpumap => "cpumap",
            Handoff::ThreadedNapi => "threaded-napi",
            Handoff::Rps => "rps",
        }
    }
}

/// The difference from the plain case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Each queue gets as many packets; counters and TX queues by CPU.
    Balanced,
    /// Zipf flows, spread by the hash.
    Skewed,
    /// The hash sees one flow: all packets come to one of the queues.
    OneTunnel,
    /// The sink counts in one word that all CPUs share.
    SharedCounter,
    /// One TX queue takes the packets of all.
    OneTxQueue,
}

impl Variant {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Balanced => "balanced",
            Variant::Skewed => "skewed",
            Variant::OneTunnel => "one-tunnel",
            Variant::SharedCounter => "shared-counter",
            Variant::OneTxQueue => "one-tx-queue",
        }
    }
}

/// One way to use queues and cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// The forwarder.
    pub plane: Plane,
    /// RX queues.
    pub queues: usize,
    /// Cores that work for them.
    pub cores: usize,
    /// How they share the work.
    pub handoff: Handoff,
    /// The difference.
    pub variant: Variant,
}

/// A case that is not measured, with the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Skip {
    /// The forwarder.
    pub plane: Plane,
    /// The hand-off.
    pub handoff: Handoff,
    /// The reason.
    pub why: &'static str,
}

impl Case {
    /// The one that all others of a plane are compared with: one queue, one core.
    pub fn is_base(&self) -> bool {
        self.cores == 1 && self.variant == Variant::Balanced
    }

    /// Its name, as `--only` takes it.
    pub fn name(&self) -> String {
        let Case { plane, queues, cores, handoff, variant } = self;
        format!("{} {queues}/{cores} {} {}", plane.name(), handoff.name(), variant.name())
    }

    /// TX queues of the egress.
    pub fn tx_queues(&self) -> usize {
        if self.variant == Variant::OneTxQueue { 1 } else { 2 }
    }

    /// All cases of a plane.
    pub fn of(plane: Plane) -> Vec<Case> {
        let case = |queues, cores, handoff, variant| Case { plane, queues, cores, handoff, variant };
        let mut cases = vec![
            case(1, 1, Handoff::None, Variant::Balanced),
            case(1, 1, Handoff::None, Variant::SharedCounter),
            case(1, 2, Handoff::ThreadedNapi, Variant::Balanced),
        ];
        if plane == Plane::Kernel {
            cases.push(case(1, 2, Handoff::Cpumap, Variant::Balanced));
            cases.push(case(1, 2, Handoff::Rps, Variant::Balanced));
        }
        for variant in [Variant::Balanced, Variant::Skewed, Variant::OneTunnel, Variant::SharedCounter] {
            cases.push(case(2, 2, Handoff::None, variant));
        }
        cases.push(case(2, 2, Handoff::None, Variant::OneTxQueue));
        cases
    }
}

/// The hand-offs that planes do not have.
pub fn skipped(planes: &[Plane]) -> Vec<Skip> {
    let of = |plane: &Plane| {
        let skip = |handoff, why| Skip { plane: *plane, handoff, why };
        [
            skip(
                Handoff::Cpumap,
                "a device has one XDP program, and a CPU map behind it gives packets to the kernel",
            ),
            skip(Handoff::Rps, "packets that XDP redirects do not reach RPS"),
        ]
    };
    planes.iter().filter(|plane| **plane != Plane::Kernel).flat_map(of).collect()
}

/// One turn of a case.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Frames sent.
    pub sent: u64,
    /// Frames that came out.
    pub delivered: u64,
    /// Delivered frames a microsecond of the queue that took the longest.
    pub mpps: f64,
}

/// A case, measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// `kernel fib xdp`.
    pub plane: Plane,
    /// RX queues.
    pub queues: usize,
    /// Cores that work for them.
    pub cores: usize,
    /// `none cpumap threaded-napi rps`.
    pub handoff: Handoff,
    /// `balanced skewed one-tunnel shared-counter one-tx-queue`.
    pub variant: Variant,
    /// Share of the packets that the busiest queue gets.
    pub share: f64,
    /// Million packets a second that came out: median of the rounds.
    pub mpps: f64,
    /// Slowest round.
    pub mpps_min: f64,
    /// Fastest.
    pub mpps_max: f64,
    /// Over one queue on one core of the same plane: median of the rounds' ratios.
    pub ratio: Option<f64>,
    /// Lowest round.
    pub ratio_min: Option<f64>,
    /// Highest.
    pub ratio_max: Option<f64>,
    /// Over the kernel's row of the same case: median of the rounds' ratios.
    pub ratio_kernel: Option<f64>,
    /// Packets sent, all rounds.
    pub frames: u64,
    /// Packets that came out, all rounds.
    pub delivered: u64,
    /// The others: a ring between two cores was full.
    pub lost: u64,
    /// Rounds.
    pub rounds: usize,
}

impl Row {
    /// From the turns of a case; those of the base and of the kernel are of the same rounds.
    pub fn new(
        case: &Case,
        share: f64,
        turns: &[Turn],
        base: Option<&[Turn]>,
        kernel: Option<&[Turn]>,
    ) -> Row {
        let rates = |turns: &[Turn]| turns.iter().map(|turn| turn.mpps).collect::<Samples>();
        let own = rates(turns);
        let [mpps, mpps_min, mpps_max] = own.spread(3);
        let against = |other: Option<&[Turn]>| other.map(|other| rates(other).ratio_of(&own).spread(2));
        let ratio = against(base);
        let (frames, delivered) = turns
            .iter()
            .fold((0, 0), |(frames, delivered), turn| (frames + turn.sent, delivered + turn.delivered));
        Row {
            plane: case.plane,
            queues: case.queues,
            cores: case.cores,
            handoff: case.handoff,
            variant: case.variant,
            share: rounded(share, 3),
            mpps,
            mpps_min,
            mpps_max,
            ratio: ratio.map(|[median, ..]| median),
            ratio_min: ratio.map(|[_, min, _]| min),
            ratio_max: ratio.map(|[.., max]| max),
            ratio_kernel: against(kernel).map(|[median, ..]| median),
            frames,
            delivered,
            lost: frames.saturating_sub(delivered),
            rounds: turns.len(),
        }
    }
}
