//! Every receiver of `livelock` gets what is offered at a low rate, and says where its figures are from.

use super::*;
use crate::testing::{alone, asked, run};

#[test]
fn every_receiver_gets_frames_and_none_that_was_not_sent() {
    let Some(_alone) = alone() else { return };
    let experiment: Livelock =
        asked(&["--quick", "--rounds", "1", "--rates", "20", "--trial", "40", "--work", "100"]).unwrap();
    // On a machine with one CPU everything runs there.
    let (first, last) = netns::cpus_here().unwrap();
    let outcome = run(&Livelock { one_cpu: first == last, ..experiment }, false).unwrap();
    let receivers: Vec<Receiver> = outcome.rows.iter().map(|row| row.receiver).collect();
    assert_eq!(receivers, Receiver::ALL);
    for row in &outcome.rows {
        assert_eq!((row.error.as_ref(), row.rounds), (None, 1), "{row:?}");
        assert!(0 < row.delivered && row.delivered <= row.frames, "{row:?}");
        // 20,000 a second for 40 ms; a busy machine sends fewer.
        assert!(row.frames <= 801, "{row:?}");
    }
    assert!(netns::left().is_empty(), "{:?}", netns::left());
}

#[test]
fn interrupted_run_ends_and_leaves_no_namespaces() {
    let Some(_alone) = alone() else { return };
    let experiment: Livelock = asked(&["--quick", "--one-cpu", "--only", "udp-rps"]).unwrap();
    assert!(matches!(run(&experiment, true), Err(Error::Interrupted)));
    assert!(netns::left().is_empty());
}

#[test]
fn options_that_cannot_be_are_named() {
    for bad in [["--rates", "0"], ["--trial", "5"], ["--work", "x"]] {
        assert!(
            asked::<Livelock>(&bad).unwrap_err().to_string().contains("expected a number from"),
            "{bad:?}"
        );
    }
}

#[test]
fn rows_without_a_frame_are_an_error() {
    let empty = Row::of(Receiver::Udp, 50.0, &[], Some("0 of 9 frames were delivered".into()));
    assert!(none_delivered(std::slice::from_ref(&empty)).unwrap().contains("0 of 9"));
    let got = Got { offered: 1000, delivered: 900, seconds: 0.02, times: Default::default() };
    let row = Row::of(Receiver::Udp, 50.0, &[got], None);
    assert_eq!((row.offered_kpps, row.delivered_kpps, row.paced), (Some(50.0), Some(45.0), Some(true)));
    assert_eq!(Row::of(Receiver::Udp, 60.0, &[got], None).paced, Some(false));
    assert_eq!(none_delivered(&[empty, row]), None);
}
