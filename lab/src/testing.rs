//! Shared by the tests of experiments.

use std::sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicBool};

use crate::{Context, Quiet, Result, experiments::Experiment};

/// Lets one experiment at a time run in this process. Without root none can: then it is None, and the test counts as skipped.
pub fn alone() -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    if !trieline_testbed::root() {
        return None;
    }
    Some(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// An experiment with the options of a command line.
pub fn asked<E: Experiment>(words: &[&str]) -> clap::error::Result<E> {
    let command = E::augment_args(clap::Command::new(E::NAME)).no_binary_name(true);
    E::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// Runs an experiment; the caller has asked for it to stop, or not.
pub fn run<E: Experiment>(experiment: &E, is_interrupted: bool) -> Result<E::Outcome> {
    let interrupt = AtomicBool::new(is_interrupted);
    experiment.run(&Context { progress: &Quiet, interrupt: &interrupt })
}
