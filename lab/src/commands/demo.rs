//! `trieline demo`: a whole table in a kernel of our own making, mirrored into XDP, with traffic through both.

use std::{fmt::Write as _, path::PathBuf, process::ExitCode};

use clap::Args;
use trieline_lab::{
    Context,
    experiments::{
        forward::{self, Forward, Plane, Row, Setup, delivered, source},
        options::{Run, Table, command_line},
    },
    report::{Column, table},
    tables::Tables,
};
use trieline_testbed::daemon::Programs;

use trieline_terminal::{Bars, Output, interrupt_flag, usage};

use super::shared::{finish_error, prefixes};

/// Mirror a table into XDP, and send packets through both
#[derive(Args, Debug)]
#[command(after_help = "It needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong.")]
pub struct DemoArgs {
    /// Use the routes of this file instead of generated ones
    ///
    /// `prefix [value]` lines, gzip or not, or the output of `ip route`.
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Generate so many IPv4 routes
    #[arg(long = "ipv4", value_name = "N", default_value_t = 80_000, value_parser = prefixes, conflicts_with = "table")]
    prefixes4: usize,
    /// Generate so many IPv6 routes
    #[arg(long = "ipv6", value_name = "N", default_value_t = 20_000, value_parser = prefixes, conflicts_with = "table")]
    prefixes6: usize,
    /// Set the seed of everything random
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs `trieline demo`.
pub fn run(args: &DemoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.table.is_none() && args.prefixes4 + args.prefixes6 == 0 {
        return Err(usage("--ipv4 0 and --ipv6 0: no routes at all; expected some of either".into()).into());
    }
    let tables = match &args.table {
        Some(file) => Tables::read(file)?,
        None => Tables::internet(args.prefixes4, args.prefixes6, args.seed),
    };
    // Only now: until here Ctrl-C just ends it, nothing is there to clean up.
    let interrupt = interrupt_flag()?;
    let bars = Bars::new();
    let context = Context { progress: &bars, interrupt: &interrupt };
    let options = Forward {
        run: Run { seed: args.seed, rounds: Some(3), command: command_line(""), ..Run::default() },
        table: Table { file: args.table.clone(), ..Table::default() },
        frames: Some(500_000),
        ..Forward::default()
    };
    let setup = Setup { options, tables, product: Some(Programs::beside_me()?), filters: Vec::new() };
    let outcome = match forward::run(&setup, &context) {
        Ok(outcome) => outcome,
        Err(error) => return finish_error(error, &interrupt),
    };
    bars.finish();
    if output.json {
        output.document(&outcome)?;
    } else {
        output.text(&story(&outcome))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The steps of the demo, in their order.
fn story(outcome: &forward::Outcome) -> String {
    let p = &outcome.parameters;
    let mut text = String::new();
    let file = p.table.as_ref().map(|file| format!(" {}", file.display())).unwrap_or_default();
    let _ = writeln!(
        text,
        "routes    {} in the node's kernel: {} IPv4, {} IPv6 ({}{file}), loaded by `ip -batch` in {} s",
        outcome.rows.first().map_or(0, |row| row.routes),
        p.routes4,
        p.routes6,
        source(p.source),
        p.load_s
    );
    if let Some(mirror) = &p.mirror {
        let _ = writeln!(
            text,
            "mirror    {:.0} ms from starting trielined to the first frame forwarded by XDP",
            mirror.start_to_first_forwarded_ms
        );
        if let Some(status) = &mirror.status {
            let own = &status["mirror"];
            let ms = |key: &str| own[key].as_f64().map(|ms| format!("{ms:.0} ms"));
            let phases: Vec<String> = [("dump", "dump_ms"), ("build", "build_ms"), ("ready", "ready_ms")]
                .iter()
                .filter_map(|(name, key)| Some(format!("{name} {}", ms(key)?)))
                .collect();
            if !phases.is_empty() {
                let routes = own["routes"].as_u64().map(|n| format!(" of {n} routes")).unwrap_or_default();
                let _ = writeln!(text, "          by its own account: {}{routes}", phases.join(", "));
            }
            if let (Some(used), Some(limit)) =
                (status["image"]["used"].as_u64(), status["image"]["bytes"].as_u64())
            {
                let map_type = status["map_type"].as_str().unwrap_or("memory");
                let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
                let _ = writeln!(text, "image     {:.1} MiB of {:.0} MiB, {map_type}", mib(used), mib(limit));
            }
        }
    }
    text.push('\n');
    text.push_str(&table(&outcome.rows, 2, &COLUMNS).text());
    let _ = writeln!(
        text,
        "\nOne core; ns a frame with generator and sink; {} rounds of {} frames, interleaved, to addresses inside the table.\n\
         fib: an XDP program that asks the kernel's routes by bpf_fib_lookup.",
        p.rounds, p.frames
    );
    text
}

const COLUMNS: [Column<Row>; 8] = [
    ("path", |row| words(row.path).into()),
    ("through", |row| row.plane.name().into()),
    ("Mpps", |row| format!("{:.2}", row.mpps)),
    ("ns", |row| format!("{:.0}", row.ns)),
    ("against the kernel", |row| faster(row, row.ratio)),
    ("tc sink", |row| faster(row, row.ratio_tc)),
    ("against fib", |row| faster(row, row.ratio_fib)),
    ("delivered", delivered),
];

fn faster(row: &Row, ratio: Option<f64>) -> String {
    match (row.plane, ratio) {
        (Plane::Xdp, Some(ratio)) => format!("{ratio:.1}x"),
        _ => String::new(),
    }
}

fn words(path: &'static str) -> &'static str {
    match path {
        "ipv4" => "IPv4, one route",
        "ipv4-full" => "IPv4",
        "ipv6" => "IPv6",
        "decap" => "SRv6 End.DX4",
        "decap-full" => "SRv6 End.DX4, table",
        "decap-dt4" => "SRv6 End.DT4",
        "decap-dt6" => "SRv6 End.DT6",
        "encap" => "SRv6 H.Encaps",
        "encap-red" => "SRv6 H.Encaps.Red",
        "encap-3" => "SRv6 H.Encaps, 3 segments",
        "end" => "SRv6 End",
        "decap-vrf" => "tenants, End.DX4",
        "decap-vrf-dt4" => "tenants, End.DT4",
        "encap-vrf" => "tenants, H.Encaps",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trieline_lab::experiments::forward::Path;

    /// The README lists the rows that the demo prints, under the names that it prints, and no others.
    #[test]
    fn the_readme_has_the_rows_of_the_demo() {
        let readme = include_str!("../../../README.md");
        let (_, list) = readme
            .split_once(
                "The paths (End.DT4 and the tenants' need VRF and VLAN devices in the kernel):\n\n```text\n",
            )
            .unwrap();
        let (list, _) = list.split_once("```").unwrap();
        let mut listed: Vec<&str> = list
            .lines()
            .flat_map(|line| line.split("  "))
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .collect();
        listed.retain(|name| !name.starts_with("the least"));
        let mut printed: Vec<&str> = Path::ALL.iter().map(|path| words(path.name())).collect();
        printed.push(words("redirect"));
        listed.sort_unstable();
        printed.sort_unstable();
        assert_eq!(listed, printed);
    }
}
