//! `trieline lab run all`: every experiment, one after another. Each document is saved as soon as it is there.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde::Serialize;
use trieline_lab::{
    Context,
    experiments::{
        Asked, LIST, Listed,
        options::{ROUNDS_MAX, within},
    },
    load::Load,
    measure::rounded,
    report::{Column, Finished, table},
    results::Saved,
};
use trieline_terminal::{Bars, Output, error_text, interrupt_flag, rough, usage};

use super::shared::{QUIET_WITHIN, RESULTS, left_behind, measure, save, show};

/// A quick run is interrupted after this time.
const QUICK: Duration = Duration::from_secs(15 * 60);
/// An estimate names so many experiments.
const LONGEST: usize = 3;
/// A machine that is quiet before the run may be busy for so long between experiments: the kernel still frees what the last one had.
const PATIENCE: Duration = Duration::from_secs(10);

/// Options of `lab run all`.
#[derive(Args, Debug)]
#[command(
    after_help = "It writes NAME.json and pictures into the folder `results`, as with --save. Ctrl-C keeps the documents of experiments that have ended, and the finished \
                  rounds of the one that runs; --resume goes on. Exit codes: 0 all have ended; 1 one failed or was interrupted; 2 the command line is wrong."
)]
pub struct AllArgs {
    /// End within 15 minutes
    ///
    /// With fewer and shorter rounds, and smaller tables.
    #[arg(long)]
    quick: bool,
    /// Skip experiments whose documents are in `results`
    ///
    /// They count if version, commit, machine and the other options are the same, and the machine was quiet (or --busy is given).
    #[arg(long)]
    resume: bool,
    /// Run only experiments whose name contains NAME
    ///
    /// Several with commas between.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Set the seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Run so many rounds [default: each experiment's]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 1..=ROUNDS_MAX))]
    rounds: Option<usize>,
}

/// How an experiment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Measured,
    /// Its document was there already.
    Skipped,
    Failed,
    Interrupted,
    /// The run was interrupted before it.
    #[serde(rename = "not begun")]
    Left,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            End::Measured => "measured",
            End::Skipped => "skipped",
            End::Failed => "failed",
            End::Interrupted => "interrupted",
            End::Left => "not begun",
        }
    }
}

/// A line of the sum.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) experiment: &'static str,
    end: End,
    seconds: f64,
    /// The document, if it is there.
    file: Option<String>,
    /// Why there is none.
    pub(crate) reason: Option<String>,
}

impl Row {
    /// Interrupted, or not begun for that.
    pub(crate) fn was_interrupted(&self) -> bool {
        matches!(self.end, End::Interrupted | End::Left)
    }
}

impl AllArgs {
    /// All experiments, with their own rounds.
    pub(crate) fn for_report(quick: bool) -> AllArgs {
        AllArgs { quick, resume: false, only: Vec::new(), seed: 1, rounds: None }
    }

    /// The experiments to run, in the list's order.
    fn chosen(&self) -> Result<Vec<&'static Listed>, clap::Error> {
        let names = || LIST.iter().map(|listed| listed.name);
        for part in &self.only {
            if !names().any(|name| name.contains(part)) {
                let list: Vec<_> = names().collect();
                return Err(usage(format!(
                    "invalid {part:?} for --only: expected a part of one of {}",
                    list.join(", ")
                )));
            }
        }
        let is_chosen = |name: &str| self.only.is_empty() || self.only.iter().any(|part| name.contains(part));
        Ok(LIST.iter().filter(|listed| is_chosen(listed.name)).collect())
    }

    /// The options that stand behind the name of an experiment.
    fn options(&self) -> String {
        let rounds = self.rounds.map(|rounds| format!(" --rounds {rounds}")).unwrap_or_default();
        let seed = if self.seed == 1 { String::new() } else { format!(" --seed {}", self.seed) };
        format!("{}{rounds}{seed}", if self.quick { " --quick" } else { "" })
    }

    /// The words that a user would type for the same document.
    fn command(&self, listed: &Listed) -> String {
        format!("trieline lab run {}{} --save", listed.name, self.options())
    }

    /// Whether the document that a run would make is there.
    fn is_saved(&self, listed: &Listed, may_be_busy: bool) -> bool {
        Saved::read(&file(listed))
            .is_ok_and(|saved| saved.is_of(listed.name, &self.command(listed), may_be_busy))
    }
}

