//! `trieline top`: packets a second, by device, verdict, filter and SID: a screen on a terminal, else text or JSON.

mod picture;
mod screen;
mod view;

use crate::client::Names;
use clap::Args;
use picture::{Count, picture, text};
use screen::TICK;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trieline_router::api::instance::Instance;
use trieline_terminal::Output;

/// The end of the help.
const AFTER_HELP: &str = "\
Keys: s sort, / filter, d or Tab next device, arrows and Page keys scroll, q quit.
If standard output is not a terminal, or TERM is dumb, it prints text after each interval.
It needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong.";

/// How to look.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct TopArgs {
    /// Wait so many seconds between two pictures
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print one picture after one interval, and end
    #[arg(long)]
    once: bool,
}

fn parse_interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("invalid interval {text:?}: expected 0.1 to 3600 seconds")),
    }
}

/// Runs the command.
pub fn run(args: &TopArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    // If nothing can be counted at the start, it is an error; later, the screen shows it and waits.
    let mut before = Count::take(&instance)?;
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    if !output.json && !args.once && !dumb && std::io::stdout().is_terminal() {
        screen::run(instance, before, Duration::from_secs_f64(args.interval), output.colour, &ended)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut names = Names::default();
    loop {
        while before.at.elapsed().as_secs_f64() < args.interval {
            if ended.load(Ordering::Relaxed) {
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(TICK);
        }
        let now = Count::take(&instance)?;
        let picture = picture(&before, &now, &mut names);
        if output.json {
            output.document(&picture)?;
        } else {
            output.text(&text(&picture, output)?)?;
        }
        if args.once {
            return Ok(ExitCode::SUCCESS);
        }
        before = now;
    }
}
