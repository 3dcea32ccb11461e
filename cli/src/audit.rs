//! `trieline node audit`: whether kernel, mirror, image and actions say the same, and whether a routing daemon's routes are in the kernel.

mod bird;
mod frr;
mod rib;

use crate::client::{count, send_request};
use clap::Args;
use serde::Serialize;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use trieline_router::api::control::Request;
use trieline_router::api::instance::Instance;
use trieline_router::audit::packets::{self, Tried};
use trieline_router::audit::{AuditLine, Audited, Difference};
use trieline_terminal::{Bars, Output, Progress};

/// The options.
#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Only report differences, and repair nothing
    #[arg(long)]
    no_repair: bool,
    /// Compare FRR's selected routes with the kernel's, too
    ///
    /// DIR is the folder of FRR's sockets, if it is not the usual one.
    #[arg(long, value_name = "DIR", num_args = 0..=1, require_equals = true)]
    frr: Option<Option<PathBuf>>,
    /// Compare BIRD's exported routes with the kernel's, too
    ///
    /// SOCKET is BIRD's control socket, if it is not the usual one.
    #[arg(long, value_name = "SOCKET", num_args = 0..=1, require_equals = true)]
    bird: Option<Option<PathBuf>>,
}

/// The whole answer.
#[derive(Debug, Serialize)]
struct Report {
    /// Nothing differs.
    equal: bool,
    #[serde(flatten)]
    audited: Audited,
    /// Packets that the program sent where the kernel would, of so many.
    packets: Packets,
    /// Those that were named.
    found: Vec<Difference>,
    /// Comparisons with routing daemons.
    rib: Vec<rib::Compared>,
}

/// Packets through the program.
#[derive(Debug, Default, Serialize)]
struct Packets {
    tried: u64,
    forwarded: u64,
    /// Left to the kernel, dropped, or without a known next hop.
    passed: u64,
}

/// Tries packets to these destinations on the program over the tables in force; an error where that is not possible.
fn try_packets(instance: &Instance, destinations: &[IpAddr]) -> anyhow::Result<Tried> {
    let pinned = crate::client::open(instance)?;
    Ok(packets::try_packets(&pinned.test_run()?, &pinned.ports()?, destinations)?)
}

/// Runs the command.
pub fn run(args: &AuditArgs, instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let request = Request::Audit { repair: !args.no_repair };
    let (mut found, mut destinations, mut audited) = (Vec::new(), Vec::new(), None);
    let (bars, mut phase, mut so_far) = (Bars::new(), String::new(), 0);
    let absent = send_request(instance, &request, |line| {
        match line {
            AuditLine::Progress { step, done, of } => {
                if step != phase {
                    bars.phase(&step, of);
                    (phase, so_far) = (step, 0);
                }
                bars.advance(done.saturating_sub(so_far));
                so_far = done.max(so_far);
            }
            AuditLine::Difference(difference) => found.push(difference),
            AuditLine::Destinations(some) => destinations = some,
            AuditLine::Done(done) => audited = Some(done),
        }
        true
    });
    bars.finish();
    let absent = absent?;
    if let Some(absent) = absent {
        return Err(absent.into());
    }
    let mut audited =
        audited.ok_or_else(|| anyhow::anyhow!("trielined ended before the audit did; run it again"))?;
    let mut tried = Packets::default();
    match try_packets(instance, &destinations) {
        Ok(Tried { forwarded, passed, differences }) => {
            let elsewhere = differences.len() as u64;
            tried = Packets { tried: forwarded + passed + elsewhere, forwarded, passed };
            audited.differences += elsewhere;
            found.extend(differences);
        }
        Err(error) => audited.skipped.push(format!("packets: {error}")),
    }
    let mut rib = Vec::new();
    let frr = args.frr.as_ref().map(|folder| rib::compare("FRR", || frr::routes(folder.as_deref())));
    let bird = args.bird.as_ref().map(|socket| rib::compare("BIRD", || bird::routes(socket.as_deref())));
    // A daemon that does not answer hides nothing of the rest.
    let mut unanswered = 0;
    for (daemon, compared) in [("FRR", frr), ("BIRD", bird)] {
        match compared {
            Some(Ok(compared)) => rib.push(compared),
            Some(Err(error)) => {
                unanswered += 1;
                audited.skipped.push(format!("{daemon}: {error:#}"));
            }
            None => {}
        }
    }
    let equal = audited.differences == 0 && rib.iter().all(rib::Compared::is_equal);
    let report = Report { equal, audited, packets: tried, found, rib };
    if output.json {
        output.document(&report)?;
    } else {
        output.text(&text(&report, output))?;
    }
    Ok(if equal && unanswered == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(report: &Report, output: &Output) -> String {
    let audited = &report.audited;
    let mut text = String::new();
    for difference in &report.found {
        text += &format!("{} {difference}\n", output.bad("differs"));
    }
    if audited.differences > report.found.len() as u64 {
        text += &format!("and {} more\n", audited.differences - report.found.len() as u64);
    }
    for skipped in &audited.skipped {
        text += &format!("not compared: {skipped}\n");
    }
    report.rib.iter().for_each(|compared| text += &compared.text(output));
    text += &format!(
        "compared {}, {}, {} in the image, {}, {}, {} in {:.1} s; {} left to the kernel\n",
        count(audited.routes, "route of the kernel", "routes of the kernel"),
        count(audited.prefixes, "prefix", "prefixes"),
        count(audited.lookups, "lookup", "lookups"),
        count(audited.actions, "action", "actions"),
        count(audited.entries, "port, exit or filter", "ports, exits and filters"),
        count(audited.objects, "other object", "other objects"),
        audited.seconds,
        count(audited.passed, "prefix", "prefixes"),
    );
    text += &format!(
        "ran the program on {}: it sent {} where the kernel would{}\n",
        count(report.packets.tried, "packet", "packets"),
        report.packets.forwarded,
        // Of different ones, the lines above say where they went.
        if report.equal { ", and left the others to the kernel" } else { "" }
    );
    if audited.in_flight > 0 {
        text += &format!(
            "{} changed each time; run the audit again\n",
            count(audited.in_flight, "prefix or object", "prefixes or objects")
        );
    }
    if audited.repaired {
        text += "repaired: trielined wrote or dumped once more what differed\n";
    }
    text += &match report.equal {
        true if audited.skipped.is_empty() => output.good("equal"),
        true => output.good("equal, as far as it was compared"),
        false => output.bad("different"),
    };
    text
}
