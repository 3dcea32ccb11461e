//! Small searches: rows have what the issue asks for, and two devices of a veth pair stand in for network cards.

use std::sync::atomic::AtomicBool;

use trieline_testbed::namespace::{End, Namespace, veth};

use super::*;
use crate::{
    Quiet,
    account::Account,
    report::{Machine, Report as _},
    testing::{alone, asked},
};

fn small(words: &[&str], is_interrupted: bool) -> Result<Outcome> {
    let experiment: Throughput = asked(words).unwrap();
    let interrupt = AtomicBool::new(is_interrupted);
    run(&experiment, None, &Context { progress: &Quiet, interrupt: &interrupt })
}

/// Numbers of a row that hold on any machine, however busy.
fn check(row: &Row) {
    assert_eq!((row.lost, row.duplicated), (0, 0), "{row:?}");
    // On veth frames are lost at full rings only, and the counters know each of them.
    assert_eq!(row.losses.elsewhere, 0, "{row:?}");
    assert_eq!(row.losses.places.sum(), row.losses.all, "{row:?}");
    assert!(row.trials > 0, "{row:?}");
    // A rate without loss was found, unless each trial was disturbed.
    let Some(ndr) = row.ndr_mpps else { return };
    assert!(ndr > 0.0 && row.ndr_gbps.unwrap() > 0.0 && row.frames > 0, "{row:?}");
    assert!(row.pdr_mpps.unwrap() >= ndr, "{row:?}");
    let [p50, p99, p999] = [row.p50_ns, row.p99_ns, row.p999_ns].map(Option::unwrap);
    assert!(0.0 < p50 && p50 <= p99 && p99 <= p999, "{row:?}");
}

#[test]
fn the_kernels_rates_are_found_for_every_path() {
    let Some(_alone) = alone() else { return };
    if netns::two_cpus().is_err() {
        return;
    }
    // Not a quick run, whose time is limited: other tests may run meanwhile.
    let words =
        ["--rounds", "1", "--trial", "0.02", "--size", "imix", "--flows", "1,20", "--plane", "kernel"];
    let outcome = small(&words, false).unwrap();
    let names: Vec<_> = outcome.rows.iter().map(|row| (row.plane, row.path, row.flows)).collect();
    let expected: Vec<_> =
        Path::ALL.iter().flat_map(|path| [1, 20].map(|flows| (Plane::Kernel, *path, flows))).collect();
    assert_eq!(names, expected);
    for row in &outcome.rows {
        check(row);
        assert_eq!(row.size, "imix");
        assert!(row.ratio.is_none_or(|ratio| (ratio - 1.0).abs() < 1e-9), "the kernel over itself: {row:?}");
        assert!(!row.meaning.is_empty());
    }
    let keys = serde_json::to_value(&outcome.rows[0]).unwrap();
    for key in [
        "plane",
        "path",
        "size",
        "flows",
        "ndr_mpps",
        "pdr_mpps",
        "ratio",
        "meaning",
        "p999_ns",
        "lost",
        "reordered",
    ] {
        assert!(keys.get(key).is_some(), "{key}");
    }
    for place in ["all", "generator", "rx_ring", "xdp", "tx_ring", "elsewhere"] {
        assert!(keys["losses"][place].is_u64(), "{place}");
    }
    assert!(outcome.text().contains("NDR"), "{}", outcome.text());
    assert!(netns::left().is_empty(), "{:?}", netns::left());
}

