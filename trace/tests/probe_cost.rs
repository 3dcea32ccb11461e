//! The cost of probes in functions for a call: `cargo test --release -p trieline-trace --test probe_cost -- --ignored --nocapture`, for the
//! table in docs/trace.md.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use trieline_sampling::{Rounds, Sampler};
use trieline_trace::{Error, Filter, Options, Probe, Tracer};

/// The quickest of so many is a sample.
const CHUNKS: usize = 4;
const ROUNDS: usize = 12;

/// The program whose functions are called.
struct Calls {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Calls {
    fn start(program: &Path) -> Calls {
        let mut command = Command::new(program);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Calls { child, to, from }
    }

    /// Nanoseconds of a call.
    fn ns(&mut self, function: &str) -> f64 {
        let mut one = || {
            writeln!(self.to, "{function}").unwrap();
            let mut line = String::new();
            self.from.read_line(&mut line).unwrap();
            line.trim().parse::<f64>().unwrap()
        };
        (0..CHUNKS).map(|_| one()).fold(f64::INFINITY, f64::min)
    }
}

#[test]
#[ignore = "a measurement: it wants a quiet machine"]
fn probe_cost_per_call() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/probes.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("probes");
    let done = Command::new("cc").args(["-O2", "-Wall", "-Werror", source, "-o"]).arg(&program).status();
    assert!(done.unwrap().success());
    let mut calls = Calls::start(&program);
    for (function, suffix) in [
        ("begins_with_push", ""),
        ("begins_with_sub", ""),
        ("begins_with_endbr64", ""),
        ("begins_with_nop", ""),
        ("begins_with_nop5", ""),
        ("returns_one", ""),
        ("returns_one", "%return"),
    ] {
        let file = program.display();
        let probes = [format!("received={file}:{function}{suffix}"), format!("sent={file}:never_called")];
        let attach = |filter: Filter| {
            let probes = probes.iter().map(|probe| Probe::function(probe).unwrap()).collect();
            let mut tracer = Tracer::start(&Options { probes, ..Options::new(filter) }).unwrap();
            tracer.stop(|_| ());
            tracer
        };
        // A process that calls the same function and is not traced, where all are asked.
        let mut beside = attach(Filter { comm: Some("absent".into()), ..Filter::default() });
        let mut traced = attach(Filter { processes: vec![calls.child.id()], ..Filter::default() });
        let mut sampler = Sampler::new(0);
        let mut take = |case, _: &mut _| {
            let mut tracer = [None, Some(&mut beside), Some(&mut traced)].into_iter().nth(case).flatten();
            if let Some(tracer) = &mut tracer {
                tracer.resume()?;
            }
            let ns = calls.ns(function);
            if let Some(tracer) = tracer {
                let mut noted = 0u64;
                tracer.stop(|_| noted += 1);
                assert_eq!(noted > 0, case == 2, "{function}{suffix}");
            }
            Ok::<_, Error>(ns)
        };
        let rounds = Rounds((0..ROUNDS).map(|round| sampler.round(round, 3, &mut take).unwrap()).collect());
        let delta = |case| {
            let delta = rounds.delta(case, 0, |ns| *ns);
            format!("+{:.0} [{:.0}..{:.0}]", delta.value, delta.low, delta.high)
        };
        println!("| {function}{suffix} | {} | {} | {} rounds |", delta(2), delta(1), rounds.len());
    }
    drop(calls.to);
    calls.child.wait().unwrap();
}
