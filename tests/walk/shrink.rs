//! Makes a failure's script as short as it can be (delta debugging, Zeller 2002): fresh nodes for each trial.

use crate::frames::Frame;
use crate::judge::{Failure, Judge};
use crate::script::{Command, Step};
use crate::twin::{Kind, Twins};
use std::time::{Duration, Instant};
use trieline_testbed::{Result, patience};

/// Time for trielined to follow, after each step of a replay.
const FOLLOW: f64 = 0.03;

/// Seconds until the samples of a small table's audit have seen everything.
const SAMPLES: f64 = 8.0;

/// The result of a replay on fresh nodes.
#[derive(Debug)]
pub(crate) enum Replay {
    /// The failure came again, as it is now.
    Again(Failure),
    /// Both nodes do the same.
    Same,
    /// The kernels themselves differ: nothing can be said.
    Diverged(String),
}

/// Replays a script and looks for a failure of the same kind. `between` are the frames that were sent after each step.
pub(crate) fn replay(
    kind: &Kind,
    script: &[Step],
    failure: &Failure,
    between: &[Vec<Frame>],
) -> Result<Replay> {
    let mut twins = Twins::new(kind)?;
    let mut judge = Judge::default();
    for (at, step) in script.iter().enumerate() {
        for command in step {
            twins.run(command)?;
        }
        Judge::idle(&mut twins, Duration::from_secs_f64(FOLLOW * patience()))?;
        if let Some(frames) = between.get(at) {
            judge.once(&mut twins, frames)?;
        }
    }
    let frames = match failure {
        Failure::Packet { frame, .. } => vec![frame.clone()],
        _ => Vec::new(),
    };
    // The samples of trielined's audit take their time.
    let until = Instant::now() + Duration::from_secs_f64(SAMPLES * patience());
    while matches!(failure, Failure::Log(_)) && Instant::now() < until && !twins.log().contains(" ERROR ") {
        Judge::idle(&mut twins, Duration::from_millis(200))?;
    }
    let found = match judge.judge(&mut twins, &frames)? {
        None if matches!(failure, Failure::Audit(_)) => Judge::audit(&mut twins)?,
        found => found,
    };
    let Some(found) = found.filter(|found| found.kind() == failure.kind()) else {
        return Ok(Replay::Same);
    };
    Ok(match twins.diverged()? {
        Some(why) if !matches!(found, Failure::Ended(_)) => Replay::Diverged(why),
        _ => Replay::Again(found),
    })
}

/// The shortest script found in time that still fails, and its failure.
pub(crate) fn shrink(
    kind: &Kind,
    script: &[Step],
    failure: Failure,
    seconds: f64,
) -> Result<(Vec<Step>, Failure)> {
    let until = Instant::now() + Duration::from_secs_f64(seconds * patience());
    // Steps stay together as far as they are kept: what came at once comes at once.
    let mut kept: Vec<(usize, Command)> = script
        .iter()
        .enumerate()
        .flat_map(|(at, step)| step.iter().map(move |command| (at, command.clone())))
        .collect();
    let mut failure = failure;
    let mut pieces = 2;
    while kept.len() > 1 && Instant::now() < until {
        let size = kept.len().div_ceil(pieces);
        let mut shorter = None;
        for start in (0..kept.len()).step_by(size) {
            if Instant::now() >= until {
                break;
            }
            let end = (start + size).min(kept.len());
            let rest = [&kept[..start], &kept[end..]].concat();
            if let Replay::Again(now) = replay(kind, &steps(&rest), &failure, &[])? {
                failure = now;
                shorter = Some(rest);
                break;
            }
        }
        match shorter {
            Some(rest) => {
                kept = rest;
                pieces = (pieces - 1).max(2);
            }
            None if size == 1 => break,
            None => pieces = (pieces * 2).min(kept.len()),
        }
    }
    Ok((steps(&kept), failure))
}

fn steps(commands: &[(usize, Command)]) -> Vec<Step> {
    let mut made: Vec<(usize, Step)> = Vec::new();
    for (at, command) in commands {
        match made.last_mut() {
            Some((last, step)) if last == at => step.push(command.clone()),
            _ => made.push((*at, vec![command.clone()])),
        }
    }
    made.into_iter().map(|(_, step)| step).collect()
}
