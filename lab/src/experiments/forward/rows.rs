//! The results of `forward` for each path and plane, from the turns of all rounds.

use serde::{Deserialize, Serialize};

use super::{
    case::{Case, Plane, Sample, Turn, same},
    path::Path,
};
use crate::{
    Result,
    frames::Kind,
    measure::{Samples, rounded},
};

/// One path through one plane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// Name of the path; `redirect`: the bare redirect; `unfiltered` and `filter…`: nodes that filter or do not.
    pub path: &'static str,
    /// `kernel kernel-tc-sink flowtable fib xdp`.
    pub plane: Plane,
    /// Length of the frames sent, without FCS.
    pub frame_bytes: usize,
    /// Routes of the table in the node's kernel: 0 at a node of its own that does not get the table.
    pub routes: u64,
    /// Million frames a second, from the median.
    pub mpps: f64,
    /// Nanoseconds a frame, generator included: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest round.
    pub ns_max: f64,
    /// 95 % interval of the median; none of fewer than six rounds.
    pub ns_ci: Option<[f64; 2]>,
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
    /// 95 % interval of the ratio.
    pub ratio_ci: Option<[f64; 2]>,
    /// Likewise against the kernel with the tc sink.
    pub ratio_tc: Option<f64>,
    /// The ns of plane `fib` over this ns, gross: median of the rounds. None where `fib` has no row of the path.
    pub ratio_fib: Option<f64>,
    /// 95 % interval of that ratio.
    pub ratio_fib_ci: Option<[f64; 2]>,
    /// The bare redirect's ns over this ns, gross: median of the rounds.
    pub floor_share: f64,
    /// A path of XDP that this one is compared with.
    pub of: Option<&'static str>,
    /// This path's rate as a share of that one's: median of the rounds.
    pub share: Option<f64>,
    /// Frames counted at the sink, all rounds: as many as `frames` when none was lost.
    pub delivered: u64,
    /// Frames sent, all rounds.
    pub frames: u64,
}

/// A rival that lost its rows of a path.
pub(super) struct Lost {
    pub(super) path: Path,
    pub(super) plane: Plane,
    pub(super) why: String,
}

/// All turns by path and plane.
pub(super) struct Series {
    paths: Vec<Path>,
    planes: Vec<Plane>,
    redirect: Vec<Turn>,
    generator: Vec<Samples>,
    turns: Vec<Vec<Vec<Turn>>>,
    lost: Vec<Lost>,
}

impl Series {
    pub(super) fn new(paths: &[Path], planes: &[Plane]) -> Series {
        Series {
            paths: paths.to_vec(),
            planes: planes.to_vec(),
            redirect: Vec::new(),
            generator: vec![Samples::default(); paths.len()],
            turns: vec![vec![Vec::new(); planes.len()]; paths.len()],
            lost: Vec::new(),
        }
    }

    /// Adds a round, whose cases are in this order. An error if trieline sent another frame than the kernel; a rival then loses its rows.
    pub(super) fn add(&mut self, cases: &[Case], round: &[Sample]) -> Result<()> {
        let at = |path: &Path| self.paths.iter().position(|one| one == path);
        for (case, sample) in cases.iter().zip(round) {
            match case {
                Case::Redirect => self.redirect.push(sample.turn),
                Case::Generator(path) => {
                    let Some(p) = at(path) else { continue };
                    self.generator[p].push(sample.turn.ns);
                }
                Case::Path(path, plane) => {
                    let q = self.planes.iter().position(|one| one == plane);
                    let (Some(p), Some(q)) = (at(path), q) else { continue };
                    let kernel = cases.iter().position(|one| *one == Case::Path(*path, Plane::Kernel));
                    let as_kernel = match kernel {
                        Some(kernel) if *plane != Plane::KernelTcSink => {
                            same(path.name(), *plane, &sample.first, &round[kernel].first)
                        }
                        _ => Ok(()),
                    };
                    let doubt = match (plane, as_kernel) {
                        (Plane::Fib | Plane::Flowtable, Err(error)) => Some(error.to_string()),
                        (_, result) => result.map(|()| sample.doubt.clone())?,
                    };
                    let is_new = !self.lost.iter().any(|lost| (lost.path, lost.plane) == (*path, *plane));
                    if let Some(why) = doubt.filter(|_| is_new) {
                        self.lost.push(Lost { path: *path, plane: *plane, why });
                    }
                    self.turns[p][q].push(sample.turn);
                }
            }
        }
        Ok(())
    }

    /// The rivals that lost their rows.
    pub(super) fn lost(&self) -> &[Lost] {
        &self.lost
    }

    /// The turns of a path by a plane, if it has a row.
    fn turns(&self, path: Path, plane: Plane) -> Option<&[Turn]> {
        let is_lost = self.lost.iter().any(|lost| (lost.path, lost.plane) == (path, plane));
        let p = self.paths.iter().position(|one| *one == path)?;
        let q = self.planes.iter().position(|one| *one == plane)?;
        Some(self.turns[p][q].as_slice()).filter(|turns| !turns.is_empty() && !is_lost)
    }

