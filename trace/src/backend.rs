//! The backends: each takes the same points in another way.

/// A way to take the points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Programs at the ends of the address families' functions (fexit).
    Functions,
    /// Tracepoints inside sockets (Linux 6.3).
    Sockets,
    /// A tracepoint at the end of every system call.
    SystemCalls,
    /// Probes in functions of the processes themselves: no backend, only on request ([`crate::Options::probes`]).
    User,
}

impl Backend {
    /// From the first choice to the last.
    pub const ALL: [Backend; 3] = [Backend::Functions, Backend::Sockets, Backend::SystemCalls];

    /// The name in outputs and on the command line.
    pub fn name(self) -> &'static str {
        ["functions", "sockets", "system-calls", "user"][self as usize]
    }
}

/// The reason why a backend was passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The backend.
    pub backend: Backend,
    /// In words.
    pub reason: String,
}
