//! The parts of a report. Each is made by itself, so that one that fails, or hangs, does not stop the others.

use crate::command::run_within;
use rustix::system::uname;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A command that takes longer is ended.
const PATIENCE: Duration = Duration::from_secs(60);
/// The last lines of the log.
const LOG_LINES: &str = "500";
/// Read if no other file is named.
const FILE: &str = "/etc/trieline/trielined.toml";

/// The text of a part.
#[derive(Debug)]
pub enum Text {
    /// It has no addresses, though it may have numbers that look like some.
    Plain(String),
    /// It may have addresses.
    Addresses(String),
}

/// A part, or why it failed.
#[derive(Debug)]
pub struct Part {
    /// Its title.
    pub title: String,
    /// Its text, or the error.
    pub text: Result<Text, String>,
}

impl Part {
    fn new(title: impl Into<String>, text: Result<String, String>) -> Self {
        Self { title: title.into(), text: text.map(Text::Addresses) }
    }
}

/// The time now in UTC, such as `2026-11-25T13:31:35Z`.
pub fn time() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, of_day) = (seconds / 86400, seconds % 86400);
    // Days from 0000-03-01, so that a leap day ends a year (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    format!(
        "{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        year + era * 400,
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    )
}

/// All parts.
pub fn all(config: Option<&Path>) -> Vec<Part> {
    let own = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("trieline"));
    let own = |words: &str| run(&own.to_string_lossy(), &words.split(' ').collect::<Vec<_>>(), true);
    let status = own("-j --pretty node status");
    // Its first line is the command.
    let json = status.as_deref().ok().and_then(|text| text.split_once('\n'));
    let parsed: Value = json.and_then(|(_, json)| serde_json::from_str(json).ok()).unwrap_or_default();
    let pid = parsed["pid"].as_u64();
    let mut parts = vec![
        Part { title: "versions".into(), text: Ok(Text::Plain(versions(&parsed))) },
        Part { title: "kernel".into(), text: Ok(Text::Plain(kernel())) },
        Part::new("status", status),
        Part::new("drops", drops(&parsed)),
        Part::new("bypassed, punted, problems", aside(&parsed)),
        Part::new("filters", own("filter show")),
        Part::new("SRv6 SIDs and hooks", own("sid show")),
        Part::new("last changes", last_changes(&parsed)),
        Part::new("command line of trielined", command_line(pid)),
        Part::new("configuration", configuration(config)),
        Part::new("node check", own("node check")),
        Part::new("links", run("ip", &["-d", "-s", "link", "show"], true)),
        Part::new("policy rules", rules()),
    ];
    for device in devices(&parsed) {
        parts.push(Part::new(format!("device {device}"), device_details(&device)));
    }
    let units = ["-u", "trielined", "-u", "trielined@*"];
    let arguments =
        [&["--no-pager", "--no-hostname", "-o", "short-iso", "-n", LOG_LINES], &units[..]].concat();
    parts.push(Part::new("log", run("journalctl", &arguments, true)));
    parts
}

/// Runs a command for at most [`PATIENCE`]. `any_code`: output counts whatever the exit code is.
fn run(program: &str, arguments: &[&str], any_code: bool) -> Result<String, String> {
    let ended = run_within(program, arguments, PATIENCE)?;
    let name = Path::new(program).file_name().map_or_else(|| program.into(), |name| name.to_string_lossy());
    let line = format!("{name} {}", arguments.join(" "));
    if ended.status.success() || any_code && !ended.out.trim().is_empty() {
        return Ok(format!("$ {line}\n{}{}", ended.out, ended.errors));
    }
    Err(format!("`{line}`: {}", ended.cause()))
}

fn versions(status: &Value) -> String {
    let daemon = match status["version"].as_str() {
        Some(version) if !version.is_empty() => version.to_owned(),
        _ => "not running".into(),
    };
    format!("trieline {}\ntrielined {daemon}\n", env!("CARGO_PKG_VERSION"))
}

