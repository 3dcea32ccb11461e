//! Documents with figures that are written here: what is a change, what is noise, and what cannot be compared.

use super::*;
use serde_json::json;

fn saved(name: &str, rows: Value) -> Saved {
    let document = json!({
        "experiment": name, "version": 1,
        "machine": { "git": "abc", "cpu": "x", "load": { "busy": false } },
        "parameters": { "rounds": 9, "entries": 10 }, "rows": rows,
    });
    Saved { path: format!("{name}.json").into(), experiment: name.into(), document }
}

fn op(op: &str, ns: f64, ci: Value) -> Value {
    json!({ "structure": "trieline", "map_type": "array", "op": op, "where": "bpf", "ns": ns, "ns_ci": ci,
            "ns_min": ns - 50.0, "ns_max": ns + 50.0, "rounds": 9 })
}

fn verdicts(a: Value, b: Value) -> Vec<Verdict> {
    let comparison = compare(&saved("map-ops", a), &saved("map-ops", b)).unwrap();
    comparison.rows.iter().map(|row| row.verdict).collect()
}

#[test]
fn intervals_apart_are_a_change_and_others_are_noise() {
    let a = json!([op("lookup", 100.0, json!([98.0, 102.0])), op("update", 100.0, json!([98.0, 102.0]))]);
    let b = json!([op("update", 103.0, json!([101.0, 105.0])), op("lookup", 110.0, json!([108.0, 112.0]))]);
    assert_eq!(verdicts(a.clone(), b.clone()), [Verdict::Regressed, Verdict::Noise]);
    assert_eq!(verdicts(b.clone(), a.clone()), [Verdict::Noise, Verdict::Improved]);
    let comparison = compare(&saved("map-ops", a), &saved("map-ops", b)).unwrap();
    let row = &comparison.rows[0];
    assert_eq!(
        (row.ratio, row.ratio_interval),
        (Some(1.1), Some([rounded(108.0 / 102.0, 3), rounded(112.0 / 98.0, 3)]))
    );
    let text = comparison.text();
    assert!(
        text.contains("0 improved, 1 regressed, 1 noise") && text.contains("trieline array lookup bpf"),
        "{text}"
    );
}

#[test]
fn a_rate_that_grows_is_better() {
    let row = |rate: f64| {
        json!([{ "structure": "fib", "table": "t", "threshold": 50, "root_threshold": 30, "lookups_per_s": rate,
                 "lookups_per_s_ci": [rate - 1.0, rate + 1.0] }])
    };
    let comparison = compare(&saved("tries", row(100.0)), &saved("tries", row(200.0))).unwrap();
    assert_eq!(comparison.rows[0].verdict, Verdict::Improved);
}

#[test]
fn the_range_of_enough_rounds_stands_in_for_an_interval_and_that_of_few_does_not() {
    let of = |ns: f64, rounds: u64| {
        let mut row = op("free", ns, Value::Null);
        row["rounds"] = rounds.into();
        json!([row])
    };
    assert_eq!(verdicts(of(100.0, 5), of(300.0, 5)), [Verdict::Regressed]);
    assert_eq!(verdicts(of(100.0, 5), of(190.0, 5)), [Verdict::Noise]);
    assert_eq!(verdicts(of(100.0, 4), of(300.0, 5)), [Verdict::Undecided]);
}

