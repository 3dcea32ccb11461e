//! A random walk over kernel states, with the kernel as the judge: docs/walk.md.

// A failed expectation here ends a test.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod frames;
mod judge;
mod neighbours;
mod options;
mod outcome;
mod report;
mod script;
mod shrink;
mod twin;
mod verbs;

use frames::{Frame, Frames};
use judge::{Failure, Judge};
use options::Options;
use report::Sums;
use script::Step;
use shrink::Replay;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trieline_testbed::namespace::{Namespace, leftovers};
use trieline_testbed::random::Random;
use trieline_testbed::{Result, patience};
use twin::{Kind, PREFIX, Twins};
use verbs::{Kinds, Verbs};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let known = verbs::names();
    match words.first().map(String::as_str) {
        Some("verbs") => {
            println!("{}", known.join("\n"));
            return ExitCode::SUCCESS;
        }
        Some("run") => {}
        Some("replay") if words.len() == 2 => {
            return match std::fs::read_to_string(&words[1]) {
                Ok(report) => ended(replayed(&report)),
                Err(error) => ended(Err(trieline_testbed::Error::Io {
                    what: format!("cannot read {}", words[1]),
                    cause: error,
                })),
            };
        }
        _ => {
            eprintln!("{}", options::USAGE);
            return ExitCode::from(2);
        }
    }
    let options = match options::read(&words[1..], &known) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("trieline-walk: {error}\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    ended(walk(&options))
}

