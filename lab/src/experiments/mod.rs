//! The experiments. Each is a module of its own: its options, its measuring, its rows, its text, its pictures and its tests. To add one,
//! write its module and name it here twice: as a module, and in [`LIST`].

use clap::{ArgMatches, Command, FromArgMatches, Subcommand, error::ErrorKind};
use serde::Deserialize;
use serde_json::Value;

use crate::{Context, Error, Result, report::Finished};

pub mod churn;
pub mod convergence;
pub mod engines;
pub mod forward;
pub mod livelock;
pub mod map_curve;
pub mod map_free;
pub mod map_ops;
pub mod map_tables;
pub mod project;
pub mod queues;
pub mod rss;
pub mod throughput;
pub mod trace_hooks;
pub mod trace_overhead;
pub mod tries;

// Shared by some of them.
pub mod comparison;
mod experiment;
mod forked;
pub mod options;
mod probed;
pub mod structure;
mod touched;

pub use experiment::{Better, Compared, Experiment, Figure};

/// All experiments.
pub static LIST: [Listed; 16] = [
    Listed::of::<churn::Churn>(),
    Listed::of::<convergence::Convergence>(),
    Listed::of::<engines::Engines>(),
    Listed::of::<map_curve::MapCurve>(),
    Listed::of::<map_free::MapFree>(),
    Listed::of::<map_ops::MapOps>(),
    Listed::of::<map_tables::MapTables>(),
    Listed::of::<queues::Queues>(),
    Listed::of::<rss::Rss>(),
    Listed::of::<trace_hooks::TraceHooks>(),
    Listed::of::<trace_overhead::TraceOverhead>(),
    Listed::of::<tries::Tries>(),
    Listed::of::<forward::Forward>(),
    Listed::of::<livelock::Livelock>(),
    Listed::of::<project::Project>(),
    Listed::of::<throughput::Throughput>(),
];

/// An entry of [`LIST`].
pub struct Listed {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose, in a line.
    pub purpose: &'static str,
    /// How its documents are compared.
    pub compared: &'static [Compared],
    /// Folders of the product that it measures.
    pub code: &'static [&'static str],
    /// Seconds that a quick run takes, roughly.
    pub quick_seconds: u64,
    /// Seconds that a full run takes, roughly.
    pub full_seconds: u64,
    options: fn(Command) -> Command,
    ask: fn(&ArgMatches) -> clap::error::Result<Asked>,
    read: fn(&'static Value) -> serde_json::Result<Box<dyn Finished>>,
}

impl Listed {
    const fn of<E: Experiment + 'static>() -> Listed {
        Listed {
            name: E::NAME,
            purpose: E::PURPOSE,
            compared: E::COMPARED,
            code: E::CODE,
            quick_seconds: E::QUICK_SECONDS,
            full_seconds: E::FULL_SECONDS,
            options: E::augment_args,
            ask: |matches| {
                let asked = E::from_arg_matches(matches)?;
                Ok(Asked {
                    name: E::NAME,
                    needs_root: asked.needs_root(),
                    measures: asked.measures(),
                    run: Box::new(move |context| Ok(Box::new(asked.run(context)?))),
                })
            },
            read: |document| Ok(Box::new(E::Outcome::deserialize(document)?)),
        }
    }
}

impl Listed {
    /// The experiment with the options of these words.
    ///
    /// # Errors
    /// It does not take such an option.
    pub fn asked(&self, words: &[String]) -> clap::error::Result<Asked> {
        let command = (self.options)(Command::new(self.name)).no_binary_name(true);
        (self.ask)(&command.try_get_matches_from(words)?)
    }
}

impl Listed {
    /// A saved document of it, with its text and pictures. The document stays in memory until the program ends. The texts of a document are
    /// those of the program that wrote it, and a program that writes it has them in its own text.
    ///
    /// # Errors
    /// A key is missing, or has a value that it cannot have.
    pub fn read(&self, document: Value) -> serde_json::Result<Box<dyn Finished>> {
        (self.read)(Box::leak(Box::new(document)))
    }
}

type Work = dyn Fn(&Context) -> Result<Box<dyn Finished>>;

/// An experiment with its options, as a command line names it.
pub struct Asked {
    /// Its name on the command line.
    pub name: &'static str,
    /// Whether only root can run it.
    needs_root: bool,
    /// Whether it measures anything.
    pub measures: bool,
    run: Box<Work>,
}

impl Asked {
    /// An error if it needs root and this process is not.
    ///
    /// # Errors
    /// [`Error::NotRoot`].
    pub fn check_root(&self) -> Result<()> {
        if self.needs_root && !rustix::process::geteuid().is_root() { Err(Error::NotRoot) } else { Ok(()) }
    }

    /// Runs it; blocks until the end.
    pub fn run(&self, context: &Context) -> Result<Box<dyn Finished>> {
        (self.run)(context)
    }
}

impl Subcommand for Asked {
    fn augment_subcommands(command: Command) -> Command {
        let listed = |one: &Listed| (one.options)(Command::new(one.name)).about(one.purpose).long_about(None);
        command.subcommands(LIST.iter().map(listed))
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Asked::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        LIST.iter().any(|one| one.name == name)
    }
}

impl FromArgMatches for Asked {
    fn from_arg_matches(matches: &ArgMatches) -> clap::error::Result<Asked> {
        let named = matches
            .subcommand()
            .and_then(|(name, options)| Some((LIST.iter().find(|one| one.name == name)?, options)));
        let (one, options) = named.ok_or_else(|| clap::Error::new(ErrorKind::MissingSubcommand))?;
        (one.ask)(options)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> clap::error::Result<()> {
        *self = Asked::from_arg_matches(matches)?;
        Ok(())
    }
}
