//! Points in functions of the process itself, on the command line: `--uprobe` and `--usdt`.

use clap::Args;
use trieline_trace::Probe;

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
}
