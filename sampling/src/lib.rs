//! Samples of interleaved rounds: every case has its turn in random order. A calibration loop rejects samples of a slow machine, and a
//! median has an interval. The lab and the tracer measure by it.

mod gate;
mod rounds;
mod samples;

pub use gate::Gate;
pub use rounds::{Kept, Rounds, Sampler};
pub use samples::{Median, ROUNDS_MIN, Samples, quantile, rounded, trimmed_mean};
