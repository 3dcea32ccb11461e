//! Points in functions of the process itself, on the command line: `--uprobe` and `--usdt`, and what makes no sense beside them.

use clap::Args;
use trieline_trace::Probe;

use super::args::What;
use trieline_terminal::usage;

/// Why the cost is not measured on sockets of the tracer's own.
pub const COST: &str = "not measured: it depends on the functions' own instructions; with -p, --live-cost measures it on the process";

/// Where B and C are, if not at sockets.
#[derive(Args, Debug, Clone)]
pub struct ProbeArgs {
    /// Take B (received) or C (sent) in a function of the process
    ///
    /// Instead of at its sockets: as the function is entered or, with %return, as it returns how many bytes it moved. FILE is an absolute
    /// path or, with -p, the name of a file that the process has mapped: received=libssl.so.3:SSL_read%return. Give both points; each may
    /// be in several functions.
    #[arg(long, value_name = "POINT=FILE:FUNCTION[+OFFSET][%return]", value_parser = Probe::function)]
    pub uprobe: Vec<Probe>,
    /// Take B or C at a static probe of the process (USDT)
    #[arg(long, value_name = "POINT=FILE:PROVIDER:NAME", value_parser = Probe::usdt)]
    pub usdt: Vec<Probe>,
}

impl ProbeArgs {
    /// All of them, for the tracer.
    pub fn probes(&self) -> Vec<Probe> {
        self.uprobe.iter().chain(&self.usdt).cloned().collect()
    }

    /// Refuses what only sockets have.
    pub fn check(&self, what: &What) -> anyhow::Result<()> {
        if self.uprobe.is_empty() && self.usdt.is_empty() {
            return Ok(());
        }
        let no_socket = "a function has no socket";
        let no_bytes = "a function shows no bytes of a message, so trieline joins by thread";
        let given = [
            ("--port", what.port.is_some(), no_socket),
            ("--transport", !what.transport.is_empty(), no_socket),
            ("--arrivals", what.arrivals, no_socket),
            ("--client", !what.client.is_empty(), no_socket),
            ("--id", what.id.is_some(), no_bytes),
            ("--decode", what.decode.is_some(), no_bytes),
            ("--capture", what.capture.is_some(), no_bytes),
            ("--stamp", what.stamp.is_some(), no_bytes),
            ("--done", what.done, "C is where the probe is"),
            ("--hooks", what.hooks.is_some(), "the probes are the hooks"),
        ];
        match given.into_iter().find(|(_, is_given, _)| *is_given) {
            Some((option, _, why)) => {
                Err(usage(format!("{option} does not go with --uprobe and --usdt: {why}")).into())
            }
            None => Ok(()),
        }
    }
}
