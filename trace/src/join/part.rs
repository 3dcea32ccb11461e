//! The parts of a message's way.

/// The part that a time is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The place where it begins.
    pub from: Place,
    /// The place where it ends.
    pub to: Place,
}

/// A point as docs/trace.md names it, in the order of a message's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A client has sent it.
    A,
    /// It has arrived at a device.
    R,
    /// It leaves a host that forwards it.
    Q,
    /// The traced process has received it.
    B,
    /// The traced process has sent it.
    C,
    /// A client has received it.
    D,
}

impl Part {
    /// From a client to what is traced.
    pub const IN: Part = Part { from: Place::A, to: Place::B };
    /// T2.
    pub const INSIDE: Part = Part { from: Place::B, to: Place::C };
    /// From one that is traced to another.
    pub const BETWEEN: Part = Part { from: Place::C, to: Place::B };
    /// To a client.
    pub const OUT: Part = Part { from: Place::C, to: Place::D };

    /// The name in outputs: `A→B`.
    pub fn name(self) -> String {
        format!("{:?}→{:?}", self.from, self.to)
    }
}