    /// The bare redirect's times.
    pub(super) fn floor(&self) -> Samples {
        ns(&self.redirect)
    }

    pub(super) fn rows(&self, routes: u64) -> Vec<Row> {
        let mut rows = Vec::new();
        let floor = self.floor();
        for (p, path) in self.paths.iter().enumerate() {
            let through = |plane| self.turns(*path, plane);
            let rivals = [Plane::Kernel, Plane::KernelTcSink, Plane::Fib].map(|plane| through(plane).map(ns));
            let generator = &self.generator[p];
            if p == 0 {
                // The redirect does nothing but move frames: what it saves against the forwarding of the first path.
                let row = Row::new("redirect", Kind::Ipv4, Plane::Xdp, &self.redirect, generator, &floor);
                rows.push(Row { routes, ..row.against(&floor, &rivals) });
            }
            for plane in &self.planes {
                let Some(turns) = through(*plane) else { continue };
                let row = Row::new(path.name(), path.kind(), *plane, turns, generator, &floor);
                // The flowtable's node has the topology's few routes only.
                let routes = if *plane == Plane::Flowtable { 0 } else { routes };
                let mut row = Row { routes, ..row.against(&ns(turns), &rivals) };
                let simpler = path.simpler().filter(|_| *plane == Plane::Xdp);
                if let Some((simpler, other)) =
                    simpler.and_then(|path| Some((path, self.turns(path, *plane)?)))
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
    /// The row by the turns alone, and by the bare redirect's in the same rounds.
    pub(super) fn new(
        path: &'static str,
        kind: Kind,
        plane: Plane,
        turns: &[Turn],
        generator: &Samples,
        floor: &Samples,
    ) -> Row {
        let own = ns(turns);
        let net: Samples = turns.iter().zip(generator.values()).map(|(turn, gen_)| turn.ns - gen_).collect();
        let [median, ns_min, ns_max] = own.spread(1);
        Row {
            path,
            plane,
            frame_bytes: kind.frame_bytes(),
            routes: 0,
            mpps: rounded(1e3 / own.median(), 3),
            ns: median,
            ns_min,
            ns_max,
            ns_ci: own.interval(1),
            ns_generator: rounded(generator.median(), 1),
            ns_net: rounded(net.median(), 1),
            ratio: None,
            ratio_min: None,
            ratio_max: None,
            ratio_ci: None,
            ratio_tc: None,
            ratio_fib: None,
            ratio_fib_ci: None,
            floor_share: rounded(own.ratio_of(floor).median(), 3),
            of: None,
            share: None,
            delivered: turns.iter().map(|turn| turn.delivered).sum(),
            frames: turns.iter().map(|turn| turn.sent).sum(),
        }
    }

    /// Set beside the turns of the kernel, of the kernel with the tc sink, and of plane `fib`.
    fn against(self, own: &Samples, rivals: &[Option<Samples>; 3]) -> Row {
        let [kernel, tc, fib] =
            rivals.each_ref().map(|rival| rival.as_ref().map(|rival| own.ratio_of(rival)));
        let spread = kernel.as_ref().map(|by_round| by_round.spread(2));
        let median = |by_round: Option<&Samples>| by_round.map(|by_round| rounded(by_round.median(), 2));
        Row {
            ratio: spread.map(|[median, ..]| median),
            ratio_min: spread.map(|[_, min, _]| min),
            ratio_max: spread.map(|[.., max]| max),
            ratio_ci: kernel.and_then(|by_round| by_round.interval(2)),
            ratio_tc: median(tc.as_ref()),
            ratio_fib: median(fib.as_ref()),
            ratio_fib_ci: fib.and_then(|by_round| by_round.interval(2)),
            ..self
        }
    }

    /// Set beside another path's turns.
    pub(super) fn share_of(self, path: &'static str, own: &[Turn], other: &[Turn]) -> Row {
        let share = ns(own).ratio_of(&ns(other)).median();
        Row { of: Some(path), share: Some(rounded(share, 3)), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flowtables_node_has_none_of_the_tables_routes() {
        let planes = [Plane::Kernel, Plane::Flowtable, Plane::Fib];
        let cases = Case::all(&[Path::Ipv4], &planes);
        let turn = Turn { ns: 500.0, sent: 10, delivered: 10 };
        let round: Vec<Sample> =
            cases.iter().map(|_| Sample { turn, first: Vec::new(), doubt: None }).collect();
        let mut series = Series::new(&[Path::Ipv4], &planes);
        series.add(&cases, &round).unwrap();
        let rows = series.rows(900_000);
        let routes: Vec<_> = rows.iter().map(|row| (row.path, row.plane, row.routes)).collect();
        let plain = |plane, routes| ("ipv4", plane, routes);
        let all = [
            ("redirect", Plane::Xdp, 900_000),
            plain(Plane::Kernel, 900_000),
            plain(Plane::Flowtable, 0),
            plain(Plane::Fib, 900_000),
        ];
        assert_eq!(routes, all);
    }
}
