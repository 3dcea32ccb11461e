//! A run of the kernel and of plane `fib`. Every case has rows with the keys of the issue, and its work is on the CPUs that it names.

use super::*;
use crate::{
    Error, Quiet,
    testing::{alone, asked},
};
use std::sync::atomic::AtomicBool;

fn small(words: &[&str], is_interrupted: bool) -> Result<Outcome> {
    let experiment: Queues = asked(words).unwrap();
    let interrupt = AtomicBool::new(is_interrupted);
    run(&experiment, None, &Context { progress: &Quiet, interrupt: &interrupt })
}

#[test]
fn both_planes_forward_by_every_case_with_their_path_in_rows() {
    let Some(_alone) = alone() else { return };
    let outcome = small(&["--quick", "--rounds", "1", "--frames", "20000"], false);
    if netns::two_cpus().is_err() {
        assert!(matches!(outcome, Err(Error::OneProcessor)));
        return;
    }
    let outcome = outcome.unwrap();
    // On a machine with other work a case may fail: then its row is missing, with the reason.
    let lost =
        |case: &Case| outcome.refused.iter().any(|one| one.case == case.name() && !one.reason.is_empty());
    let mut cases = [Case::of(Plane::Kernel), Case::of(Plane::Fib)].concat();
    cases.retain(|case| !lost(case));
    assert_eq!(outcome.rows.len(), cases.len(), "{:?}", outcome.refused);
    assert!(cases.len() > 12, "{:?}", outcome.refused);
    for (row, case) in outcome.rows.iter().zip(&cases) {
        assert_eq!((row.plane, row.queues, row.cores), (case.plane, case.queues, case.cores));
        let kernel = Case { plane: Plane::Kernel, ..*case };
        assert!(row.ratio_kernel.is_some() == cases.contains(&kernel), "{row:?}");
        assert!(row.plane == Plane::Fib || row.ratio_kernel == Some(1.0), "{row:?}");
        assert_eq!((row.handoff, row.variant), (case.handoff, case.variant));
        assert_eq!((row.frames, row.delivered + row.lost), (20_000, 20_000), "{row:?}");
        let has_base = cases.iter().any(|base| base.plane == case.plane && base.is_base());
        assert!(row.mpps > 0.0 && row.delivered > 0 && row.ratio.is_some() == has_base, "{row:?}");
        // Each CPU takes from its own ring what it has put there.
        assert!(
            case.handoff != Handoff::None || case.variant == Variant::OneTxQueue || row.lost == 0,
            "{row:?}"
        );
    }
    let skipped = outcome.more.skipped.iter().map(|skip| (skip.plane, skip.handoff));
    assert_eq!(skipped.collect::<Vec<_>>(), [(Plane::Fib, Handoff::Cpumap), (Plane::Fib, Handoff::Rps)]);
    let shares = |variant| {
        let of = outcome.rows.iter().filter(move |row| row.queues == 2 && row.variant == variant);
        of.map(|row| row.share).collect::<Vec<_>>()
    };
    assert!(shares(Variant::OneTunnel).iter().all(|share| *share == 1.0));
    assert!(shares(Variant::SharedCounter).iter().all(|share| *share == 0.5));
    assert!(shares(Variant::Skewed).iter().all(|share| *share > 0.5));
    assert!(outcome.machine.calibration.samples >= cases.len(), "{:?}", outcome.machine.calibration);
    let keys = serde_json::to_value(&outcome.rows[0]).unwrap();
    for key in ["plane", "queues", "cores", "handoff", "variant", "mpps", "lost"] {
        assert!(keys.get(key).is_some(), "{key}");
    }
    assert_eq!((&keys["plane"], &keys["handoff"]), (&"kernel".into(), &"none".into()));
}

#[test]
fn interrupted_run_ends_and_a_missing_case_is_named() {
    let Some(_alone) = alone() else { return };
    let error = small(&["--quick", "--only", "sideways"], false).unwrap_err();
    assert!(matches!(&error, Error::NoCase(name) if name == "sideways"), "{error}");
    assert!(matches!(small(&["--quick"], true), Err(Error::Interrupted | Error::OneProcessor)));
}
