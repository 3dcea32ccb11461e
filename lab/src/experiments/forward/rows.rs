//! The results of `forward` for each path and plane, from the turns of all rounds.

use serde::Serialize;

use trieline_plot::lines::Line;

use crate::{
    experiments::traffic::Path,
    frames::Kind,
    measure::{Samples, rounded},
};

/// The forwarder.
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
    /// Name of the path; `redirect`: the bare redirect; `unfiltered` and `filter…`: nodes that filter or do not.
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
    /// Nanoseconds of the generator alone, in the same rounds.
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
    /// A path of XDP that this one is compared with.
    pub of: Option<&'static str>,
    /// This path's rate as a share of that one's: median of the rounds.
    pub share: Option<f64>,
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

/// The result of a turn.
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
        let mut rows = Vec::new();
        for (p, path) in self.paths.iter().enumerate() {
            let (kernel, tc) = (ns(&self.turns[p][0]), ns(&self.turns[p][1]));
            let generator = &self.generator[p];
            if p == 0 {
                // The redirect does nothing but move frames: what it saves against the kernel's forwarding of the first path.
                let row = Row::new("redirect", Kind::Ipv4, Plane::Xdp, &self.redirect, generator);
                rows.push(Row { routes, ..row.against(&ns(&self.redirect), &kernel, &tc) });
            }
            for (plane, turns) in self.planes.iter().zip(&self.turns[p]) {
                let row = Row::new(path.name(), path.kind(), *plane, turns, generator);
                let mut row = Row { routes, ..row.against(&ns(turns), &kernel, &tc) };
                let simpler = path.simpler().and_then(|simpler| {
                    Some((simpler, self.turns.get(self.paths.iter().position(|other| *other == simpler)?)?))
                });
                if let (Plane::Xdp, Some((simpler, by_plane))) = (plane, simpler)
                    && let Some(other) = by_plane.last()
                {
                    row = row.share_of(simpler.name(), turns, other);
                }
                rows.push(row);
            }
        }
        rows
    }
}

/// Nanoseconds of each turn.
fn ns(turns: &[Turn]) -> Samples {
    turns.iter().map(|turn| turn.ns).collect()
}

impl Row {
    /// The row by the turns alone.
    pub(super) fn new(
        path: &'static str,
        kind: Kind,
        plane: Plane,
        turns: &[Turn],
        generator: &Samples,
    ) -> Row {
        let own = ns(turns);
        let net: Samples = turns.iter().zip(generator.values()).map(|(turn, gen_)| turn.ns - gen_).collect();
        Row {
            path,
            plane,
            frame_bytes: kind.frame_bytes(),
            routes: 0,
            mpps: rounded(1e3 / own.median(), 3),
            ns: rounded(own.median(), 1),
            ns_min: rounded(own.min(), 1),
            ns_max: rounded(own.max(), 1),
            ns_generator: rounded(generator.median(), 1),
            ns_net: rounded(net.median(), 1),
            ratio: None,
            ratio_min: None,
            ratio_max: None,
            ratio_tc: None,
            of: None,
            share: None,
            delivered: turns.iter().map(|turn| turn.delivered).sum(),
            frames: turns.iter().map(|turn| turn.sent).sum(),
        }
    }

    /// Set beside the kernel's turns.
    fn against(self, own: &Samples, kernel: &Samples, tc: &Samples) -> Row {
        let ratio = own.ratio_of(kernel);
        Row {
            ratio: Some(rounded(ratio.median(), 2)),
            ratio_min: Some(rounded(ratio.min(), 2)),
            ratio_max: Some(rounded(ratio.max(), 2)),
            ratio_tc: Some(rounded(own.ratio_of(tc).median(), 2)),
            ..self
        }
    }

    /// Set beside another path's turns.
    pub(super) fn share_of(self, path: &'static str, own: &[Turn], other: &[Turn]) -> Row {
        let share = ns(own).ratio_of(&ns(other)).median();
        Row { of: Some(path), share: Some(rounded(share, 3)), ..self }
    }
}