#[test]
fn rows_stand_beside_the_rival_and_the_floor() {
    let Some(_alone) = alone() else { return };
    if netns::two_cpus().is_err() {
        return;
    }
    let words = ["--rounds", "1", "--trial", "0.02", "--size", "64", "--path", "ipv4,decap", "--flows", "1"];
    let outcome = small(&words, false).unwrap();
    let names: Vec<_> = outcome.rows.iter().map(|row| (row.plane, row.path)).collect();
    // Few kernels have flowtables: then its rows are lost, with the reason.
    let refused =
        |plane: Plane| outcome.refused.iter().any(|one| one.rival == plane.name() && one.case == "all");
    let plain = [Plane::Kernel, Plane::KernelTcSink, Plane::Flowtable, Plane::Fib, Plane::Redirect];
    let plain = plain.into_iter().filter(|plane| !refused(*plane)).map(|plane| (plane, Path::Ipv4));
    let decap = [Plane::Kernel, Plane::KernelTcSink].map(|plane| (plane, Path::Decap));
    assert_eq!(names, plain.chain(decap).collect::<Vec<_>>());
    let rate = |row: &Row, plane| {
        let of = outcome.rows.iter().find(|other| (other.plane, other.path) == (plane, row.path));
        of.and_then(|of| of.ndr_mpps)
    };
    for row in &outcome.rows {
        check(row);
        assert!(row.redirect_errors.is_some(), "{row:?}");
        let floor = outcome.rows.iter().find(|row| row.plane == Plane::Redirect).and_then(|row| row.ndr_mpps);
        let floor = row.ndr_mpps.zip(floor).map(|(own, floor)| own / floor);
        let is_near = |shown: Option<f64>, wanted: Option<f64>| {
            shown.zip(wanted).is_none_or(|(shown, wanted)| (shown - wanted).abs() < 0.01 * wanted.max(1.0))
        };
        assert!(is_near(row.floor_share, floor) && row.floor_share.is_some() == floor.is_some(), "{row:?}");
        let fib = row.ndr_mpps.zip(rate(row, Plane::Fib)).map(|(own, fib)| own / fib);
        assert!(is_near(row.ratio_fib, fib) && row.ratio_fib.is_some() == fib.is_some(), "{row:?}");
    }
    for plane in [Plane::Flowtable, Plane::Fib, Plane::Redirect] {
        let of = outcome.refused.iter().find(|one| one.rival == plane.name() && one.case == "decap");
        assert_eq!(of.unwrap().reason, "it does not do SRv6");
    }
    assert!(outcome.machine.calibration.samples > 0, "{:?}", outcome.machine.calibration);
    assert!(outcome.parameters.left_out.is_empty(), "{:?}", outcome.parameters.left_out);
}

#[test]
fn a_quick_run_begins_with_one_flow_of_the_smallest_size_and_its_time_is_limited() {
    let quick: Throughput = asked(&["--quick"]).unwrap();
    let traffic = quick.traffic().unwrap();
    let names: Vec<_> = traffic.iter().map(|one| (one.path.name(), one.size.as_str(), one.flows)).collect();
    let expected = [
        ("ipv4", "64", 1),
        ("encap", "64", 1),
        ("decap", "64", 1),
        ("ipv4", "1518", 1),
        ("ipv4", "64", 1000),
    ];
    assert_eq!(names, expected);
    let began = Instant::now();
    let method = quick.method(began);
    assert_eq!((method.seconds, method.search_seconds), (0.5, Some(0.1)));
    assert!(method.until.unwrap() < began + Duration::from_secs(120));
    let full: Throughput = asked(&[]).unwrap();
    let method = full.method(began);
    assert_eq!((method.seconds, method.search_seconds, method.until), (10.0, None, None));
}

#[test]
fn interrupted_run_ends_and_leaves_no_namespaces() {
    let Some(_alone) = alone() else { return };
    assert!(matches!(small(&["--quick"], true), Err(Error::Interrupted | Error::OneProcessor)));
    assert!(netns::left().is_empty());
}

/// A namespace with a veth pair whose ends stand in for two network cards, joined by a cable.
fn cable() -> Namespace {
    let namespace = netns::create("cards").unwrap();
    let end = |device, number| End { namespace: &namespace, device, mac: [2, 0x74, 0x70, 0, 0, number] };
    veth(end("nic0", 1), end("nic1", 2)).unwrap();
    for words in ["link set nic0 up", "link set nic1 up", "link set lo up"] {
        namespace.ip_words(&words.split(' ').collect::<Vec<_>>()).unwrap();
    }
    namespace
}

#[test]
fn losses_between_two_devices_have_their_place() {
    let Some(_alone) = alone() else { return };
    let namespace = cable();
    let of = |words: &[&str]| {
        let base =
            ["--quick", "--rounds", "1", "--trial", "0.02", "--size", "64", "--path", "ipv4", "--flows", "1"];
        namespace.enter(|| small(&[&base[..], words].concat(), false))
    };
    let outcome = of(&["--tx", "nic0", "--rx", "nic1"]).unwrap();
    let row = &outcome.rows[0];
    check(row);
    assert_eq!((outcome.rows.len(), row.plane, row.ratio), (1, Plane::Device, None));
    // The pair's one ring is the sending device's. No program but the receiver dropped anything.
    assert_eq!((row.losses.places.xdp, row.losses.places.tx_ring), (0, 0), "{row:?}");
    assert_eq!(row.losses.places.generator, row.losses.all, "{row:?}");
    assert_eq!(outcome.parameters.devices, Some(["nic0".into(), "nic1".into()]));
    for (words, expected) in [
        (["--tx", "lo", "--rx", "nic1"], "cannot use device lo: its driver has no XDP transmit"),
        (["--tx", "nic0", "--rx", "lo"], "cannot use device lo: its driver runs no XDP programs"),
        (["--tx", "nic7", "--rx", "nic1"], "cannot use device nic7: it is not there"),
    ] {
        let error = of(&words).unwrap_err().to_string();
        assert!(error.contains(expected), "{words:?}: {error}");
    }
}

