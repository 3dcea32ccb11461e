//! Tells whether the processor kept its speed: a virtual one changes it by half, which would drown every difference.

use std::hint::black_box;
use std::time::Instant;

/// Steps of the loop: some 50 µs.
const STEPS: u64 = 100_000;
/// How much slower than the quickest a round may have run.
const TOLERANCE: f64 = 1.06;

/// A loop of plain arithmetic, timed before and after each sample.
#[derive(Debug)]
pub(super) struct Gate {
    best: f64,
    /// The slowest loop of this round.
    worst: f64,
}

impl Gate {
    pub(super) fn new() -> Gate {
        Gate { best: f64::INFINITY, worst: 0.0 }
    }

    /// Times the loop: the quickest of three, as an interrupt is no change of speed.
    pub(super) fn step(&mut self) {
        let seconds = (0..3).map(|_| arithmetic()).fold(f64::INFINITY, f64::min);
        self.best = self.best.min(seconds);
        self.worst = self.worst.max(seconds);
    }

    /// The round's slowest loop.
    pub(super) fn end_round(&mut self) -> f64 {
        std::mem::take(&mut self.worst)
    }

    /// Whether a round ran at full speed.
    pub(super) fn is_steady(&self, worst: f64) -> bool {
        worst <= self.best * TOLERANCE
    }
}

fn arithmetic() -> f64 {
    let start = Instant::now();
    let mut x = black_box(1u64);
    for _ in 0..STEPS {
        // Each step waits for the one before.
        x = black_box(x.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(17));
    }
    black_box(x);
    start.elapsed().as_secs_f64()
}