/// Where an experiment's document is saved.
fn file(listed: &Listed) -> PathBuf {
    Path::new(RESULTS).join(format!("{}.json", listed.name))
}

/// Refuses a quick run whose document would replace that of a full one: hours of measuring.
pub(crate) fn keep_full(name: &str, quick: bool) -> anyhow::Result<()> {
    let path = Path::new(RESULTS).join(format!("{name}.json"));
    match Saved::read(&path) {
        Ok(saved) if quick && !saved.is_quick() => bail!(
            "cannot save {name}: {} is of a full run, and a quick one would replace it; move it away, or measure in another folder",
            path.display()
        ),
        _ => Ok(()),
    }
}

/// Makes the folder of results, and finds out whether files can be made there: before hours of measuring.
fn make_folder() -> anyhow::Result<()> {
    let cannot = || format!("cannot write into the folder `{RESULTS}`");
    fs::create_dir_all(RESULTS).with_context(cannot)?;
    tempfile::tempfile_in(RESULTS).with_context(cannot)?;
    Ok(())
}

/// Runs `trieline lab run all`.
pub fn run(args: &AllArgs, may_be_busy: bool, output: &Output) -> anyhow::Result<ExitCode> {
    let rows = measure_all(args, may_be_busy, &mut |finished| {
        if output.json {
            return Ok(());
        }
        show(output, finished).and_then(|()| output.text(""))
    })?;
    sum(&rows, output)
}

