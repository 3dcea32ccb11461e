//! The calibration loop: a fixed piece of computing tells whether the processor kept its speed. A virtual one changes it by half, which would
//! drown every difference.

use std::hint::black_box;
use std::time::Instant;

/// Steps of the loop: some 50 µs.
const STEPS: u64 = 100_000;

/// Readings of a loop of plain arithmetic, which is timed before and after each sample.
#[derive(Debug)]
pub struct Gate {
    quickest: f64,
    slowest: f64,
    holds: bool,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { quickest: f64::INFINITY, slowest: 0.0, holds: false }
    }
}

impl Gate {
    /// How much slower than the quickest loop the slowest may be.
    pub const TOLERANCE: f64 = 1.06;

    /// Times the loop on this CPU.
    pub fn step(&mut self) {
        self.add(Gate::seconds());
    }

    /// Seconds of the loop: the quickest of three, as an interrupt does not change the speed.
    pub fn seconds() -> f64 {
        (0..3).map(|_| arithmetic()).fold(f64::INFINITY, f64::min)
    }

    /// Adds a reading that was taken elsewhere, seconds.
    pub fn add(&mut self, seconds: f64) {
        self.quickest = self.quickest.min(seconds);
        self.slowest = self.slowest.max(seconds);
    }

    /// Says that the sample holds at any speed: what was done on a slow machine would be done on a quick one, too.
    pub fn hold(&mut self) {
        self.holds = true;
    }

    /// Whether the sample holds at any speed.
    pub fn holds(&self) -> bool {
        self.holds
    }

    /// Seconds of the quickest reading; infinite without any.
    pub fn quickest(&self) -> f64 {
        self.quickest
    }

    /// Seconds of the slowest reading; 0 without any.
    pub fn slowest(&self) -> f64 {
        self.slowest
    }

    /// Whether all readings since the last call were of one speed; begins again.
    pub fn end_round(&mut self) -> bool {
        let round = std::mem::take(self);
        round.slowest <= round.quickest * Gate::TOLERANCE
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