/// A run that found these rates.
fn found(ndr: f64, pdr: f64, generator: f64) -> Found {
    let places = counters::Places { rx_ring: 7, ..Default::default() };
    let (trials, disturbed, lost, counters) = (5, 1, 9, [("n0 drops".to_owned(), 7)].into());
    Found {
        ndr: Some(ndr),
        pdr: Some(pdr),
        at_ndr: None,
        generator,
        trials,
        disturbed,
        lost,
        places,
        counters,
        redirect_errors: Some(3),
        astray: None,
    }
}

#[test]
fn rows_have_trimmed_means_ratios_and_a_picture_beside_published_points() {
    let case = |plane, size| Case { plane, traffic: Traffic::of(size, Path::Decap, 1).unwrap() };
    let runs = |scale: f64| {
        [3.0, 1.0, 2.0, 9.0, 2.5].map(|mpps| found(mpps * scale * 1e6, mpps * scale * 1.1e6, 2e7))
    };
    let rows: Vec<Row> = ["64", "1518"]
        .into_iter()
        .flat_map(|size| {
            let (kernel, xdp) = (runs(0.4), runs(1.0));
            let (fib, redirect) = (runs(0.8), runs(2.0));
            let baselines = Baselines { kernel: Some(&kernel), fib: Some(&fib), redirect: Some(&redirect) };
            [
                Row::of(&case(Plane::Kernel, size), MEANING, &kernel, &baselines),
                Row::of(&case(Plane::Xdp, size), MEANING, &xdp, &baselines),
            ]
        })
        .collect();
    let row = &rows[1];
    assert_eq!((row.ndr_mpps, row.ndr_min, row.ndr_max), (Some(2.5), Some(1.0), Some(9.0)));
    assert_eq!((row.pdr_mpps, row.ratio, row.ratio_min), (Some(2.75), Some(2.5), Some(2.5)));
    assert_eq!((row.ratio_fib, row.floor_share), (Some(1.25), Some(0.5)));
    assert_eq!((row.ndr_gbps, row.limit), (Some(1.28), Limit::Node));
    assert_eq!((row.losses.all, row.losses.places.rx_ring, row.losses.elsewhere), (45, 35, 10));
    assert_eq!((row.trials, row.disturbed, row.runs, row.counters["n0 drops"]), (25, 5, 5, 35));
    assert_eq!(row.redirect_errors, Some(15));
    let fast = Row::of(&case(Plane::Xdp, "64"), MEANING, &[found(1.99e7, 2e7, 2e7)], &Baselines::default());
    assert_eq!((fast.ratio_fib, fast.floor_share), (None, None));
    assert_eq!((fast.limit, fast.ratio, fast.p50_ns), (Limit::Generator, None, None));
    let parameters = Parameters {
        quick: true,
        trial_s: 0.5,
        search_s: 0.1,
        left_out: vec!["kernel ipv4 64 1000 flows".into()],
        runs: 5,
        precision: 0.05,
        pdr_loss: find::PARTIAL,
        cpus: Some([0, 1]),
        devices: None,
        places: PLACES,
    };
    let machine = Machine::here("trieline lab run throughput", 1, Account::default());
    let outcome = Document::new(Throughput::NAME, machine, parameters, rows);
    let pictures = outcome.pictures().unwrap();
    assert_eq!((pictures.len(), pictures[0].name.as_str()), (1, "throughput"));
    for label in ["kernel decap", "xdp decap", "LINE 2019: 2.5 x kernel decap", "kernel, Asama 2014"] {
        assert!(pictures[0].svg.contains(label), "{label}");
    }
    for words in ["2.50x", "1.25x", "50%", "trials of 0.1 s", "two minutes: kernel ipv4 64 1000 flows."] {
        assert!(outcome.text().contains(words), "{words}: {}", outcome.text());
    }
}

#[test]
fn options_that_cannot_be_are_named() {
    for (bad, expected) in [
        (["--trial", "0"], "expected seconds from 0.01 to 300"),
        (["--size", "63"], "expected a size from 64 to 1518, or imix"),
        (["--flows", "0"], "expected a number from 1 to 65536"),
        (["--plane", "device"], "invalid value 'device'"),
        (["--path", "up"], "invalid value 'up'"),
        (["--tx", "nic0"], "--rx"),
    ] {
        let error = asked::<Throughput>(&bad).unwrap_err().to_string();
        assert!(error.contains(expected), "{bad:?}: {error}");
    }
    let error = small(&["--profile", "/nonexistent.toml"], false).unwrap_err().to_string();
    assert!(error.contains("/nonexistent.toml") || alone().is_none(), "{error}");
}
