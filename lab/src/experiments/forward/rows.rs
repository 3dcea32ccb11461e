//! The results of `forward` for each path and plane, from the turns of all rounds.

use serde::{Deserialize, Serialize};

use super::{
    case::{Case, Plane, Sample, Turn, same},
    path::Path,
};
use crate::{
    Error, Result,
    frames::Kind,
    measure::{Samples, known, rounded},
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
    /// The bare redirect's ns over this ns, gross: median of the rounds. None if no round has both.
    pub floor_share: Option<f64>,
    /// A path of XDP that this one is compared with.
    pub of: Option<&'static str>,
    /// This path's rate as a share of that one's: median of the rounds.
    pub share: Option<f64>,
    /// Rounds that the figures are made of: those whose turn lost no frame.
    pub rounds: usize,
    /// Turns that lost frames. They count for no figure.
    pub lossy_turns: usize,
    /// Frames counted at the sink, all turns: as many as `frames` when none was lost.
    pub delivered: u64,
    /// Frames sent, all turns.
    pub frames: u64,
}

/// A plane that lost its rows of a path.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) path: &'static str,
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

    /// Adds a round, whose cases are in this order. An error if no frame of trieline's arrived, or another one than the kernel's; a rival then
    /// loses its rows.
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
                    let Turn { sent, delivered, .. } = sample.turn;
                    if *plane == Plane::Xdp && delivered == 0 && sent > 0 {
                        let what = format!("{}: by trieline, behind the node", path.name());
                        return Err(Error::Packets { what, got: 0, expected: sent });
                    }
                    let kernel = cases.iter().position(|one| *one == Case::Path(*path, Plane::Kernel));
                    let kernel = kernel.filter(|_| *plane != Plane::KernelTcSink).map(|at| &round[at].first);
                    // Where nothing came there is nothing to compare.
                    let as_kernel = match kernel.filter(|first| !first.is_empty() && !sample.first.is_empty())
                    {
                        Some(first) => same(path.name(), *plane, &sample.first, first),
                        None => Ok(()),
                    };
                    let refused = match as_kernel {
                        Err(error) if plane.is_rival() => Some(error.to_string()),
                        result => result.map(|()| sample.refused.clone())?,
                    };
                    let name = path.name();
                    let is_new = !self.lost.iter().any(|lost| (lost.path, lost.plane) == (name, *plane));
                    if let Some(why) = refused.filter(|_| is_new) {
                        self.lost.push(Lost { path: name, plane: *plane, why });
                    }
                    self.turns[p][q].push(sample.turn);
                }
            }
        }
        Ok(())
    }

    /// The planes that lost their rows: a sample was refused, or each turn lost frames.
    pub(super) fn lost(&self) -> Vec<Lost> {
        let mut lost = self.lost.clone();
        lost.extend(lossy(&self.redirect).map(|why| Lost { path: "redirect", plane: Plane::Xdp, why }));
        for (path, planes) in self.paths.iter().zip(&self.turns) {
            for (plane, turns) in self.planes.iter().zip(planes) {
                let name = path.name();
                let is_new = !lost.iter().any(|one| (one.path, one.plane) == (name, *plane));
                if let Some(why) = lossy(turns).filter(|_| is_new) {
                    lost.push(Lost { path: name, plane: *plane, why });
                }
            }
        }
        lost
    }

    /// The turns of a path by a plane, if it has a row.
    fn turns(&self, path: Path, plane: Plane) -> Option<&[Turn]> {
        let is_lost = self.lost.iter().any(|lost| (lost.path, lost.plane) == (path.name(), plane));
        let p = self.paths.iter().position(|one| *one == path)?;
        let q = self.planes.iter().position(|one| *one == plane)?;
        let has_row = |turns: &&[Turn]| !turns.iter().all(Turn::is_lossy) && !is_lost;
        Some(self.turns[p][q].as_slice()).filter(has_row)
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
            if p == 0 && floor.known() > 0 {
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

/// Nanoseconds of each turn; of one that lost frames they are not known.
fn ns(turns: &[Turn]) -> Samples {
    turns.iter().map(Turn::ns).collect()
}

/// The reason why no figure can be made of these turns, if each of them lost frames.
pub(super) fn lossy(turns: &[Turn]) -> Option<String> {
    let (sent, delivered) = counts(turns);
    let all = !turns.is_empty() && turns.iter().all(Turn::is_lossy);
    all.then(|| format!("each of {} turns lost frames: {delivered} of {sent} arrived", turns.len()))
}

/// Frames that turns sent, and those that arrived.
fn counts(turns: &[Turn]) -> (u64, u64) {
    turns.iter().fold((0, 0), |(sent, came), turn| (sent + turn.sent, came + turn.delivered))
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
        let net: Samples =
            turns.iter().zip(generator.values()).map(|(turn, gen_)| turn.ns() - gen_).collect();
        let (frames, delivered) = counts(turns);
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
            floor_share: known(rounded(own.ratio_of(floor).median(), 3)),
            of: None,
            share: None,
            rounds: own.known(),
            lossy_turns: turns.iter().filter(|turn| turn.is_lossy()).count(),
            delivered,
            frames,
        }
    }

    /// Set beside the turns of the kernel, of the kernel with the tc sink, and of plane `fib`.
    fn against(self, own: &Samples, rivals: &[Option<Samples>; 3]) -> Row {
        // A ratio needs a round in which both lost nothing.
        let ratios = |rival: &Option<Samples>| {
            let ratios = rival.as_ref().map(|rival| own.ratio_of(rival));
            ratios.filter(|ratios| ratios.known() > 0)
        };
        let [kernel, tc, fib] = rivals.each_ref().map(ratios);
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
        let share = known(rounded(ns(own).ratio_of(&ns(other)).median(), 3));
        Row { of: share.map(|_| path), share, ..self }
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
            cases.iter().map(|_| Sample { turn, first: Vec::new(), refused: None }).collect();
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

    const PLANES: [Plane; 4] = [Plane::Kernel, Plane::KernelTcSink, Plane::Fib, Plane::Xdp];

    /// Rounds of IPv4 in which this plane delivers so many of 10 frames, and all others deliver all. A turn that loses frames is ten times as
    /// fast.
    fn of(plane: Option<Plane>, delivered: &[u64]) -> Result<Series> {
        let cases = Case::all(&[Path::Ipv4], &PLANES);
        let mut series = Series::new(&[Path::Ipv4], &PLANES);
        for delivered in delivered {
            let sample = |case: &Case| {
                let is_lossy = match case {
                    Case::Path(_, of) => Some(*of) == plane,
                    Case::Redirect => plane.is_none(),
                    Case::Generator(_) => false,
                };
                let delivered = if is_lossy { *delivered } else { 10 };
                let ns = if delivered < 10 { 50.0 } else { 500.0 };
                let first = if delivered > 0 { vec![7] } else { Vec::new() };
                Sample { turn: Turn { ns, sent: 10, delivered }, first, refused: None }
            };
            series.add(&cases, &cases.iter().map(sample).collect::<Vec<_>>())?;
        }
        Ok(series)
    }

    fn row(rows: &[Row], path: &str, plane: Plane) -> Option<Row> {
        rows.iter().find(|row| row.path == path && row.plane == plane).cloned()
    }

    #[test]
    fn a_turn_that_lost_frames_is_in_no_figure_and_is_counted() {
        for plane in PLANES {
            let series = of(Some(plane), &[10, 9, 10]).unwrap();
            assert!(series.lost().is_empty());
            let rows = series.rows(1);
            let own = row(&rows, "ipv4", plane).unwrap();
            assert_eq!((own.ns, own.ns_min, own.ns_max, own.ns_net), (500.0, 500.0, 500.0, 0.0), "{own:?}");
            assert_eq!((own.rounds, own.lossy_turns, own.frames, own.delivered), (2, 1, 30, 29));
            for other in &rows {
                let ratios =
                    [other.ratio, other.ratio_max, other.ratio_tc, other.ratio_fib, other.floor_share];
                assert_eq!(ratios, [Some(1.0); 5], "{other:?}");
            }
        }
    }

    #[test]
    fn a_plane_of_lossy_turns_alone_has_no_row_and_a_reason() {
        let series = of(Some(Plane::Kernel), &[9, 0, 3]).unwrap();
        let [lost] = &series.lost()[..] else { panic!("{:?}", series.lost()) };
        assert_eq!((lost.path, lost.plane), ("ipv4", Plane::Kernel));
        assert_eq!(lost.why, "each of 3 turns lost frames: 12 of 30 arrived");
        let rows = series.rows(1);
        assert!(row(&rows, "ipv4", Plane::Kernel).is_none());
        let xdp = row(&rows, "ipv4", Plane::Xdp).unwrap();
        assert_eq!((xdp.ratio, xdp.ratio_tc, xdp.floor_share), (None, Some(1.0), Some(1.0)));
        // Without the bare redirect no row has a share of it.
        let series = of(None, &[0, 9]).unwrap();
        assert_eq!(series.lost()[0].path, "redirect");
        let rows = series.rows(1);
        assert!(row(&rows, "redirect", Plane::Xdp).is_none());
        assert!(rows.len() == PLANES.len() && rows.iter().all(|row| row.floor_share.is_none()));
    }

    #[test]
    fn no_packet_of_trielines_is_an_error_and_none_of_a_rivals_loses_its_row() {
        let error = of(Some(Plane::Xdp), &[0]).err().unwrap().to_string();
        assert_eq!(error, "ipv4: by trieline, behind the node: 0 packets, expected 10");
        let series = of(Some(Plane::Fib), &[0]).unwrap();
        assert_eq!(series.lost()[0].plane, Plane::Fib);
        assert!(row(&series.rows(1), "ipv4", Plane::Fib).is_none());
    }
}
