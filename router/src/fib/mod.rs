//! From routes to what a packet meets: lookup tables, actions by number, and the changes of both.

pub mod action_index;
pub mod cause;
pub mod expected;
pub mod lookup_ids;
pub mod meaning;
pub mod policies;
pub mod publish;
pub mod published;
pub mod readers;
pub mod reserve;
pub mod resolve;
pub mod sources;
mod writer;
