//! The options of `churn`.

use clap::Args;

use crate::experiments::{
    convergence::{RATE_MAX, ROUTES_MAX},
    options::{Only, Run, within},
};

/// The options.
#[derive(Args, Clone, Debug, Default)]
pub struct Churn {
    /// How often, and by which seed.
    #[command(flatten)]
    pub run: Run,
    /// Which events.
    #[command(flatten)]
    pub only: Only,
    /// Use a table of N routes [default: 1000000, quick 100000]
    #[arg(long, value_name = "N", value_parser = |text: &str| within(text, 8..=ROUTES_MAX))]
    pub routes: Option<usize>,
    /// Replace so many routes a second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub changes: u32,
    /// Send so many frames a second
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..=i64::from(RATE_MAX)))]
    pub rate: u32,
    /// Let an event last so long [default: 10, quick 1.5]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub trial: Option<f64>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "expected seconds from 0.1 to 600".into())
}
