//! Progress on stderr for commands that take a while, and the flag that Ctrl-C raises.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

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
    bar: Mutex<ProgressBar>,
    terminal: bool,
}

impl Bars {
    /// Nothing is shown before the first phase.
    pub fn new() -> Bars {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        Bars { bar: Mutex::new(ProgressBar::hidden()), terminal }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.lock().unwrap_or_else(PoisonError::into_inner).finish_and_clear();
    }

    /// A line of its own.
    pub fn say(&self, text: &str) {
        let bar = self.bar.lock().unwrap_or_else(PoisonError::into_inner);
        bar.suspend(|| eprintln!("{text}"));
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
        if !self.terminal {
            eprintln!("{what} …");
            return;
        }
        let (new, template) = if total == 0 {
            (ProgressBar::new_spinner(), "{spinner} {msg} {elapsed}")
        } else {
            (ProgressBar::new(total), "{msg:<28} {wide_bar} {human_pos}/{human_len} {elapsed}")
        };
        new.set_draw_target(ProgressDrawTarget::stderr());
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
