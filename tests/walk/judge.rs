//! Sends frames into both nodes and compares what becomes of them. Only a difference that lasts counts.

use crate::frames::Frame;
use crate::neighbours::answer;
use crate::outcome::{Fate, hex, recognise};
use crate::twin::{Audit, Node, Twins};
use std::fmt;
use std::time::{Duration, Instant};
use trieline_testbed::{Result, patience};

/// How long a difference has to last.
const LASTING: f64 = 3.0;
/// Flows that are sent to find all members of an equal-cost group.
const FLOWS: u16 = 48;
/// Times in a row that a frame's fates have to differ at the end.
const IN_A_ROW: usize = 4;

/// A difference that lasted.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// A frame has another fate with trielined.
    Packet { frame: Frame, with: Fate, without: Fate },
    /// `trieline node audit` finds a difference although both nodes do the same.
    Audit(String),
    /// trielined reports an error of its own.
    Log(String),
    /// trielined ended.
    Ended(String),
}

impl Failure {
    /// Its kind, for counts.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Packet { .. } => "packet",
            Self::Audit(_) => "audit",
            Self::Log(_) => "log",
            Self::Ended(_) => "trielined ended",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Packet { frame, with, without } => write!(
                f,
                "frame into n{}: {}\n  with trielined:\n    {}\n  without:\n    {}",
                frame.link,
                hex(&frame.bytes),
                with.describe(),
                without.describe()
            ),
            Self::Audit(text) => write!(f, "trieline node audit:\n{text}"),
            Self::Log(text) => write!(f, "trielined logged: {text}"),
            Self::Ended(text) => write!(f, "trielined ended: {text}"),
        }
    }
}

/// Counts of what was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Frames into each node.
    pub(crate) sent: u64,
    /// Of them those that the node without trielined sent on.
    pub(crate) left: u64,
    /// Frames that left by another member of an equal-cost group.
    pub(crate) members: u64,
}

/// Compares two nodes.
#[derive(Default)]
pub(crate) struct Judge {
    number: u32,
    pub(crate) counts: Counts,
}

impl Judge {
    /// Takes what has come in at a node's other ends, answers questions for neighbours, and sorts the rest by frame.
    fn collect(node: &mut Node, first: u32, fates: &mut [Fate]) -> Result<usize> {
        let mut taken = 0;
        while let Some(caught) = node.wire.receive() {
            taken += 1;
            let Some(&link) = node.ends.get(&caught.device) else { continue };
            if let Some((number, seen)) = recognise(&caught) {
                if let Some(fate) = number.checked_sub(first).and_then(|at| fates.get_mut(at as usize)) {
                    fate.add(link, seen);
                }
            } else if let Some(reply) = answer(link, &caught.frame) {
                node.wire.send(caught.device, &reply)?;
            }
        }
        Ok(taken)
    }

    /// Lets both nodes' neighbours answer for a while.
    pub(crate) fn idle(twins: &mut Twins, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        loop {
            Self::collect(&mut twins.with, 0, &mut [])?;
            Self::collect(&mut twins.without, 0, &mut [])?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            twins.with.wire.wait(left.min(Duration::from_millis(2)));
        }
    }

    /// Sends the frames into the nodes and waits until nothing comes any more.
    fn send(&mut self, twins: &mut Twins, frames: &[Frame], both: bool) -> Result<(Vec<Fate>, Vec<Fate>)> {
        let first = self.number;
        self.number = self.number.wrapping_add(frames.len() as u32);
        let mut fates = [vec![Fate::default(); frames.len()], vec![Fate::default(); frames.len()]];
        let [with, without] = &mut fates;
        for (number, frame) in (first..).zip(frames) {
            let bytes = frame.numbered(number);
            for (node, used) in [(&twins.with, both), (&twins.without, true)] {
                let end = node.ends.iter().find(|(_, link)| **link == frame.link).map(|(index, _)| *index);
                if let Some(end) = end.filter(|_| used) {
                    node.wire.send(end, &bytes)?;
                }
            }
        }
        let quiet = Duration::from_secs_f64(0.003 * patience());
        let mut last = Instant::now();
        while last.elapsed() < quiet {
            let taken = Self::collect(&mut twins.with, first, with)?
                + Self::collect(&mut twins.without, first, without)?;
            if taken > 0 {
                last = Instant::now();
            } else {
                twins.with.wire.wait(Duration::from_millis(1));
            }
        }
        let [with, without] = fates;
        Ok((with, without))
    }