fn kernel() -> String {
    let name = uname();
    let mut text = String::new();
    for field in [name.sysname(), name.release(), name.version(), name.machine()] {
        let _ = writeln!(text, "{}", field.to_string_lossy());
    }
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "processors {processors}");
    let files = ["/proc/sys/net/core/bpf_jit_enable", "/sys/kernel/security/lockdown", "/etc/os-release"];
    for file in files {
        let content = std::fs::read_to_string(file).unwrap_or_else(|error| error.to_string());
        let _ = writeln!(text, "{file}: {}", content.trim_end());
    }
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    memory.lines().take(3).for_each(|line| text += &format!("{line}\n"));
    text
}

/// The status, or the error that it is missing.
fn of_status(status: &Value) -> Result<&Value, String> {
    if status.is_object() { Ok(status) } else { Err("the status is missing".into()) }
}

fn drops(status: &Value) -> Result<String, String> {
    let counters = of_status(status)?["counters"].as_array().cloned().unwrap_or_default();
    let dropped = counters.iter().filter(|counter| counter["kind"] == "drop" && counter["packets"] != 0);
    let lines: String =
        dropped.map(|counter| format!("{} {}\n", counter["packets"], text_of(&counter["name"]))).collect();
    Ok(if lines.is_empty() { "XDP has dropped no packet\n".into() } else { lines })
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn aside(status: &Value) -> Result<String, String> {
    let status = of_status(status)?;
    let mut text = String::new();
    for key in ["bypassed", "punted", "problems", "missing", "refused"] {
        let _ = writeln!(text, "{key}: {}", status[key]);
    }
    Ok(text)
}

fn last_changes(status: &Value) -> Result<String, String> {
    let status = of_status(status)?;
    let mut text = String::from("trielined keeps no list of changes; these are their counts\n");
    for key in ["mirror", "overruns", "resyncs", "audit"] {
        let _ = writeln!(text, "{key}: {}", status[key]);
    }
    Ok(text)
}

fn command_line(pid: Option<u64>) -> Result<String, String> {
    let pid = pid.ok_or("trielined does not run")?;
    let path = format!("/proc/{pid}/cmdline");
    let bytes = std::fs::read(&path).map_err(|error| format!("cannot read {path}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).replace('\0', " "))
}

fn configuration(config: Option<&Path>) -> Result<String, String> {
    let path = config.unwrap_or(Path::new(FILE));
    let text = std::fs::read_to_string(path);
    text.map(|text| format!("{}\n{text}", path.display()))
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn rules() -> Result<String, String> {
    let v4 = run("ip", &["-4", "rule", "show"], true)?;
    Ok(v4 + &run("ip", &["-6", "rule", "show"], true)?)
}

/// Names of the devices that trielined has or wants; without it, those that `ip` lists.
fn devices(status: &Value) -> BTreeSet<String> {
    let attached = status["devices"].as_array().cloned().unwrap_or_default();
    let names = attached.iter().filter_map(|device| device["dev"].as_str()).map(str::to_owned);
    let known: BTreeSet<String> = names.collect();
    if !known.is_empty() {
        return known;
    }
    let links = trieline_router::kernel::link::list().unwrap_or_default();
    links.into_iter().filter(|link| !link.is_loopback()).map(|link| link.name).collect()
}

/// Driver, firmware, queues, offloads and counters of a device; where one is not known, its error.
fn device_details(device: &str) -> Result<String, String> {
    let mut text = String::new();
    let mut found = false;
    for option in ["-i", "-l", "-g", "-k", "-S"] {
        match run("ethtool", &[option, device], false) {
            Ok(answer) => {
                found = true;
                text += &answer;
            }
            Err(error) => text += &format!("{error}\n"),
        }
    }
    if found { Ok(text) } else { Err(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_of_date() {
        let date = run("date", &["-u", "+%Y-%m-%dT%H:%M"], false).unwrap();
        assert!(time().starts_with(date.lines().nth(1).unwrap()), "{} {date}", time());
    }

    #[test]
    fn a_part_that_fails_names_its_error() {
        assert!(
            run("no-such-program", &["-x"], true).unwrap_err().contains("cannot run `no-such-program -x`")
        );
        assert!(run("sh", &["-c", "echo why >&2; exit 3"], true).unwrap_err().ends_with("why"));
        assert_eq!(run("sh", &["-c", "echo out; exit 3"], true).unwrap(), "$ sh -c echo out; exit 3\nout\n");
        assert!(run("sh", &["-c", "echo out; exit 3"], false).is_err());
    }
}