fn ended(result: Result<u64>) -> ExitCode {
    match result {
        Ok(differences) => ExitCode::from(u8::from(differences > 0)),
        Err(error) => {
            eprintln!("trieline-walk: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the commands of a report on fresh nodes, sends its frames, and says what differs. The number of differences.
fn replayed(report: &str) -> Result<u64> {
    let kind = Kind { generic: report.contains(" generic mode, "), many: 0 };
    let mut twins = Twins::new(&kind)?;
    for (number, step) in script::read(report).iter().enumerate() {
        for command in step {
            let apart = twins.run(command)?;
            println!("{number}: {command}{}", apart.map(|why| format!("\n   {why}")).unwrap_or_default());
        }
        Judge::idle(&mut twins, Duration::from_secs_f64(0.1 * patience()))?;
    }
    let frames: Vec<Frame> = report.lines().filter_map(Frame::parse).collect();
    let found = match Judge::default().judge(&mut twins, &frames)? {
        None => Judge::audit(&mut twins)?,
        found => found,
    };
    if let Some(why) = twins.diverged()? {
        println!("the kernels differ:\n{why}");
    }
    println!("{}", found.as_ref().map_or("equal".to_owned(), Failure::to_string));
    Ok(u64::from(found.is_some()))
}

/// Kinds of devices that this kernel has.
fn kinds() -> Result<Kinds> {
    let place = Namespace::create(PREFIX, "probe")?;
    let has = |words: &str| {
        let words: Vec<&str> = words.split_whitespace().collect();
        place.ip_words(&words).is_ok()
    };
    Ok(Kinds {
        // `ip` takes a word for the beginning of one of its own, if it is one.
        bridge: has("link add name bridge0 type bridge"),
        dummy: has("link add name dummy0 type dummy"),
        vrf: has("link add name vrf0 type vrf table 9"),
        bond: has("link add name bond0 type bond"),
        vlan: has("link add name veth0 type veth peer name veth1")
            && has("link add link veth0 name veth0.8 type vlan id 8"),
    })
}

/// Walks until time, steps or patience are over. The number of differences.
fn walk(options: &Options) -> Result<u64> {
    for leftover in leftovers(PREFIX) {
        let _ = leftover.remove();
    }
    let mut has = kinds()?;
    if options.vrf && !(has.vrf && has.vlan && has.bond && has.dummy) {
        eprintln!("trieline-walk: --vrf: this kernel lacks VRF, VLAN, bond or dummy devices: {has:?}");
    }
    if !options.vrf {
        has = Kinds { bridge: has.bridge, ..Kinds::default() };
    }
    let kind = Kind { generic: options.generic, many: options.many };
    let until = Instant::now() + Duration::from_secs_f64(options.seconds);
    let began = Instant::now();
    let mut sums = Sums::default();
    let mut number = 0;
    while Instant::now() < until && sums.steps < options.steps && sums.differences < options.differences {
        Episode::new(options, &kind, has, number)?.run(until, &mut sums)?;
        number += 1;
        report::progress(&sums, began.elapsed());
    }
    report::sums(options, &sums, began.elapsed());
    if sums.forwarded == 0 && sums.steps > 20 && sums.differences == 0 {
        eprintln!("trieline-walk: XDP forwarded no packet: nothing was proven");
        return Ok(1);
    }
    Ok(sums.differences)
}

/// A part of the walk, from fresh nodes to their end.
struct Episode<'a> {
    options: &'a Options,
    kind: &'a Kind,
    number: u64,
    verbs: Verbs,
    frames: Frames,
    twins: Twins,
    judge: Judge,
    script: Vec<Step>,
    sent: Vec<Vec<Frame>>,
}

impl<'a> Episode<'a> {
    fn new(options: &'a Options, kind: &'a Kind, has: Kinds, number: u64) -> Result<Self> {
        let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(number);
        let mut without = options.without.clone();
        if !options.only.is_empty() {
            let others = verbs::names().into_iter().filter(|name| !options.only.contains(*name));
            without.extend(others.map(str::to_owned));
        }
        Ok(Self {
            options,
            kind,
            number,
            verbs: Verbs::new(Random::new(seed), without, has),
            frames: Frames::new(Random::new(seed ^ 0x5eed), has.vlan),
            twins: Twins::new(kind)?,
            judge: Judge::default(),
            script: Vec::new(),
            sent: Vec::new(),
        })
    }

    fn run(mut self, until: Instant, sums: &mut Sums) -> Result<()> {
        for at in 0..=self.options.episode {
            if Instant::now() >= until || sums.steps >= self.options.steps {
                break;
            }
            let step = if at == 0 { self.verbs.first() } else { self.verbs.step() };
            if step.is_empty() {
                continue;
            }
            sums.steps += 1;
            let apart = self.apply(step)?;
            let found = match &apart {
                None => self.look(at)?,
                Some(_) => None,
            };
            let apart = match (&found, apart) {
                (Some(Failure::Ended(_)), _) | (None, None) => None,
                (_, Some(why)) => Some(why),
                (Some(_), None) => self.twins.diverged()?,
            };
            if let Some(why) = apart {
                sums.diverged += 1;
                report::diverged(self.options, self.number, at, &why, self.script.last());
                break;
            }
            if let Some(failure) = found {
                self.failed(at, failure, sums)?;
                break;
            }
        }
        sums.counts.sent += self.judge.counts.sent;
        sums.counts.left += self.judge.counts.left;
        sums.counts.members += self.judge.counts.members;
        sums.forwarded += self.twins.forwarded().unwrap_or(0);
        Ok(())
    }

    /// Runs a step on both nodes. An answer means that the kernels said different things.
    fn apply(&mut self, step: Step) -> Result<Option<String>> {
        let mut apart = None;
        for command in &step {
            apart = apart.or(self.twins.run(command)?);
        }
        self.script.push(step);
        self.frames.macs.clone_from(&self.verbs.macs);
        Judge::idle(&mut self.twins, Duration::from_secs_f64(0.01 * patience()))?;
        Ok(apart)
    }

    /// Sends frames and asks for the audit.
    fn look(&mut self, at: usize) -> Result<Option<Failure>> {
        let frames: Vec<Frame> = (0..self.options.frames).map(|_| self.frames.frame()).collect();
        self.sent.push(frames.clone());
        match self.judge.judge(&mut self.twins, &frames)? {
            None if self.options.audit > 0 && at.is_multiple_of(self.options.audit) => {
                Judge::audit(&mut self.twins)
            }
            found => Ok(found),
        }
    }

    /// Replays a failure on fresh nodes, shortens its script if it comes again, and reports it.
    fn failed(&mut self, at: usize, failure: Failure, sums: &mut Sums) -> Result<()> {
        let log = self.twins.log();
        report::found(self.options, self.number, at, &failure);
        let plain = shrink::replay(self.kind, &self.script, &failure, &[])?;
        let again = match plain {
            Replay::Same => shrink::replay(self.kind, &self.script, &failure, &self.sent)?,
            other => other,
        };
        match again {
            Replay::Again(now) => {
                sums.differences += 1;
                let (script, failure) = shrink::shrink(self.kind, &self.script, now, self.options.shrink)?;
                report::difference(self.options, (self.number, at), "comes again", &script, &failure, &log);
            }
            Replay::Same => {
                sums.once += 1;
                report::difference(
                    self.options,
                    (self.number, at),
                    "once only",
                    &self.script,
                    &failure,
                    &log,
                );
            }
            Replay::Diverged(why) => {
                sums.diverged += 1;
                report::diverged(self.options, self.number, at, &why, self.script.last());
            }
        }
        Ok(())
    }
}
