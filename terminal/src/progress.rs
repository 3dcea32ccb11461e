//! Progress on stderr for commands that take a while, and the flag that Ctrl-C raises.

use std::{
    fmt::Write,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

/// Receives how far long work is.
pub trait Progress: Sync {
    /// A new phase begins: `total` steps, 0 when the number is not known.
    fn phase(&self, what: &str, total: u64);
    /// So many more steps of the phase are done.
    fn advance(&self, steps: u64);
    /// Something a reader of the result should know.
    fn note(&self, text: &str);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn phase(&self, _: &str, _: u64) {}
    fn advance(&self, _: u64) {}
    fn note(&self, _: &str) {}
}

/// A flag that SIGINT and SIGTERM raise, so that a loop that reads it can clean up.
pub fn interrupt_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, flag.clone())?;
    }
    Ok(flag)
}

/// One bar or spinner a phase, on stderr; lines when stderr is not a terminal.
#[derive(Debug)]
pub struct Bars {
    all: MultiProgress,
    bar: Mutex<ProgressBar>,
    terminal: bool,
}

/// A line below the phases' bars: which piece of a long work runs, and the time left.
#[derive(Debug)]
pub struct Pieces<'a> {
    bars: &'a Bars,
    bar: ProgressBar,
    count: usize,
    begun: usize,
}

impl Pieces<'_> {
    /// The next piece begins. `left`: how long it and those after it should take, if that can be said.
    pub fn begin(&mut self, what: &str, left: Option<Duration>) {
        self.begun += 1;
        let (at, count) = (self.begun, self.count);
        if !self.bars.terminal {
            let left = left.map(|left| format!(", {} left", rough(left))).unwrap_or_default();
            eprintln!("{at} of {count}: {what}{left} …");
            return;
        }
        let end = left.map(|left| Instant::now() + left);
        let show = move |_: &ProgressState, out: &mut dyn Write| {
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            let _ = left.map_or(Ok(()), |left| write!(out, ", {} left", rough(left)));
        };
        if let Ok(style) = ProgressStyle::with_template("{msg}{left}") {
            self.bar.set_style(style.with_key("left", show));
        }
        self.bar.set_message(format!("{at} of {count}: {what}"));
        self.bar.enable_steady_tick(Duration::from_secs(1));
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A time that is estimated, in words: hours, whole minutes, or tens of seconds.
pub fn rough(time: Duration) -> String {
    match time.as_secs() {
        0..10 => "a few seconds".into(),
        seconds @ 10..95 => format!("about {} s", seconds.div_ceil(10) * 10),
        seconds @ 95..7200 => format!("about {} min", (seconds + 30) / 60),
        seconds => format!("about {} h", (seconds + 1800) / 3600),
    }
}

impl Bars {
    /// Nothing is shown before the first phase.
    pub fn new() -> Bars {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Bars { all: MultiProgress::new(), bar: Mutex::new(ProgressBar::hidden()), terminal }
    }

    /// For a work in so many pieces.
    pub fn pieces(&self, count: usize) -> Pieces<'_> {
        let bar =
            if self.terminal { self.all.add(ProgressBar::new_spinner()) } else { ProgressBar::hidden() };
        Pieces { bars: self, bar, count, begun: 0 }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
    }

    /// A line of its own.
    pub fn say(&self, text: &str) {
        self.hidden(|| eprintln!("{text}"));
    }

    /// Prints, while no bar is in the way.
    pub fn hidden<R>(&self, print: impl FnOnce() -> R) -> R {
        self.all.suspend(print)
    }
}

impl Default for Bars {
    fn default() -> Self {
        Bars::new()
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bars {
    fn phase(&self, what: &str, total: u64) {
        let mut bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.finish_and_clear();
        self.all.remove(&bar);
        if !self.terminal {
            eprintln!("{what} …");
            return;
        }
        let (new, template) = if total == 0 {
            (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}")
        } else {
            (ProgressBar::new(total), "{msg:<28} {wide_bar} {human_pos}/{human_len} {elapsed}")
        };
        let new = self.all.insert(0, new);
        if let Ok(style) = ProgressStyle::with_template(template) {
            new.set_style(style);
        }
        new.set_message(what.to_owned());
        new.enable_steady_tick(Duration::from_millis(200));
        *bar = new;
    }

    fn advance(&self, steps: u64) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).inc(steps);
    }

    fn note(&self, text: &str) {
        self.say(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_not_more_exact_than_they_can_be() {
        for (seconds, text) in [
            (0, "a few seconds"),
            (9, "a few seconds"),
            (11, "about 20 s"),
            (90, "about 90 s"),
            (95, "about 2 min"),
            (840, "about 14 min"),
        ] {
            assert_eq!(rough(Duration::from_secs(seconds)), text);
        }
    }
}
