//! Prints and writes what the walk found.

use crate::judge::{Counts, Failure};
use crate::options::Options;
use crate::script::Step;
use std::fmt::Write;
use std::time::Duration;

/// Lines of the daemon's log that a report has.
const LOG_LINES: usize = 15;

/// The sums of a walk.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) steps: u64,
    pub(crate) counts: Counts,
    /// Steps after which the two kernels differed.
    pub(crate) diverged: u64,
    /// Differences that did not come again on fresh nodes.
    pub(crate) once: u64,
    pub(crate) differences: u64,
    /// Packets that XDP forwarded.
    pub(crate) forwarded: u64,
}

/// A line for who waits.
pub(crate) fn progress(sums: &Sums, time: Duration) {
    let each = sums.steps as f64 / time.as_secs_f64().max(0.001);
    eprintln!(
        "walk: {} steps ({each:.1}/s), {} frames into each node, {} came out; {} diverged, {} once only, {} differences",
        sums.steps, sums.counts.sent, sums.counts.left, sums.diverged, sums.once, sums.differences
    );
}

/// The last line, on standard output.
pub(crate) fn sums(options: &Options, sums: &Sums, time: Duration) {
    println!(
        "walk: seed {}, {} mode, {:.0} s: {} steps, {} frames into each node, {} came out, XDP forwarded {}; \
         {} went by another member of a group, {} steps diverged, {} differences once only, {} differences",
        options.seed,
        if options.generic { "generic" } else { "native" },
        time.as_secs_f64(),
        sums.steps,
        sums.counts.sent,
        sums.counts.left,
        sums.forwarded,
        sums.counts.members,
        sums.diverged,
        sums.once,
        sums.differences
    );
}

pub(crate) fn found(options: &Options, episode: u64, step: usize, failure: &Failure) {
    eprintln!(
        "walk: seed {}, episode {episode}, step {step}: {} differs; replayed on fresh nodes\n{failure}",
        options.seed,
        failure.kind()
    );
}

/// Two kernels that went different ways by themselves.
pub(crate) fn diverged(options: &Options, episode: u64, step: usize, why: &str, last: Option<&Step>) {
    let text: String = last.into_iter().flatten().fold(String::new(), |mut text, command| {
        let _ = writeln!(text, "  {command}");
        text
    });
    eprintln!(
        "walk: seed {}, episode {episode}, step {step}: the kernels differ:\n{why}after\n{text}",
        options.seed
    );
}

/// A difference and its script, on standard output and as a file.
pub(crate) fn difference(
    options: &Options,
    (episode, step): (u64, usize),
    verdict: &str,
    script: &[Step],
    failure: &Failure,
    log: &str,
) {
    let commands: usize = script.iter().map(Vec::len).sum();
    let mode = if options.generic { "generic" } else { "native" };
    let mut text = format!(
        "# {} differs, {verdict}: seed {}, episode {episode}, step {step}, {mode} mode, {commands} commands\n",
        failure.kind(),
        options.seed
    );
    for (number, step) in script.iter().enumerate() {
        if number > 0 {
            text.push_str("sleep 0.1\n");
        }
        for command in step {
            let _ = writeln!(text, "{command}");
        }
    }
    let _ = writeln!(text, "{failure}");
    let lines: Vec<&str> = log.lines().collect();
    let _ = writeln!(text, "the end of trielined's log:");
    for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
        let _ = writeln!(text, "  {line}");
    }
    print!("{text}");
    let path = options.out.join(format!("{}-{episode}-{step}-{mode}.txt", options.seed));
    let written = std::fs::create_dir_all(&options.out).and_then(|()| std::fs::write(&path, &text));
    match written {
        Ok(()) => eprintln!("walk: written to {}", path.display()),
        Err(error) => eprintln!("walk: cannot write {}: {error}", path.display()),
    }
}