#[test]
fn rows_of_one_side_and_other_machines_are_named() {
    let (a, mut b) = (saved("map-ops", json!([op("free", 1.0, Value::Null)])), saved("map-ops", json!([])));
    b.document["machine"]["cpu"] = "y".into();
    b.document["parameters"]["entries"] = 11.into();
    b.document["machine"]["load"]["busy"] = true.into();
    let comparison = compare(&a, &b).unwrap();
    assert_eq!((comparison.rows.len(), comparison.only_in_a.len(), comparison.only_in_b.len()), (0, 1, 0));
    assert_eq!(comparison.differences[..2], [r#"machine.cpu: "x" and "y""#, "parameters.entries: 10 and 11"]);
    assert!(comparison.differences[2].contains("busy"));
    assert!(comparison.text().contains("only in A: trieline array free bpf"));
}

#[test]
fn other_experiments_are_refused() {
    let error = compare(&saved("map-ops", json!([])), &saved("tries", json!([]))).unwrap_err().to_string();
    assert!(error.contains("`tries`") && error.contains("which is of `map-ops`"), "{error}");
    let unknown = compare(&saved("chess", json!([])), &saved("chess", json!([]))).unwrap_err().to_string();
    assert!(unknown.contains("cannot compare documents of `chess`"), "{unknown}");
}

/// Each experiment says how its rows are compared.
#[test]
fn documents_of_every_experiment_can_be_compared() {
    let without: Vec<_> = LIST.iter().filter(|one| one.compared.is_empty()).map(|one| one.name).collect();
    assert!(without.is_empty(), "without COMPARED: {without:?}");
    for figure in LIST.iter().flat_map(|one| one.compared).flat_map(|list| list.figures) {
        assert!(!figure.key.is_empty());
    }
}

fn of(name: &str, row: Value, change: Value) -> Vec<(&'static str, Verdict)> {
    let mut other = row.clone();
    other.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    let document = |row: Value| {
        let mut saved = saved(name, json!([row]));
        saved.document["checks"] = json!([]);
        saved
    };
    let comparison = compare(&document(row), &document(other)).unwrap();
    comparison.rows.iter().map(|row| (row.figure, row.verdict)).collect()
}

#[test]
fn changes_of_churn_convergence_and_project_are_told_from_noise() {
    let churn = json!({
        "event": "routes", "plane": "xdp", "rounds": 5, "p50_ns": 100.0, "p50_ns_min": 90.0, "p50_ns_max": 110.0,
        "p999_ns": 900.0, "p999_ns_min": 500.0, "p999_ns_max": 2000.0,
        "lost_share": 0.0, "lost_share_min": 0.0, "lost_share_max": 0.0,
        "wrong_share": 0.0, "wrong_share_min": 0.0, "wrong_share_max": 0.0,
    });
    let worse =
        json!({ "lost_share": 2e-4, "lost_share_min": 1e-4, "lost_share_max": 3e-4, "p50_ns_max": 120.0 });
    let expected = [
        ("lost_share", Verdict::Regressed),
        ("wrong_share", Verdict::Noise),
        ("p50_ns", Verdict::Noise),
        ("p999_ns", Verdict::Noise),
    ];
    assert_eq!(of("churn", churn, worse), expected);

    let convergence = json!({
        "event": "routes", "routes": 1, "plane": "xdp", "p50_ms": 2.0, "p50_ms_ci": [1.9, 2.1],
        "min_ms": 1.0, "max_ms": 9.0, "beyond_kernel_ms": 1.0, "beyond_kernel_ms_ci": [0.9, 1.1],
        "acknowledged_ms": 0.5, "acknowledged_ms_ci": [0.4, 0.6],
    });
    let better = json!({ "p50_ms": 1.5, "p50_ms_ci": [1.4, 1.6], "acknowledged_ms_ci": null });
    let expected = [
        ("p50_ms", Verdict::Improved),
        ("beyond_kernel_ms", Verdict::Noise),
        ("acknowledged_ms", Verdict::Undecided),
    ];
    assert_eq!(of("convergence", convergence, better), expected);

    let project = json!({
        "path": "ipv4", "plane": "xdp", "driver": "mlx5", "added_ns": 10.0, "added_min": 9.0, "added_max": 11.0,
        "mpps": 8.0, "mpps_min": 7.0, "mpps_max": 9.0,
    });
    let slower = json!({ "added_ns": 20.0, "added_min": 18.0, "added_max": 22.0, "mpps": 7.5 });
    assert_eq!(of("project", project, slower), [("added_ns", Verdict::Regressed), ("mpps", Verdict::Noise)]);
}