/// Runs the experiments of `args`, and shows each document as soon as it is saved.
pub(crate) fn measure_all(
    args: &AllArgs,
    may_be_busy: bool,
    shown: &mut dyn FnMut(&dyn Finished) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Row>> {
    let chosen = args.chosen()?;
    make_folder()?;
    let (saved, due): (Vec<_>, Vec<_>) =
        chosen.iter().copied().partition(|listed| args.resume && args.is_saved(listed, may_be_busy));
    for listed in &due {
        keep_full(listed.name, args.quick)?;
    }
    for listed in &due {
        args.asked(listed)?.check_root()?;
    }
    if !due.is_empty() && !may_be_busy {
        Load::insist_quiet(QUIET_WITHIN)?;
    }
    let (interrupt, bars) = (interrupt_flag()?, Bars::new());
    if !due.is_empty() {
        bars.say(&estimate(args.quick, &due));
    }
    let context = Context { progress: &bars, interrupt: &interrupt };
    if args.quick {
        let interrupt = interrupt.clone();
        std::thread::spawn(move || {
            std::thread::sleep(QUICK);
            interrupt.store(true, Ordering::Relaxed);
        });
    }
    let run_began = Instant::now();
    let late = || (args.quick && run_began.elapsed() >= QUICK).then(|| "the 15 minutes are over".into());
    let mut time = Time::new(args.quick, &due);
    let mut pieces = bars.pieces(due.len());
    let mut rows = Vec::new();
    for listed in chosen {
        let began = Instant::now();
        let (end, reason) = if saved.iter().any(|one| one.name == listed.name) {
            (End::Skipped, None)
        } else if context.interrupted() {
            (End::Left, None)
        } else {
            pieces.begin(listed.name, Some(time.left()));
            let result = args.measure(listed, may_be_busy, &context, &bars);
            time.ended(listed, began.elapsed());
            match result {
                Ok((finished, is_saved)) => {
                    bars.hidden(|| shown(finished.as_ref()))?;
                    match &finished.machine().interrupted {
                        None => (End::Measured, None),
                        Some(at) if is_saved => (End::Interrupted, Some(format!("interrupted {at}; saved"))),
                        Some(at) => (End::Interrupted, Some(format!("interrupted {at}"))),
                    }
                }
                Err(_) if context.interrupted() => (End::Interrupted, left_behind().or_else(late)),
                Err(error) => (End::Failed, Some(error_text(&error))),
            }
        };
        if let Some(reason) = &reason {
            bars.say(&format!("{}: {reason}", listed.name));
        }
        // An interrupted run leaves a document, too, if it had come to figures.
        let has_file = match end {
            End::Measured | End::Skipped => true,
            End::Interrupted => reason.as_ref().is_some_and(|reason| reason.ends_with("; saved")),
            End::Failed | End::Left => false,
        };
        let file = has_file.then(|| file(listed).display().to_string());
        let seconds = rounded(began.elapsed().as_secs_f64(), 1);
        rows.push(Row { experiment: listed.name, end, seconds, file, reason });
    }
    drop(pieces);
    bars.finish();
    Ok(rows)
}

impl AllArgs {
    /// Runs one experiment, and saves its document.
    fn measure(
        &self,
        listed: &Listed,
        may_be_busy: bool,
        context: &Context,
        bars: &Bars,
    ) -> anyhow::Result<(Box<dyn Finished>, bool)> {
        let asked = self.asked(listed)?;
        let patience = (!may_be_busy).then_some(PATIENCE);
        // A defect of one experiment does not end the others.
        let finished = catch_unwind(AssertUnwindSafe(|| measure(&asked, patience, context)))
            .map_err(|_| anyhow!("it panicked: a defect of the lab"))?;
        let finished = finished.map_err(|error| match left_behind() {
            Some(advice) => anyhow!("{error}; {advice}"),
            None => error.into(),
        })?;
        let is_saved = save(finished.as_ref(), bars)?;
        Ok((finished, is_saved))
    }

    /// An experiment with the options of this run.
    fn asked(&self, listed: &Listed) -> Result<Asked, clap::Error> {
        let mut words: Vec<String> = self.options().split_whitespace().map(str::to_owned).collect();
        words.push(format!("--command-line={}", self.command(listed)));
        listed.asked(&words)
    }
}

/// Seconds that an experiment takes, roughly.
fn seconds(is_quick: bool, listed: &Listed) -> u64 {
    if is_quick { listed.quick_seconds } else { listed.full_seconds }
}

/// How long these experiments take together, and those that take the longest.
fn estimate(is_quick: bool, due: &[&Listed]) -> String {
    let all: u64 = due.iter().map(|listed| seconds(is_quick, listed)).sum();
    let mut longest = due.to_vec();
    longest.sort_by_key(|listed| std::cmp::Reverse(seconds(is_quick, listed)));
    let named = longest
        .iter()
        .take(LONGEST)
        .map(|listed| format!("{} {}", listed.name, rough(Duration::from_secs(seconds(is_quick, listed)))));
    let named: Vec<String> = named.collect();
    let count = if due.len() == 1 { "1 experiment".into() } else { format!("{} experiments", due.len()) };
    format!("{count}: {} in all; the longest: {}", rough(Duration::from_secs(all)), named.join(", "))
}

/// The time left, from what runs take on the machine that they were timed on, and from what those before took on this one.
struct Time {
    is_quick: bool,
    /// Seconds there: of all, and of those that have ended.
    all: u64,
    done: u64,
    took: Duration,
}

impl Time {
    fn new(is_quick: bool, due: &[&Listed]) -> Time {
        let all = due.iter().map(|listed| seconds(is_quick, listed)).sum();
        Time { is_quick, all, done: 0, took: Duration::ZERO }
    }

    fn ended(&mut self, listed: &Listed, took: Duration) {
        self.done += seconds(self.is_quick, listed);
        self.took += took;
    }

    fn left(&self) -> Duration {
        let rest = Duration::from_secs(self.all - self.done);
        match self.done {
            0 => rest,
            done => rest.mul_f64(self.took.as_secs_f64() / done as f64),
        }
    }
}

/// Prints the sum. The exit code is 1 unless every experiment has its document.
fn sum(rows: &[Row], output: &Output) -> anyhow::Result<ExitCode> {
    if output.json {
        output.document(&rows)?;
    } else {
        output.text(&table(rows, 2, &COLUMNS).text())?;
    }
    let names = |end| {
        let of_end: Vec<_> = rows.iter().filter(|row| row.end == end).map(|row| row.experiment).collect();
        (!of_end.is_empty()).then(|| of_end.join(", "))
    };
    let part = |what, end| names(end).map(|names| format!("{what}: {names}"));
    let parts =
        [part("failed", End::Failed), part("interrupted", End::Interrupted), part("not begun", End::Left)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let there = rows.iter().filter(|row| row.file.is_some()).count();
    bail!(
        "{}; {there} of {} documents are in `{RESULTS}`: add --resume for the others",
        parts.join("; "),
        rows.len()
    )
}

const COLUMNS: [Column<Row>; 4] = [
    ("experiment", |row| row.experiment.into()),
    ("end", |row| row.end.name().into()),
    ("seconds", |row| format!("{:.0}", row.seconds)),
    ("document", |row| row.file.clone().unwrap_or_default()),
];

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches;

    fn args(words: &[&str]) -> AllArgs {
        let command = AllArgs::augment_args(clap::Command::new("all")).no_binary_name(true);
        AllArgs::from_arg_matches(&command.get_matches_from(words)).unwrap()
    }

    #[test]
    fn experiments_get_the_options_of_the_run() {
        let all = args(&["--quick", "--rounds", "2", "--seed", "7", "--only", "rss,map-f"]);
        let chosen = all.chosen().unwrap();
        assert_eq!(chosen.iter().map(|listed| listed.name).collect::<Vec<_>>(), ["map-free", "rss"]);
        assert_eq!(all.command(chosen[1]), "trieline lab run rss --quick --rounds 2 --seed 7 --save");
        assert_eq!(args(&[]).command(chosen[1]), "trieline lab run rss --save");
        assert_eq!(args(&[]).chosen().unwrap().len(), LIST.len());
        let error = args(&["--only", "rss,chess"]).chosen().err().unwrap().to_string();
        assert!(error.contains("\"chess\"") && error.contains("map-free"), "{error}");
        // Each experiment takes them.
        for listed in &LIST {
            let words: Vec<String> = all.options().split_whitespace().map(str::to_owned).collect();
            assert!(listed.asked(&words).is_ok(), "{}", listed.name);
        }
    }

    #[test]
    fn the_time_left_follows_the_times_so_far() {
        let due: Vec<&Listed> = LIST.iter().collect();
        let all: u64 = due.iter().map(|listed| listed.quick_seconds).sum();
        let mut time = Time::new(true, &due);
        assert_eq!(time.left(), Duration::from_secs(all));
        let full: u64 = due.iter().map(|listed| listed.full_seconds).sum();
        assert_eq!(Time::new(false, &due).left(), Duration::from_secs(full));
        time.ended(due[0], Duration::from_secs(2 * due[0].quick_seconds));
        assert_eq!(time.left(), Duration::from_secs(2 * (all - due[0].quick_seconds)));
    }

    #[test]
    fn a_run_says_how_long_it_takes_before_it_begins() {
        let due: Vec<&Listed> =
            LIST.iter().filter(|listed| ["rss", "throughput"].contains(&listed.name)).collect();
        assert_eq!(
            estimate(false, &due),
            "2 experiments: about 19 h in all; the longest: throughput about 19 h, rss about 60 s"
        );
        assert_eq!(
            estimate(true, &due[..1]),
            format!("1 experiment: about 10 s in all; the longest: {} about 10 s", due[0].name)
        );
    }

    #[test]
    fn quick_runs_of_all_fit_into_a_quarter_of_an_hour() {
        let seconds: u64 = LIST.iter().map(|listed| listed.quick_seconds).sum();
        assert!(seconds <= QUICK.as_secs() * 9 / 10, "{seconds}");
    }
}
