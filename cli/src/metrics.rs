//! `trieline metrics`: the daemon's counts for Prometheus, served by a process of its own that needs no privileges.

mod http;
mod scrape;
mod text;

use crate::client::one_within;
use anyhow::anyhow;
use clap::Subcommand;
use http::{Format, Server};
use scrape::Scrape;
use sd_notify::NotifyState;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::api::status::Status;
use trieline_router::sid_hook::SidHookStatus;

/// How long the daemon may take for an answer. Prometheus waits for 10 s unless it is configured otherwise.
const PATIENCE: Duration = Duration::from_secs(2);

/// The end of the help.
const AFTER_HELP: &str = "\
It needs root, or a user of group trieline. It runs until a signal ends it. While trielined does not answer, trieline_up is 0.
Exit codes: 1 failed; 2 the command line is wrong.";

/// Metrics.
#[derive(Debug, Subcommand)]
pub enum MetricsCommand {
    /// Answer GET /metrics in the formats of Prometheus
    #[command(after_help = AFTER_HELP)]
    Serve {
        /// Listen on this address and port
        #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464", value_parser = parse_listen)]
        listen: SocketAddr,
    },
}

fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected ADDRESS:PORT, such as 127.0.0.1:9464 or [::1]:9464".into())
}

/// Runs a `metrics` command.
pub fn run(command: &MetricsCommand) -> anyhow::Result<ExitCode> {
    let MetricsCommand::Serve { listen } = command;
    let instance = Instance::current()?;
    let listener = TcpListener::bind(listen).map_err(|error| {
        // A new network namespace has its loopback device down.
        let is_down = error.kind() == ErrorKind::AddrNotAvailable && listen.ip().is_loopback();
        let hint = if is_down { "; in this network namespace, run `ip link set lo up`" } else { "" };
        anyhow!("cannot listen on {listen}: {error}{hint}")
    })?;
    eprintln!("trieline: listening on http://{}/metrics", listener.local_addr()?);
    // This does nothing without systemd.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let mut source = Source { instance, answered: true };
    Server::new(listener)?.run(|format| source.text(format))
}

/// Where the figures come from.
struct Source {
    instance: Instance,
    /// The last scrape had an answer. Only changes are logged.
    answered: bool,
}

impl Source {
    /// The answer to a scrape.
    fn text(&mut self, format: Format) -> anyhow::Result<String> {
        let begun = Instant::now();
        let asked = self.ask();
        match &asked {
            Ok(_) if !self.answered => eprintln!("trieline: trielined answers again"),
            Err(error) if self.answered => eprintln!("trieline: no metrics: {error}; trieline_up is 0"),
            _ => {}
        }
        self.answered = asked.is_ok();
        let text = Scrape { daemon: asked.ok(), begun }.encode()?;
        Ok(match format {
            Format::OpenMetrics => text,
            Format::Text => text::classic(&text),
        })
    }

    fn ask(&self) -> anyhow::Result<(Status, Vec<SidHookStatus>)> {
        let status: Status = one_within(&self.instance, PATIENCE, &Request::Status)??;
        let hooks = one_within(&self.instance, PATIENCE, &Request::SidHooks)??;
        Ok((status, hooks))
    }
}
