//! The program `trieline-lab` as a user meets it: runs of all experiments, comparisons, busy machines, files that cannot be used.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::Path,
    process::{Command, Output, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use trieline_testbed::{
    command::{Running, copy_program},
    needs_root,
};

/// The user `nobody` of Debian.
const NOBODY: u32 = 65534;
const LAB: &str = env!("CARGO_BIN_EXE_trieline-lab");

fn lab(folder: &Path, line: &str) -> Command {
    let mut command = Command::new(LAB);
    command.args(line.split_whitespace()).current_dir(folder);
    command
}

/// The exit code, standard output and standard error.
#[track_caller]
fn answer(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = output.status.code().or(output.status.signal().map(|signal| -signal)).unwrap();
    (code, text(output.stdout), text(output.stderr))
}

#[track_caller]
fn run(folder: &Path, line: &str) -> (i32, String, String) {
    answer(lab(folder, line).output().unwrap())
}

#[track_caller]
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[track_caller]
fn document(path: &Path) -> Value {
    json_of(&fs::read_to_string(path).unwrap())
}

fn ends(sum: &Value) -> Vec<(&str, &str)> {
    sum.as_array()
        .unwrap()
        .iter()
        .map(|row| (row["experiment"].as_str().unwrap(), row["end"].as_str().unwrap()))
        .collect()
}

/// Ctrl-C in the second experiment: the first one's document stays, and `--resume` measures what is missing or of another machine.
#[test]
fn an_interrupted_run_keeps_its_documents_and_resume_goes_on() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    let all = "run --busy all --quick --rounds 1 --only rss,trace-hooks";
    let mut child =
        Running(lab(folder.path(), all).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut said = String::new();
    while !said.contains("2 of 2: trace-hooks") {
        assert_ne!(stderr.read_line(&mut said).unwrap(), 0, "it ended: {said}");
    }
    assert!(said.contains("1 of 2: rss, about ") && said.contains(" left …"), "{said}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    let mut printed = String::new();
    child.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(
        said.contains("interrupted: trace-hooks; 1 of 2 documents are in `results`: add --resume"),
        "{said}"
    );
    assert!(printed.contains("rss: ") && printed.contains("ethtool -X"), "the table of rss: {printed}");
    let results = folder.path().join("results");
    let rss = document(&results.join("rss.json"));
    assert_eq!(rss["machine"]["command"], "trieline lab run rss --quick --rounds 1 --save");
    assert!(!results.join("trace-hooks.json").exists() && printed.contains("results/rss.json"));

    let (code, sum, said) = run(folder.path(), &format!("-j {all} --resume"));
    assert_eq!(
        (code, ends(&json_of(&sum))),
        (0, vec![("rss", "skipped"), ("trace-hooks", "measured")]),
        "{said}"
    );
    assert!(!said.contains("rss") && said.contains("1 of 1: trace-hooks"), "{said}");
    assert_eq!(document(&results.join("rss.json"))["machine"]["date"], rss["machine"]["date"]);

    let mut other = document(&results.join("trace-hooks.json"));
    other["machine"]["kernel"] = "2.6.39".into();
    fs::write(results.join("trace-hooks.json"), other.to_string()).unwrap();
    let (code, sum, said) = run(folder.path(), &format!("-j {all} --resume"));
    assert_eq!(
        (code, ends(&json_of(&sum))),
        (0, vec![("rss", "skipped"), ("trace-hooks", "measured")]),
        "{said}"
    );
    let (code, sum, _) = run(folder.path(), &format!("{all} --resume"));
    assert!(code == 0 && sum.lines().filter(|line| line.contains("skipped")).count() == 2, "{sum}");

    // A quick run does not replace the document of a full one, and says so before it measures.
    let mut full = document(&results.join("rss.json"));
    full["machine"]["command"] = "trieline lab run rss --save".into();
    fs::write(results.join("rss.json"), full.to_string()).unwrap();
    for line in [all, "run --busy rss --quick --save"] {
        let (code, _, said) = run(folder.path(), line);
        assert!(code == 1 && said.contains("results/rss.json is of a full run"), "{said}");
    }
    assert_eq!(document(&results.join("rss.json")), full);
}

/// `convergence` needs programs that are not beside this copy: it alone has no document.
#[test]
fn an_experiment_that_fails_does_not_end_the_run() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    let alone = folder.path().join("trieline-lab");
    copy_program(LAB, &alone);
    let words =
        ["-j", "run", "--busy", "all", "--quick", "--rounds", "1", "--only", "convergence,trace-hooks"];
    let output = Command::new(alone).args(words).current_dir(folder.path()).output().unwrap();
    let (code, sum, said) = answer(output);
    let sum = json_of(&sum);
    assert_eq!(
        (code, ends(&sum)),
        (1, vec![("convergence", "failed"), ("trace-hooks", "measured")]),
        "{said}"
    );
    assert!(sum[0]["reason"].as_str().unwrap().contains("trieline") && sum[0]["file"].is_null(), "{sum}");
    assert_eq!(sum[1]["file"], "results/trace-hooks.json");
    assert!(said.contains("failed: convergence"), "{said}");
    assert!(folder.path().join("results/trace-hooks.json").exists());
}

#[test]
fn a_run_of_all_that_cannot_save_does_not_begin() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("results"), "").unwrap();
    let (code, printed, said) = run(folder.path(), "run --busy all --quick");
    assert!(code == 1 && printed.is_empty(), "{printed}{said}");
    assert!(said.starts_with("trieline: cannot write into the folder `results`: "), "{said}");
    let (code, _, said) = run(folder.path(), "run all --only chess");
    assert!(code == 2 && said.contains("\"chess\"") && said.contains("map-curve"), "{said}");
}

