//! The figures that a release is to reach, measured here beside those that are asked for. A busy machine shows worse ones: only absurd ones
//! fail.
//!
//! `cargo test --release -p trieline-tests --test blackbox figures -- --ignored --nocapture`

use crate::metrics::scraper::{OPENMETRICS, Server};
use crate::package;
use std::fmt::Write;
use std::fs;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run_with;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::needs_root;

const ROUTES: u32 = 1_000_000;
/// How long a processor's time is counted.
const WATCHED: Duration = Duration::from_secs(20);
/// A measured figure above so many times the asked one is absurd.
const ABSURD: f64 = 50.0;

/// The figures so far, and those that are absurd.
#[derive(Default)]
struct Figures {
    lines: String,
    absurd: Vec<String>,
}

impl Figures {
    fn add(&mut self, what: &str, measured: f64, asked: f64, unit: &str) {
        let verdict = if measured <= asked { "reached" } else { "NOT reached" };
        let line = format!("{what:<44} {measured:>10.2} : {asked:>7} {unit:<12} {verdict}");
        if !(0.0..=asked * ABSURD).contains(&measured) {
            self.absurd.push(line.clone());
        }
        let _ = writeln!(self.lines, "{line}");
    }
}

/// Processor time of all threads of a process, in seconds.
fn processor_time(pid: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
    let of = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0)
    };
    tasks.map(of).sum::<f64>() / 1e9
}

/// Percent of a processor that a process takes, once it has settled.
fn percent(pid: u32) -> f64 {
    std::thread::sleep(Duration::from_secs(3));
    let (begun, before) = (Instant::now(), processor_time(pid));
    std::thread::sleep(WATCHED);
    100.0 * (processor_time(pid) - before) / begun.elapsed().as_secs_f64()
}

/// A line of `/proc/PID/status`, in bytes.
fn memory(pid: u32, key: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = text.lines().find_map(|line| line.strip_prefix(key)).expect("a line");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<f64>().expect("a number") * 1024.0
}

/// A full table: the start, memory, and the audit.
fn full_table(figures: &mut Figures) {
    let bed = Bed::new();
    bed.warm();
    let mut lines = String::new();
    for n in 0..ROUTES {
        let _ =
            writeln!(lines, "route add {}/24 via 10.1.0.2", std::net::Ipv4Addr::from(0x2000_0000 | n << 8));
    }
    bed.node.ip_batch(&[], &lines).ok();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    let text = "devices = [\"n0\", \"n1\", \"n2\"]\n[audit]\nrate = ";
    fs::write(&config, format!("{text}0\n")).expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    let shown = status(&bed.node);
    let ready = shown["mirror"]["ready_ms"].as_f64().expect("a time") / 1e3;
    figures.add("start to forwarding with 1M routes", ready, 0.7, "s");
    let routes = f64::from(ROUTES);
    let pid = daemon.pid();
    figures.add("memory of trielined (RSS)", memory(pid, "VmRSS") / routes, 200.0, "bytes/route");
    println!("  of it its own, not of maps: {:.0} bytes/route", memory(pid, "RssAnon") / routes);
    let without = percent(pid);
    fs::write(&config, format!("{text}100\n")).expect("a file");
    trieline(&bed.node, "node reload").ok();
    let with = percent(pid);
    println!(
        "  with 1M routes: {without:.3} % of a core without the audit, {with:.3} % with 100 addresses a second"
    );
    figures.add("audit", (with - without).max(0.0), 0.5, "% of a core");
}

/// 64 devices without traffic, and scrapes.
fn many_devices(figures: &mut Figures) {
    let (node, _far, args) = crate::bed::with_devices(64);
    let daemon = Daemon::start(&node, &args);
    figures.add("idle with 64 devices", percent(daemon.pid()), 0.3, "% of a core");
    let server = Server::start(&node, &[]);
    let mut times: Vec<f64> =
        (0..41).map(|_| server.scrape(OPENMETRICS).value("trieline_scrape_duration_seconds") * 1e3).collect();
    times.sort_by(f64::total_cmp);
    figures.add("scrape of 64 devices (median of 41)", times[20], 5.0, "ms");
}

/// The package: its size, and the way from the package's file to forwarding in a fresh system.
fn install(figures: &mut Figures) {
    let folder = tempfile::tempdir().expect("a folder");
    let debs = package::named(&package::packages(folder.path(), &["deb"]), ".deb");
    let deb = package::router(&debs);
    let size = run_with("dpkg-deb", &["-f", &deb.display().to_string(), "Installed-Size"], "").ok();
    let size = size.trim().parse::<f64>().expect("KiB") / 1024.0;
    figures.add("installed size of package trieline", size, 12.0, "MiB");
    figures.add("commands from package to forwarding", package::commands().len() as f64, 3.0, "commands");
    let Some(archive) = package::system::archive() else {
        return println!("  no system to install in: it needs Debian's archive");
    };
    let bed = Bed::routed();
    let system = package::fresh(&archive, folder.path(), &bed);
    fs::copy(deb, system.path("tmp/trieline.deb")).expect("a copy");
    let begun = Instant::now();
    system.run("dpkg -i /tmp/trieline.deb").ok();
    package::name_devices(&system);
    let daemon = system.started();
    let took = begun.elapsed().as_secs_f64();
    bed.becomes("installed", "10.50.0.1:9", (0, 5, 0));
    package::terminate(daemon);
    figures.add("install to forwarding", took, 60.0, "s");
}

#[test]
#[ignore = "takes minutes and 2 GiB"]
fn figures_beside_those_asked_for() {
    needs_root!();
    let mut figures = Figures::default();
    install(&mut figures);
    full_table(&mut figures);
    many_devices(&mut figures);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("{:<44} {:>10} : {:>7}\n{}load: {load}", "figure", "measured", "asked", figures.lines);
    assert!(figures.absurd.is_empty(), "absurd: {:#?}", figures.absurd);
}

#[test]
fn absurd_figures_are_found() {
    let mut figures = Figures::default();
    figures.add("good", 1.0, 2.0, "s");
    figures.add("missed", 4.0, 2.0, "s");
    assert!(
        figures.absurd.is_empty() && figures.lines.matches("NOT reached").count() == 1,
        "{}",
        figures.lines
    );
    figures.add("absurd", 101.0, 2.0, "s");
    figures.add("unknown", f64::NAN, 2.0, "s");
    assert_eq!(figures.absurd.len(), 2);
    assert_eq!(package::commands().len(), 3);
}
