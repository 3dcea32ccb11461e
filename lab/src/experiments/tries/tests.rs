//! The experiment `tries` on tables of its own: every structure answers alike, and `fib` is the kernel's trie to the node.

use super::*;
use crate::testing::{alone, asked, run};

#[test]
fn fib_is_the_kernels_trie() {
    let Some(_alone) = alone() else { return };
    let experiment: Tries = asked(&["--quick", "--seed", "7", "--rounds", "1"]).unwrap();
    let outcome = run(&experiment, false).unwrap();
    for table in ["generated", "default-route"] {
        let rows: Vec<_> = outcome.rows.iter().filter(|row| row.table == table).collect();
        assert_eq!(rows.len(), 14, "{rows:?}");
        let named = |name: &str| rows.iter().copied().find(|row| row.structure == name).unwrap();
        assert_eq!(named("kernel").differences.as_deref(), Some(&[][..]));
        assert_eq!(named("kernel").sizes.as_ref(), named("fib").sizes.as_ref());
        let at = |percent| {
            let row = rows.iter().find(|row| row.structure == "relaxed" && row.threshold == Some(percent));
            (row.unwrap().nodes, row.unwrap().bytes)
        };
        assert_eq!(at(100), (named("lctrie").nodes, named("lctrie").bytes));
        assert_eq!(at(120), (named("patricia").nodes, named("patricia").bytes));
        assert!(rows.iter().all(|row| row.limit.is_some() == (row.threshold == Some(0))));
        assert!(rows.iter().all(|row| row.lookups_per_s > 1e4 && row.rounds == 1), "{rows:?}");
        if table == "generated" {
            // The higher the threshold, the more and the smaller the nodes.
            let nodes = [0, 20, 40, 60, 80, 100, 120].map(|percent| at(percent).0);
            assert!(nodes.is_sorted(), "{nodes:?}");
            assert!(named("patricia").lines_mean > named("fib").lines_mean);
        }
    }
}