/// Other work on a CPU: refused, or noted in the document.
#[test]
fn a_busy_machine_is_refused_without_busy() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    let _busy = Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    let rss = "rss --quick --rounds 1 --flows 100 --packets 1000 --save";
    for line in [format!("run {rss}"), "run all --quick".into()] {
        let (code, printed, said) = run(folder.path(), &line);
        assert!(code == 1 && printed.is_empty(), "{line}: {printed}{said}");
        assert!(
            said.contains("cannot measure: other work takes ")
                && said.contains(" CPUs; end it, or add --busy"),
            "{said}"
        );
        assert!(!folder.path().join("results/rss.json").exists(), "{line}");
    }
    // A model of a saved document measures nothing.
    let (_, _, said) = run(folder.path(), "run project --from missing.json");
    assert!(said.contains("cannot read missing.json") && !said.contains("other work"), "{said}");
    let (code, printed, said) = run(folder.path(), &format!("run --busy {rss}"));
    assert!(code == 0 && printed.contains("THE MACHINE WAS BUSY"), "{printed}{said}");
    assert!(printed.starts_with("BUSY MACHINE: rss: "), "{printed}");
    let saved = document(&folder.path().join("results/rss.json"));
    assert_eq!(
        (&saved["machine"]["load"]["busy"], &saved["title"]),
        (&true.into(), &"BUSY MACHINE: rss".into())
    );
    let picture = fs::read_to_string(folder.path().join("results/rss.svg")).unwrap();
    assert_eq!(
        picture.matches("BUSY MACHINE: ").count(),
        2,
        "the title that is seen, and the one that is read out"
    );
}

/// A user does not end other work only to learn that it takes root.
#[test]
fn root_is_asked_for_before_a_quiet_machine() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let program = folder.path().join("trieline-lab");
    copy_program(LAB, &program);
    let _busy = Running(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
    for words in [&["run", "rss", "--quick"][..], &["run", "all", "--quick"], &["report", "--quick"]] {
        let output =
            Command::new(&program).args(words).current_dir(folder.path()).uid(NOBODY).output().unwrap();
        let (code, printed, said) = answer(output);
        assert!(
            code == 1 && printed.is_empty() && said.contains("run as root"),
            "{words:?}: {printed}{said}"
        );
        assert!(!said.contains("other work takes"), "{words:?}: {said}");
    }
}

/// Ctrl-C behind the first round: the figures of the finished rounds are saved as those of an interrupted run, which `--resume` measures again.
#[test]
fn finished_rounds_survive_an_interrupt() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    let interrupted = |line: &str| {
        let mut child =
            Running(lab(folder.path(), line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
        // Far fewer than all of its rounds are made by then, and more than one, also beside other work.
        std::thread::sleep(Duration::from_secs(12));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (child.wait().unwrap().code(), said)
    };
    let path = folder.path().join("results/trace-hooks.json");
    let all = "run --busy all --only trace-hooks --rounds 3000";
    let (code, said) = interrupted(all);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("1 experiment: about 60 s in all"), "{said}");
    let first = document(&path);
    let at = first["machine"]["interrupted"].as_str().unwrap();
    assert!(at.starts_with("hooks: after ") && at.ends_with(" of 3000 rounds"), "{at}");
    let rounds = first["parameters"]["rounds"].as_u64().unwrap();
    assert!((1..3000).contains(&rounds) && !first["rows"].as_array().unwrap().is_empty(), "{rounds} rounds");
    assert!(said.contains("interrupted: trace-hooks; 1 of 1 documents"), "{said}");

    // It is measured again: it does not count as there.
    let (code, said) = interrupted(&format!("{all} --resume"));
    assert!(code == Some(1) && said.contains("1 of 1: trace-hooks"), "{said}");
    assert_ne!(document(&path)["machine"]["date"], first["machine"]["date"]);

    // The document of a whole run stays.
    let (code, _, said) = run(folder.path(), "run --busy trace-hooks --rounds 1 --save");
    assert_eq!(code, 0, "{said}");
    let whole = document(&path);
    let (code, said) = interrupted("run --busy trace-hooks --rounds 3000 --save");
    assert!(code == Some(1) && said.contains("interrupted hooks: after "), "{said}");
    assert!(said.contains("is of a whole run: the interrupted one does not replace it"), "{said}");
    assert_eq!(document(&path), whole);
}

