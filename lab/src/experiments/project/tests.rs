//! The model of `project` from a saved document: sums, ranges, the check, and files that it refuses.

use serde_json::json;

use super::*;
use crate::testing::{asked, run};

fn row(path: &str, plane: &str, ns: f64) -> Value {
    json!({"path": path, "plane": plane, "ns": ns, "ns_min": ns - 1.0, "ns_max": ns + 3.0})
}

fn project(document: &Value, more: &[&str]) -> Result<Outcome> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("forward.json");
    fs::write(&file, document.to_string()).unwrap();
    let words = [&["--from", file.to_str().unwrap()], more].concat();
    run(&asked::<Project>(&words).unwrap(), false)
}

#[test]
fn a_path_costs_the_driver_and_its_own_time() {
    let rows = [
        row("redirect", "xdp", 130.0),
        row("ipv4", "kernel", 600.0),
        row("ipv4", "fib", 201.0),
        row("ipv4", "xdp", 140.0),
        row("ipv6", "xdp", 129.0),
    ];
    let document = json!({"experiment": "forward", "version": 1, "machine": {"cpu": "x"}, "rows": rows});
    let outcome = project(&document, &["--driver", "ice=10"]).unwrap();
    assert_eq!(outcome.rows.len(), 3 * 3, "the kernel's planes are not projected");
    let drivers: Vec<_> = outcome.rows[..3].iter().map(|row| row.driver.as_str()).collect();
    assert_eq!(drivers, ["mlx5", "i40e", "ice"]);
    let of = |path: &str, plane: &str, driver: &str| {
        let is = |row: &&Row| {
            (row.path.as_str(), row.plane.as_str(), row.driver.as_str()) == (path, plane, driver)
        };
        outcome.rows.iter().find(is).unwrap()
    };
    let ours = of("ipv4", "xdp", "ice");
    assert_eq!((ours.added_ns, ours.mpps, ours.mpps_min), (10.0, Some(9.09), Some(9.09)));
    let fib = of("ipv4", "fib", "i40e");
    assert!(fib.mpps_min < fib.mpps && fib.mpps < fib.mpps_max, "{fib:?}");
    assert_eq!(of("ipv6", "xdp", "mlx5").mpps, None, "faster than the bare redirect is noise");
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["rows"][0]["why"], Value::Null);
    // 1000 / (1000 / 8.665664 + 71): the paper's router took 71.2 ns more than its redirect.
    let [one, full] = &outcome.more.checks[..] else { panic!("{:?}", outcome.more) };
    assert_eq!((one.published_mpps, one.model_mpps, one.error_percent), (5.36, Some(5.36), Some(0.0)));
    assert_eq!((full.published_mpps, full.model_mpps), (3.45, None), "the document has no full table by fib");
    assert_eq!(json["model"], true);
    use crate::report::Report;
    assert!(outcome.text().starts_with("A MODEL") && outcome.text().contains("not checked"));
    assert!(outcome.pictures().unwrap()[0].svg.contains("Model"));
}

#[test]
fn documents_that_cannot_be_are_refused() {
    let redirect = row("redirect", "xdp", 130.0);
    for (document, word) in [
        (json!({"experiment": "livelock", "version": 1}), "livelock"),
        (json!({"experiment": "forward", "version": 2}), "version 2"),
        (json!({"experiment": "forward", "version": 1, "rows": []}), "bare redirect"),
        (json!({"experiment": "forward", "version": 1, "rows": [redirect]}), "to project"),
    ] {
        let error = project(&document, &[]).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("forward.json"), "{error}");
    }
    for bad in ["ice", "=9", "ice=x", "ice=0"] {
        assert!(asked::<Project>(&["--driver", bad]).unwrap_err().to_string().contains("NAME=MPPS"), "{bad}");
    }
}

#[test]
fn a_driver_that_nobody_has_published_has_a_row_with_the_reason() {
    use crate::report::Report;
    let rows = [row("redirect", "xdp", 130.0), row("ipv4", "xdp", 140.0)];
    let document = json!({"experiment": "forward", "version": 1, "rows": rows});
    let outcome = project(&document, &[]).unwrap();
    let ice = outcome.rows.iter().find(|row| row.driver == "ice").unwrap();
    assert_eq!((ice.mpps, ice.driver_min), (None, None));
    assert!(ice.why.unwrap().starts_with("no published rate of XDP_REDIRECT"), "{ice:?}");
    assert!(outcome.text().contains("No figure of ice: no published rate"), "{}", outcome.text());
    assert!(outcome.pictures().is_ok());
}
