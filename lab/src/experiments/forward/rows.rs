//! What `forward` says of each path and plane, from the turns of all rounds.

use serde::Serialize;

use crate::{
    experiments::traffic::Path,
    frames::Kind,
    measure::{Samples, rounded},
    plot::Line,
};

/// Who forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plane {
    /// The kernel, into the XDP sink on s0.
    Kernel,
    /// The kernel, into a tc sink on n1's egress: without the transmit.
    KernelTcSink,
    /// XDP, into the XDP sink.
    Xdp,
}

/// One path through one plane.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `ipv4 ipv6 decap encap`, or `redirect`: the bare redirect.
    pub path: &'static str,
    /// `kernel kernel-tc-sink xdp`.
    pub plane: Plane,
    /// Length of the frames sent, without FCS.
    pub frame_bytes: usize,
    /// Routes in the node's kernel.
    pub routes: u64,
    /// Million frames a second, from the median.
    pub mpps: f64,
    /// Nanoseconds a frame, generator included: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest round.
    pub ns_max: f64,
    /// What the generator alone takes, the same rounds.
    pub ns_generator: f64,
    /// Median of the rounds' differences: without the generator.
    pub ns_net: f64,
    /// The kernel's ns over this ns, gross: median of the rounds.
    pub ratio: Option<f64>,
    /// Lowest and highest of the rounds.
    pub ratio_min: Option<f64>,
    /// Highest.
    pub ratio_max: Option<f64>,
    /// Likewise against the kernel with the tc sink.
    pub ratio_tc: Option<f64>,
    /// Frames counted at the sink, all rounds: as many as `frames` when none was lost.
    pub delivered: u64,
    /// Frames sent, all rounds.
    pub frames: u64,
}

/// A line of a picture for each row.
pub fn lines(rows: &[Row]) -> Vec<Line> {
    let line = |row: &Row| {
        let plane = match row.plane {
            Plane::Kernel => "kernel",
            Plane::KernelTcSink => "kernel, tc sink",
            Plane::Xdp => "XDP",
        };
        let ratio = row.ratio.map(|ratio| format!(" ({ratio:.1}x)")).unwrap_or_default();
        Line {
            label: format!("{} {plane}", row.path),
            value: row.ns,
            min: row.ns_min,
            max: row.ns_max,
            series: row.plane as usize,
            note: format!("{:.1} ns{ratio}", row.ns),
        }
    };
    rows.iter().map(line).collect()
}

/// What a turn measured.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) ns: f64,
    pub(super) sent: u64,
    pub(super) delivered: u64,
}

/// All turns by path and plane.
pub(super) struct Series {
    paths: Vec<Path>,
    planes: Vec<Plane>,
    pub(super) redirect: Vec<Turn>,
    pub(super) generator: Vec<Samples>,
    pub(super) turns: Vec<Vec<Vec<Turn>>>,
}

impl Series {
    pub(super) fn new(paths: &[Path], planes: &[Plane]) -> Series {
        Series {
            paths: paths.to_vec(),
            planes: planes.to_vec(),
            redirect: Vec::new(),
            generator: vec![Samples::default(); paths.len()],
            turns: vec![vec![Vec::new(); planes.len()]; paths.len()],
        }
    }

    pub(super) fn rows(&self, routes: u64) -> Vec<Row> {
        let ns = |turns: &[Turn]| turns.iter().map(|turn| turn.ns).collect::<Samples>();
        let mut rows = Vec::new();
        let row =
            |path, kind: Kind, plane, turns: &[Turn], generator: &Samples, kernel: &Samples, tc: &Samples| {
                let own = ns(turns);
                let (sent, delivered) = turns
                    .iter()
                    .fold((0, 0), |(sent, delivered), t| (sent + t.sent, delivered + t.delivered));
                let net: Samples =
                    turns.iter().zip(generator.values()).map(|(turn, gen_)| turn.ns - gen_).collect();
                let ratio = own.ratio_of(kernel);
                Row {
                    path,
                    plane,
                    frame_bytes: kind.frame_bytes(),
                    routes,
                    mpps: rounded(1e3 / own.median(), 3),
                    ns: rounded(own.median(), 1),
                    ns_min: rounded(own.min(), 1),
                    ns_max: rounded(own.max(), 1),
                    ns_generator: rounded(generator.median(), 1),
                    ns_net: rounded(net.median(), 1),
                    ratio: Some(rounded(ratio.median(), 2)),
                    ratio_min: Some(rounded(ratio.min(), 2)),
                    ratio_max: Some(rounded(ratio.max(), 2)),
                    ratio_tc: Some(rounded(own.ratio_of(tc).median(), 2)),
                    delivered,
                    frames: sent,
                }
            };
        for (p, path) in self.paths.iter().enumerate() {
            let (kernel, tc) = (ns(&self.turns[p][0]), ns(&self.turns[p][1]));
            if p == 0 {
                // The redirect does nothing but move frames: what it saves against the kernel's forwarding of the first path.
                let turns = &self.redirect;
                rows.push(row("redirect", Kind::Ipv4, Plane::Xdp, turns, &self.generator[p], &kernel, &tc));
            }
            for (q, plane) in self.planes.iter().enumerate() {
                let turns = &self.turns[p][q];
                rows.push(row(path.name(), path.kind(), *plane, turns, &self.generator[p], &kernel, &tc));
            }
        }
        rows
    }
}