/// Two runs with one seed, then one whose figures were made worse.
#[test]
fn changes_are_distinguished_from_noise() {
    needs_root!();
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    for name in ["a.json", "b.json"] {
        let line = "run --busy rss --quick --rounds 5 --flows 300 --packets 4000 --save";
        let (code, _, said) = run(folder.path(), line);
        assert_eq!(code, 0, "{said}");
        fs::rename(path("results/rss.json"), path(name)).unwrap();
    }
    let (code, printed, said) = run(folder.path(), "compare a.json b.json");
    assert!(code == 0 && printed.contains("\n0 improved, 0 regressed, "), "{printed}{said}");

    let mut worse = document(&path("b.json"));
    for key in ["packet_share", "packet_share_min", "packet_share_max"] {
        worse["rows"][0][key] = (worse["rows"][0][key].as_f64().unwrap() * 3.0).into();
    }
    worse["machine"]["cpu"] = "another".into();
    worse["rows"].as_array_mut().unwrap().pop();
    fs::write(path("worse.json"), worse.to_string()).unwrap();
    let (code, printed, said) = run(folder.path(), "-j compare a.json worse.json");
    let comparison = json_of(&printed);
    let verdicts = |verdict: &str| {
        comparison["rows"].as_array().unwrap().iter().filter(|row| row["verdict"] == verdict).count()
    };
    assert_eq!(
        (code, verdicts("regressed"), verdicts("improved"), verdicts("undecided")),
        (0, 1, 0, 0),
        "{said}"
    );
    assert_eq!(
        comparison["rows"].as_array().unwrap().iter().find(|row| row["verdict"] == "regressed").unwrap()["figure"],
        "packet_share"
    );
    assert_eq!(comparison["only_in_a"].as_array().unwrap().len(), 1);
    assert!(comparison["differences"][0].as_str().unwrap().starts_with("machine.cpu: "), "{comparison}");
}

/// Files that cannot be compared: the message names the file and what was expected.
#[test]
fn broken_documents_are_refused() {
    let folder = TempDir::new().unwrap();
    let good = json!({
        "experiment": "rss", "version": 1, "machine": { "git": "0123abc", "load": { "busy": false } },
        "parameters": { "rounds": 5 }, "rows": [{ "traffic": "zipf", "packet_share": 1.0, "flow_share": 1.0 }],
    });
    let with = |key: &str, value: Value| {
        let mut document = good.clone();
        document[key] = value;
        document.to_string()
    };
    let pretty = serde_json::to_string_pretty(&good).unwrap();
    let cut: Vec<&str> = pretty.lines().take(5).collect();
    let cases = [
        ("cut.json", cut.join("\n"), vec!["not JSON", "line 5", "expected a document"]),
        (
            "other.json",
            json!([1]).to_string(),
            vec!["no `experiment`", "expected a document that `trieline lab run NAME --save` wrote"],
        ),
        ("new.json", with("version", 2.into()), vec!["version 2", "reads version 1", "0123abc"]),
        ("tries.json", with("experiment", "tries".into()), vec!["`tries`", "good.json, which is of `rss`"]),
        ("rows.json", with("rows", Value::Null), vec!["invalid `rows`: expected a list"]),
        (
            "text.json",
            with("rows", json!([{ "packet_share": 1 }, { "packet_share": "1.0" }])),
            vec![r#"invalid "1.0" for rows[1].packet_share: expected a number"#],
        ),
    ];
    fs::write(folder.path().join("good.json"), good.to_string()).unwrap();
    for (name, text, words) in cases {
        fs::write(folder.path().join(name), text).unwrap();
        let (code, printed, said) = run(folder.path(), &format!("compare good.json {name}"));
        assert!(code == 1 && printed.is_empty(), "{name}: {printed}{said}");
        for word in [name].into_iter().chain(words) {
            assert!(said.contains(word), "{name}: expected `{word}`: {said}");
        }
    }
    let (code, _, said) = run(folder.path(), "compare missing.json good.json");
    assert!(code == 1 && said.contains("missing.json: cannot read: No such file"), "{said}");
    assert_eq!(run(folder.path(), "compare good.json").0, 2);
    let (code, printed, _) = run(folder.path(), "compare good.json good.json");
    assert!(code == 0 && printed.contains("2 undecided"), "{printed}");
}
