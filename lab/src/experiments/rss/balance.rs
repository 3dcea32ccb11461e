//! The indirection table between hash and queue, and how evenly it spreads flows and packets.

use serde::{Deserialize, Serialize};

use super::{
    fields::Fields,
    flows::{Flow, Flows},
    toeplitz::Words,
};

/// Entries of the indirection table, as of many NICs.
pub const ENTRIES: usize = 128;

/// How the table was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Filling {
    /// The queues in turn, as drivers do and `ethtool -X DEV equal N`.
    Equal,
    /// As many neighbouring entries for each queue as balance the packets seen: `ethtool -X DEV weight …`.
    Weighted,
}

impl Filling {
    /// Its name in rows.
    pub fn name(self) -> &'static str {
        match self {
            Filling::Equal => "equal",
            Filling::Weighted => "weighted",
        }
    }
}

/// The entry of the table that a hash leads to: its low bits.
pub fn entry(hash: u32) -> usize {
    hash as usize % ENTRIES
}

/// The queues in turn.
pub fn equal(queues: usize) -> Vec<usize> {
    (0..ENTRIES).map(|at| at % queues).collect()
}

/// The queue of each entry for weights that sum to [`ENTRIES`]: ethtool gives each queue so many neighbouring entries.
pub fn by_weights(weights: &[usize]) -> Vec<usize> {
    weights.iter().enumerate().flat_map(|(queue, weight)| std::iter::repeat_n(queue, *weight)).collect()
}

/// Weights that make the largest queue as small as runs of neighbouring entries allow. Each queue has an entry at least.
pub fn weights(load: &[f64; ENTRIES], queues: usize) -> Vec<usize> {
    let sum = |from: usize, to: usize| load[from..to].iter().sum::<f64>();
    // best[q][n]: the least largest queue when q + 1 queues share the first n entries, and where the last one begins.
    let mut best: Vec<Vec<(f64, usize)>> = vec![(0..=ENTRIES).map(|n| (sum(0, n), 0)).collect()];
    for queue in 1..queues {
        let before = &best[queue - 1];
        let choose = |n: usize| {
            let cuts = (queue..n).map(|cut| (before[cut].0.max(sum(cut, n)), cut));
            cuts.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or((f64::INFINITY, 0))
        };
        best.push((0..=ENTRIES).map(choose).collect());
    }
    let mut end = ENTRIES;
    let mut weights: Vec<usize> = (0..queues)
        .rev()
        .map(|queue| {
            let begin = best[queue][end].1;
            let weight = end - begin;
            end = begin;
            weight
        })
        .collect();
    weights.reverse();
    weights
}

/// Flows and packets by entry of the indirection table.
pub struct Entries {
    /// Flows.
    pub flows: [f64; ENTRIES],
    /// Shares of the packets.
    pub packets: [f64; ENTRIES],
}

impl Entries {
    /// Hashes every flow.
    pub fn count(flows: &Flows, fields: Fields, words: &Words) -> Entries {
        let mut entries = Entries { flows: [0.0; ENTRIES], packets: [0.0; ENTRIES] };
        for (flow, share) in flows.list.iter().zip(&flows.shares) {
            let at = entry(words.hash(&fields.input(flow)));
            entries.flows[at] += 1.0;
            entries.packets[at] += share;
        }
        entries
    }
}

/// The load of each queue, from that of the entries.
pub fn by_queue(load: &[f64; ENTRIES], table: &[usize], queues: usize) -> Vec<f64> {
    let mut sums = vec![0.0; queues];
    for (queue, load) in table.iter().zip(load) {
        sums[*queue] += load;
    }
    sums
}

/// The largest queue over the mean.
pub fn largest(queues: &[f64]) -> f64 {
    let mean = queues.iter().sum::<f64>() / queues.len() as f64;
    queues.iter().copied().fold(0.0, f64::max) / mean
}

/// The share of the flows whose answers come to the same queue.
pub fn same_queue(flows: &Flows, fields: Fields, words: &Words, table: &[usize]) -> f64 {
    let queue = |flow: &Flow| table[entry(words.hash(&fields.input(flow)))];
    let same = flows.list.iter().filter(|flow| queue(flow) == queue(&flow.answers())).count();
    same as f64 / flows.list.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_the_best_runs_of_entries() {
        let mut load = [1.0; ENTRIES];
        assert_eq!(weights(&load, 4), [32; 4]);
        assert_eq!(weights(&load, 1), [128]);
        // One entry as heavy as all the others together has a queue of its own as far as its neighbours allow.
        load[10] = 127.0;
        let two = weights(&load, 2);
        assert_eq!(two.iter().sum::<usize>(), ENTRIES);
        assert_eq!(by_queue(&load, &by_weights(&two), 2), [137.0, 117.0]);
        let eight = weights(&load, 8);
        assert!(
            eight.iter().all(|weight| *weight > 0) && eight.iter().sum::<usize>() == ENTRIES,
            "{eight:?}"
        );
        assert_eq!(by_queue(&load, &by_weights(&eight), 8).into_iter().fold(0.0, f64::max), 127.0);
    }

    #[test]
    fn a_table_names_every_queue_and_the_largest_is_over_the_mean() {
        assert_eq!(by_queue(&[1.0; ENTRIES], &equal(8), 8), [16.0; 8]);
        assert_eq!(largest(&[3.0, 1.0]), 1.5);
        assert_eq!(by_weights(&[2, 0, 1]), [0, 0, 2]);
    }
}
