//! The options of `forward`, and a run with everything that it needs.

use clap::Args;
use trieline_lpm::Prefix;
use trieline_testbed::daemon::Programs;

use crate::{
    experiments::options::{Only, Run, Table},
    tables::Tables,
};

/// Its options.
#[derive(Args, Clone, Debug, Default)]
pub struct Forward {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which table.
    #[command(flatten)]
    pub table: Table,
    /// Which cases.
    #[command(flatten)]
    pub only: Only,
    /// Send so many frames a turn [default: 1000000, quick 150000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub frames: Option<u64>,
}

/// A run with everything that it needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The options.
    pub options: Forward,
    /// The routes.
    pub tables: Tables,
    /// The product; without it only the kernel and the bare redirect are measured.
    pub product: Option<Programs>,
    /// Lists of hosts, each for a node that filters by it; measured with the product only.
    pub filters: Vec<Hosts>,
}

/// Hosts to which packets are dropped.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Name of the list's row.
    pub path: &'static str,
    /// Sorted, each once.
    pub hosts: Vec<Prefix<u32>>,
}
