//! What `map-ops` says: its parameters and a row for each operation on each structure.

use serde::Serialize;

/// What was asked for, as the document says it.
#[derive(Clone, Debug, Serialize)]
pub struct Parameters {
    /// Whether it was a quick run.
    pub quick: bool,
    /// Entries of the table.
    pub entries: usize,
    /// Interleaved rounds.
    pub rounds: usize,
    /// CPU that works.
    pub cpu: u32,
    /// Which keys, in which order.
    pub keys: &'static str,
    /// What `place` means.
    pub places: &'static str,
    /// How it was timed.
    pub clock: &'static str,
    /// Where the published figures are from.
    pub published: &'static str,
}

/// An operation on a structure.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `trieline` or `lpm_trie`.
    pub structure: &'static str,
    /// `arena array`; `map` for LPM_TRIE.
    pub home: &'static str,
    /// Who does it: `bpf`, `user`, or, what frees, `kernel`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// `lookup update delete free`.
    pub op: &'static str,
    /// Million operations a second: 1000 / `ns`.
    pub mops: f64,
    /// Standard deviation of the rounds' `mops`.
    pub stddev: f64,
    /// Nanoseconds each: median of the rounds.
    pub ns: f64,
    /// Fastest round.
    pub ns_min: f64,
    /// Slowest.
    pub ns_max: f64,
    /// What was published for LPM_TRIE.
    pub published_ns: Option<f64>,
    /// Its million a second.
    pub published_mops: Option<f64>,
    /// LPM_TRIE's ns of the same operation, in BPF (free: in the kernel), over this ns.
    pub ratio: f64,
    /// Operations a round.
    pub operations: usize,
    /// Answers that were compared after or during the rounds; all agreed.
    pub checked: u64,
    /// Rounds.
    pub rounds: usize,
}