    /// Whether the fate with trielined is one that another flow has without it: another member of an equal-cost group.
    fn is_another_member(
        &mut self,
        twins: &mut Twins,
        frame: &Frame,
        with: &Fate,
        without: &Fate,
    ) -> Result<bool> {
        let flows: Vec<Frame> = (0..FLOWS).filter_map(|number| frame.of_another_flow(number)).collect();
        if flows.is_empty() {
            // No field of this frame tells flows apart: any next hop of a group may be right.
            let grouped = ["-4 route show table all", "-6 route show table all", "nexthop show"];
            for words in grouped {
                let text = twins.without.shows(words)?;
                if text.contains("nexthop via") || text.contains("nexthop dev") || text.contains(" group ") {
                    return Ok(true);
                }
            }
            return Ok(false);
        }
        let (_, fates) = self.send(twins, &flows, false)?;
        let plain = |fate: &Fate, frame: &Frame| same_port(fate, frame);
        let wanted = plain(with, frame);
        let found = flows.iter().zip(&fates).any(|(flow, fate)| plain(fate, flow) == wanted);
        Ok(found && with != without)
    }

    /// Sends frames once, and compares nothing.
    pub(crate) fn once(&mut self, twins: &mut Twins, frames: &[Frame]) -> Result<()> {
        self.send(twins, frames, true).map(drop)
    }

    /// Compares until both nodes do the same. A failure is what lasts.
    pub(crate) fn judge(&mut self, twins: &mut Twins, frames: &[Frame]) -> Result<Option<Failure>> {
        let until = Instant::now() + Duration::from_secs_f64(LASTING * patience());
        let mut in_a_row = vec![0; frames.len()];
        let mut rounds = 0;
        loop {
            if let Err(error) = twins.check() {
                return Ok(Some(Failure::Ended(format!("{error}"))));
            }
            let (with, without) = self.send(twins, frames, true)?;
            if rounds == 0 {
                self.counts.sent += frames.len() as u64;
                self.counts.left += without.iter().filter(|fate| !fate.out.is_empty()).count() as u64;
            }
            rounds += 1;
            let mut different = None;
            for (at, frame) in frames.iter().enumerate() {
                let mut same = with[at] == without[at];
                if !same && rounds > 2 && self.is_another_member(twins, frame, &with[at], &without[at])? {
                    self.counts.members += 1;
                    same = true;
                }
                in_a_row[at] = if same { 0 } else { in_a_row[at] + 1 };
                if in_a_row[at] >= IN_A_ROW || (different.is_none() && !same) {
                    different = Some(at);
                }
            }
            let Some(at) = different else { break };
            if Instant::now() > until && in_a_row[at] >= IN_A_ROW {
                let failure = Failure::Packet {
                    frame: frames[at].clone(),
                    with: with[at].clone(),
                    without: without[at].clone(),
                };
                return Ok(Some(failure));
            }
            if Instant::now() > until + Duration::from_secs_f64(LASTING * patience()) {
                // Something changes all the time, in one kernel or the other: not lasting.
                break;
            }
            let pause = if rounds < 4 { 10 } else { 100 };
            Self::idle(twins, Duration::from_millis(pause))?;
        }
        let log = twins.log();
        let error = log.lines().find(|line| line.contains(" ERROR "));
        Ok(error.map(|line| Failure::Log(line.to_owned())))
    }

    /// Asks for the audit until it is "equal". One that begins late enough has the last word: it takes seconds on a slow machine, and the
    /// kernel may announce a lost carrier two seconds late (`linkwatch_nextevent`).
    pub(crate) fn audit(twins: &mut Twins) -> Result<Option<Failure>> {
        let until = Instant::now() + Duration::from_secs_f64(LASTING * patience());
        loop {
            let began = Instant::now();
            match twins.audit()? {
                Audit::Equal => return Ok(None),
                Audit::Differs(text) if began > until => return Ok(Some(Failure::Audit(text))),
                Audit::Differs(_) => Self::idle(twins, Duration::from_millis(300))?,
            }
        }
    }
}

/// A fate whose frames have 0 for the source port that their flow has.
fn same_port(fate: &Fate, frame: &Frame) -> Fate {
    let Some(at) = frame.port_at else { return fate.clone() };
    let port = frame.bytes[at..at + 4].to_vec();
    let mut plain = fate.clone();
    for (_, bytes) in &mut plain.out {
        if let Some(at) = bytes.windows(4).position(|window| window == port) {
            bytes[at..at + 2].fill(0);
        }
    }
    plain.out.sort();
    plain
}
