//! A run over few flows: rows of every choice, balance, the failure of tunnels, and order within flows.

use super::*;
use crate::{
    Error,
    testing::{alone, asked, run},
};

fn share(
    rows: &[Row],
    traffic: Traffic,
    tunnels: usize,
    fields: Fields,
    table: Filling,
    queues: usize,
) -> &Row {
    let wanted = |row: &&Row| {
        row.traffic == traffic
            && row.tunnels == tunnels
            && row.fields == fields
            && row.key == "microsoft"
            && row.table == table
            && row.queues == queues
    };
    rows.iter().find(wanted).unwrap()
}

#[test]
fn the_model_spreads_ten_thousand_flows_and_shows_the_tunnel() {
    let tables = Tables::internet(2000, 0, 3);
    let asked: Rss = asked(&["--seed", "3"]).unwrap();
    let interrupt = std::sync::atomic::AtomicBool::new(false);
    let context = Context { progress: &crate::Quiet, interrupt: &interrupt };
    let (rows, weights) = model(&asked, &tables, 1, &context).unwrap();
    assert_eq!(rows.len(), cases().len() * QUEUES.len());
    assert_eq!((weights.len(), weights.iter().sum::<usize>()), (8, ENTRIES));
    for queues in QUEUES {
        let flows = |traffic, tunnels, fields| {
            share(&rows, traffic, tunnels, fields, Filling::Equal, queues).flow_share
        };
        for traffic in [Traffic::Uniform, Traffic::Table] {
            assert!(flows(traffic, 0, Fields::IpPorts) < 1.1, "{traffic:?} over {queues}");
        }
        // All flows of one tunnel on one queue, and two ways out.
        assert_eq!(flows(Traffic::Table, 1, Fields::Outer), queues as f64);
        assert!(flows(Traffic::Table, 1, Fields::OuterLabel) < 1.1);
        assert!(flows(Traffic::Table, 1, Fields::Inner) < 1.1);
        let zipf = |table| share(&rows, Traffic::Zipf, 0, Fields::IpPorts, table, queues).packet_share;
        assert!(zipf(Filling::Weighted) <= zipf(Filling::Equal), "{queues} queues");
    }
    for row in &rows {
        assert!(row.flow_share >= 1.0 && row.packet_share >= 1.0, "{row:?}");
        assert!(row.key != "symmetric" || row.both_ways == 1.0, "{row:?}");
    }
}

#[test]
fn real_packets_come_to_the_queue_of_the_hash_in_order() {
    let Some(_alone) = alone() else { return };
    let experiment: Rss =
        asked(&["--quick", "--rounds", "1", "--flows", "500", "--packets", "10000"]).unwrap();
    let outcome = run(&experiment, false);
    if netns::two_cpus().is_err() {
        assert!(matches!(outcome, Err(Error::OneProcessor)));
        return;
    }
    let outcome = outcome.unwrap();
    let order = &outcome.more.order;
    assert_eq!(order.len(), 7);
    for row in order {
        // Every flow's count was compared by the run itself.
        assert_eq!((row.packets, row.per_queue.iter().sum::<u64>()), (10_000, 10_000), "{row:?}");
        assert!(row.fields == Fields::Packet || row.reordered == 0, "{row:?}");
    }
    let at = |fields: Fields, label: Option<&str>| {
        order.iter().find(|row| row.fields == fields && row.flow_label == label).unwrap()
    };
    let packet = at(Fields::Packet, None);
    assert_eq!(packet.per_queue, [5000, 5000]);
    assert_eq!(packet.labels, None);
    for fields in [Fields::Outer, Fields::OuterLabel] {
        let row = at(fields, Some("zero"));
        assert_eq!((row.packet_share, row.labels), (2.0, Some(1)), "{row:?}");
    }
    let hashed = at(Fields::OuterLabel, Some("hash"));
    assert!(hashed.labels.unwrap() > 300 && hashed.packet_share < 2.0, "{hashed:?}");
    assert!(at(Fields::Inner, Some("zero")).packet_share < 2.0);
    assert!(outcome.more.advice.iter().any(|line| line.starts_with("ethtool -X DEV hkey 6d:5a:")));
}

#[test]
fn interrupted_run_ends() {
    let Some(_alone) = alone() else { return };
    let experiment: Rss = asked(&["--quick", "--flows", "10"]).unwrap();
    assert!(matches!(run(&experiment, true), Err(Error::Interrupted | Error::OneProcessor)));
}
