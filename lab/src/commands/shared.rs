//! Shared by the commands that measure: the numbers of prefixes that they take, how they save and print a document, and how they fail.

use std::{
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, bail};
use trieline_lab::{
    Context, Error,
    account::{Calibration, Refusal},
    experiments::{Asked, options::within},
    load::Load,
    report::Finished,
    results::Saved,
};
use trieline_terminal::{Bars, Output};

/// A machine that is busy for longer than this is refused.
pub(crate) const QUIET_WITHIN: Duration = Duration::from_secs(2);

/// The folder that documents and pictures are saved in.
pub(crate) const RESULTS: &str = "results";

/// Most prefixes of a family that are generated: within about a minute.
const PREFIXES_MAX: usize = 2_000_000;

/// A number of prefixes to generate.
pub(crate) fn prefixes(text: &str) -> Result<usize, String> {
    within(text, 0..=PREFIXES_MAX)
}

/// The error of an experiment; an interrupted one says only that.
pub(crate) fn finish_error(error: Error, interrupt: &Arc<AtomicBool>) -> anyhow::Result<ExitCode> {
    match (interrupt.load(Ordering::Relaxed), left_behind()) {
        // Whatever failed, failed because of that.
        (true, None) => bail!("interrupted; everything made for the experiment is removed"),
        (true, Some(advice)) => bail!("interrupted; {advice}"),
        (false, None) => Err(error.into()),
        (false, Some(advice)) => bail!("{error}; {advice}"),
    }
}

/// The advice for namespaces that an experiment did not remove.
pub(crate) fn left_behind() -> Option<String> {
    let left = trieline_lab::netns::left().join(" ");
    (!left.is_empty()).then(|| format!("network namespaces left behind (`ip netns del`): {left}"))
}

/// Runs an experiment on a machine that is quiet within `patience`, and stays so; without a `patience` on any.
pub(crate) fn measure(
    asked: &Asked,
    patience: Option<Duration>,
    context: &Context,
) -> Result<Box<dyn Finished>, Error> {
    // Before the look at the machine: a user does not end other work only to learn this.
    asked.check_root()?;
    let Some(patience) = patience.filter(|_| asked.measures) else { return asked.run(context) };
    Load::insist_quiet(patience)?;
    let finished = asked.run(context)?;
    let Calibration { samples, rejected, slow, .. } = finished.machine().calibration;
    if finished.machine().calibration.is_noisy() {
        return Err(Error::NoisyMachine { slow, samples, rejected });
    }
    Ok(finished)
}

/// Writes the document and its pictures into the folder of results. An interrupted run does not replace the document of a whole one: then
/// false.
pub(crate) fn save(finished: &dyn Finished, bars: &Bars) -> anyhow::Result<bool> {
    let directory = Path::new(RESULTS);
    let path = directory.join(format!("{}.json", finished.experiment()));
    if finished.machine().interrupted.is_some()
        && Saved::read(&path).is_ok_and(|saved| !saved.was_interrupted())
    {
        bars.say(&format!("{} is of a whole run: the interrupted one does not replace it", path.display()));
        return Ok(false);
    }
    let wrote = |path: &Path| bars.say(&format!("wrote {}", path.display()));
    wrote(&finished.save(directory).context("cannot save the result")?);
    for picture in finished.marked_pictures()? {
        wrote(&picture.save(directory)?);
    }
    Ok(true)
}

/// Prints a document, for people or as JSON.
pub(crate) fn show(output: &Output, finished: &dyn Finished) -> anyhow::Result<()> {
    if output.json {
        return output.text(&finished.json(output.pretty)?);
    }
    let m = finished.machine();
    let head = format!(
        "{}: {}, {} cores, Linux {}, commit {}, {}, seed {}{}\n\n",
        finished.title(),
        m.cpu,
        m.cores,
        m.kernel,
        m.git,
        m.date,
        m.seed,
        m.doubts()
    );
    output.text(&(head + &finished.text() + &refusals(finished)))
}

/// A line for each rival without rows.
fn refusals(finished: &dyn Finished) -> String {
    let line = |one: &Refusal| format!("No rows of {} ({}): {}.\n", one.rival, one.case, one.reason);
    finished.refused().iter().map(line).collect()
}
