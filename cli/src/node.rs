//! `trieline node`: what the daemon does, and how to end what it left.

use crate::client::{self, Names, count, find_name, one, open};
use clap::Subcommand;
use std::fmt::Write;
use std::process::ExitCode;
use trieline_lpm::{Memory, Reader};
use trieline_router::api::control::Request;
use trieline_router::api::instance::{self, Instance, is_hidden};
use trieline_router::api::status::{DeviceStatus, ImageStatus, Status};
use trieline_router::bypass::scan::UNLISTED;
use trieline_router::drops::{AfterRedirect, Source, read_pinned};
use trieline_router::{Error, VerdictCount, detach_all};
use trieline_terminal::Output;

/// The node.
#[derive(Debug, Subcommand)]
pub enum NodeCommand {
    /// Show the daemon, its devices, mirrored routes and counters
    #[command(
        after_help = "It needs root or group trieline. Exit codes: 0 done; 1 no trielined was started here, or it failed; 2 the command line is wrong."
    )]
    Status,
    /// Check this host before trielined attaches to anything
    ///
    /// It looks at devices, netfilter, kernel and memory as trielined does, and measures this node's routes on this processor. It changes nothing.
    #[command(
        after_help = "Run it as root. Without root, it lists the checks that it skipped. Exit codes: 0 go; 1 no-go; 2 the command line is wrong."
    )]
    Check(crate::check::CheckArgs),
    /// Compare kernel routes with what packets meet, and repair
    ///
    /// trielined dumps the kernel's routes once more and compares them with its own. It looks each prefix up in the tables that packets
    /// meet, and compares each action. It goes on forwarding and following meanwhile.
    #[command(
        after_help = "It needs root; with --no-repair, group trieline may use it. Exit codes: 0 equal; 1 different, or it failed; 2 the command line is wrong."
    )]
    Audit(crate::audit::AuditArgs),
    /// Write one file for support: status, devices, drops, log
    ///
    /// IP and MAC addresses are masked. A part that fails is named in the file and does not stop the report. Nothing is sent anywhere.
    #[command(
        after_help = "It needs root; without, the file says what it could not find out. Exit codes: 0 the file is written; 1 it is not; 2 the command line is wrong."
    )]
    Report(crate::report::ReportArgs),
    /// Read the configuration again and follow it, all or nothing
    #[command(
        after_help = "It needs root. Exit codes: 0 done; 1 failed, and all is as before, or a key waits for a restart; 2 the command line is wrong."
    )]
    Reload,
    /// Take XDP off all devices of this network namespace
    ///
    /// This also removes the tables. The kernel then forwards alone.
    #[command(
        after_help = "It needs root. Exit codes: 0 done, or nothing was attached; 1 failed; 2 the command line is wrong."
    )]
    Detach,
}

/// Runs a `node` command.
pub fn run(command: &NodeCommand, netns: Option<&str>, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    match command {
        NodeCommand::Check(args) => crate::check::run(args, &instance, netns, output),
        NodeCommand::Audit(args) => crate::audit::run(args, &instance, output),
        NodeCommand::Report(args) => crate::report::run(args, output),
        NodeCommand::Status => show_status(&instance, output),
        NodeCommand::Reload => {
            let waits = client::job(&instance, &Request::Reconfigure)?;
            if output.json {
                output.document(&serde_json::json!({ "reloaded": true, "waits": waits }))?;
            } else if waits.is_empty() {
                output.text("reloaded")?;
            } else {
                let verb = if waits.len() == 1 { "waits" } else { "wait" };
                output.text(&format!(
                    "reloaded, but {} {verb} for a restart of trielined (no packet is lost)",
                    waits.join(", ")
                ))?;
            }
            Ok(if waits.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        NodeCommand::Detach => detach(&instance, output),
    }
}

/// The daemon's answer about itself; `None` without a daemon. If the daemon does not answer, or if this version does not understand the
/// answer, the command says so and goes on without.
fn reported(instance: &Instance) -> anyhow::Result<Option<Status>> {
    match one(instance, &Request::Status) {
        Ok(answer) => Ok(answer.ok()),
        Err(error @ trieline_router::api::client::Error::NotRoot { .. }) => Err(error.into()),
        Err(error) => {
            eprintln!("trieline: no status from trielined: {error}; going on with its pinned maps");
            Ok(None)
        }
    }
}

fn show_status(instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let status = match reported(instance)? {
        Some(status) => status,
        None => pinned(instance)?,
    };
    let status = status.with_driver_counters();
    if output.json {
        output.document(&status)?;
    } else {
        output.text(&text(&status, output)?)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The status without a daemon.
fn pinned(instance: &Instance) -> anyhow::Result<Status> {
    let pinned = open(instance)?;
    let counters = pinned.counters()?;
    let memory = pinned.memory();
    // A look at the header only: is there an image at all?
    let _ = Reader::new(memory.words())?;
    let ports = pinned.ports()?;
    let modes = pinned.attachments()?;
    let mut names = Names::default();
    let device = |attachment: &trieline_router::Attachment| {
        let port = ports.iter().find(|(ifindex, vlan, _)| *ifindex == attachment.ifindex && vlan.is_none());
        DeviceStatus {
            dev: names.get(attachment.ifindex),
            ifindex: attachment.ifindex,
            mode: attachment.mode.to_string(),
            flags: port.iter().flat_map(|(_, _, port)| port.flags.names()).map(str::to_owned).collect(),
            ..DeviceStatus::default()
        }
    };
    Ok(Status {
        namespace: instance.inode,
        map_type: Some(pinned.map_type()),
        image: ImageStatus { bytes: pinned.image_bytes(), ..ImageStatus::default() },
        devices: modes.iter().map(device).collect(),
        counters: counters.total,
        filters: crate::filter::pinned(&pinned)?,
        after_redirect: read_pinned(&instance.pins()).named(find_name),
        ..Status::default()
    }
    .with_heartbeat(pinned.heartbeat()))
}

fn detach(instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    if is_hidden() {
        return Err(instance::Error::Hidden.into());
    }
    let daemon = reported(instance)?.and_then(|status| status.pid);
    let detached = detach_all(&instance.pins());
    if detached.is_ok() {
        instance.forget()?;
    }
    if let (Ok(_), Some(pid)) = (&detached, daemon) {
        eprintln!(
            "trieline: trielined (process {pid}) still runs, from now on without devices; stop it or restart it"
        );
    }
    match detached {
        Ok(devices) if !output.json => {
            output.text(&format!("detached from {}", count(devices.into(), "device", "devices")))?
        }
        Ok(devices) => output.document(&serde_json::json!({ "detached": devices }))?,
        // It is a success to find nothing to do.
        Err(Error::NotPinned { .. }) if output.json => {
            output.document(&serde_json::json!({ "detached": 0 }))?
        }
        Err(Error::NotPinned { .. }) => output.text("nothing is attached here")?,
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn text(status: &Status, output: &Output) -> Result<String, std::fmt::Error> {
    let mut text = String::new();
    match status.pid {
        Some(pid) => writeln!(
            text,
            "{} trieline {}, process {pid}, up {}",
            output.good("running"),
            status.version,
            uptime(status.uptime_seconds)
        )?,
        None if status.stale => writeln!(
            text,
            "{}: no trielined in this network namespace; XDP passes all packets to the kernel (stale)",
            output.bad("not running")
        )?,
        None => writeln!(
            text,
            "{}: no trielined in this network namespace; its tables are in force",
            output.bad("not running")
        )?,
    }
    if let (true, Some(silent)) = (!status.running || status.stale, status.silent) {
        let limit = match status.max_stale {
            Some(limit) if status.stale => format!("the kernel has taken over: max_stale {}", uptime(limit)),
            Some(limit) => format!("the kernel takes over after {} (max_stale)", uptime(limit)),
            None => "XDP forwards without end (max_stale none)".into(),
        };
        writeln!(text, "{} {} ago; {limit}", output.bold("heartbeat"), uptime(silent))?;
    }
    let image = &status.image;
    let map_type = status.map_type.map_or("of unknown type", |map_type| map_type.name());
    write!(text, "{} {map_type}, {}", output.bold("image"), mebibytes(image.bytes))?;
    if status.running {
        write!(text, ", {} used (peak {})", mebibytes(image.used), mebibytes(image.peak))?;
    }
    writeln!(text)?;
    for family in &status.families {
        let state = match &family.reason {
            None => output.good("forwards"),
            Some(reason) => format!("{} ({reason})", output.bad("left to the kernel")),
        };
        writeln!(
            text,
            "{} {state}: {}, {} local, {}, {}",
            output.bold(&family.family),
            count(family.main as u64, "route", "routes"),
            family.local,
            count(family.prefixes as u64, "prefix", "prefixes"),
            count(family.neighbours as u64, "neighbour", "neighbours")
        )?;
        if family.tables > 0 {
            writeln!(
                text,
                "  {} in {}",
                count(family.others as u64, "other route", "other routes"),
                count(family.tables as u64, "table", "tables")
            )?;
        }
        for punted in &family.punted {
            writeln!(text, "  {} {punted}", output.bad("left to the kernel:"))?;
        }
    }
    for punted in &status.punted {
        writeln!(text, "{} {punted}", output.bold("punted"))?;
    }
    for bypassed in status.bypassed.iter().filter(|bypassed| bypassed.kind != UNLISTED) {
        let what = bypassed.to_string();
        writeln!(
            text,
            "{} {}",
            output.bold("bypassed"),
            if bypassed.passes { output.bad(&what) } else { what }
        )?;
    }
    if status.running {
        let mirror = &status.mirror;
        writeln!(
            text,
            "{} {}, {}, {} unresolved; actions {} of {}",
            output.bold("next hops"),
            count(status.nexthop_groups as u64, "nexthop group", "nexthop groups"),
            count(status.hosts as u64, "host", "hosts"),
            status.unresolved,
            status.actions.used,
            status.actions.limit
        )?;
        if status.actions_refused > 0 {
            let refused = count(status.actions_refused, "time", "times");
            let line = format!(
                "no room for an action ({refused}): the kernel forwards packets of further next hops; the log names what is full"
            );
            writeln!(text, "       {}", output.bad(&line))?;
        }
        writeln!(
            text,
            "{} {} dumped in {:.0} ms, built in {:.0} ms, ready after {:.0} ms",
            output.bold("mirror"),
            count(mirror.routes as u64, "route", "routes"),
            mirror.dump_ms,
            mirror.build_ms,
            mirror.ready_ms
        )?;
        writeln!(
            text,
            "       {} in {} (last {} µs, longest {} µs), {}, {}, {} full",
            count(mirror.messages, "message", "messages"),
            count(mirror.batches, "batch", "batches"),
            mirror.last_batch_us,
            // The daemon leaves the first tables out of the longest, but not out of the last.
            mirror.longest_batch_us.max(mirror.last_batch_us),
            count(status.resyncs, "dump", "dumps"),
            count(status.overruns, "overrun", "overruns"),
            count(mirror.full, "time", "times")
        )?;
    }
    if status.running && (status.audit.rate > 0 || status.audit.full > 0) {
        let audit = &status.audit;
        writeln!(
            text,
            "{} {} a second: {}, {} left to the kernel, {}; {} repaired",
            output.bold("audit"),
            audit.rate,
            count(audit.samples, "address", "addresses"),
            audit.passed,
            count(audit.differences, "difference", "differences"),
            count(audit.repairs, "time", "times")
        )?;
        if let Some(last) = &audit.last {
            writeln!(text, "       {} {last}", output.bad("last:"))?;
        }
    }
    for device in &status.devices {
        let vlan = device.vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
        writeln!(
            text,
            "{} {}{vlan} {} [{}]",
            output.bold("dev"),
            device.dev,
            if device.mode.is_empty() { "detached" } else { &device.mode },
            device.flags.join(" ")
        )?;
        if let Some(hint) = &device.hint {
            writeln!(text, "       hint: {hint}")?;
        }
        for counter in &device.counters {
            writeln!(text, "       {}", line(counter))?;
        }
    }
    for dev in &status.missing {
        let waits = output.bad("missing: no such device; trielined attaches as soon as it appears");
        writeln!(text, "{} {dev} {waits}", output.bold("dev"))?;
    }
    for refused in &status.refused {
        let waits = output.bad(&format!(
            "refused: {}; the kernel forwards its packets, and trielined tries again",
            refused.reason
        ));
        writeln!(text, "{} {} {waits}", output.bold("dev"), refused.dev)?;
    }
    for problem in &status.problems {
        writeln!(text, "{} {}", output.bold("problem"), output.bad(problem))?;
    }
    for filter in &status.filters {
        writeln!(text, "{} {}", output.bold("filter"), crate::filter::line(filter))?;
    }
    let counted: Vec<_> = status.counters.iter().filter(|counter| counter.packets > 0).collect();
    writeln!(text, "{}{}", output.bold("packets"), if counted.is_empty() { " none yet" } else { "" })?;
    for counter in counted {
        writeln!(text, "       {}", line(counter))?;
    }
    after_redirect(&status.after_redirect, output, &mut text)?;
    Ok(text)
}

/// The fates of the forwarded packets.
fn after_redirect(counts: &AfterRedirect, output: &Output, text: &mut String) -> std::fmt::Result {
    let former = counts.former.as_ref().map(|former| (former, "former devices"));
    let devices = counts.devices.iter().map(|device| (device, device.name())).chain(former);
    let mut lines = Vec::new();
    for (device, dev) in devices {
        lines.extend(device.sent.map(|sent| format!("{sent:>14} sent    {dev}")));
        let drops = device.drops.iter().filter(|drop| drop.packets > 0);
        lines.extend(
            drops.map(|drop| output.bad(&format!("{:>14} drop    {dev} {}", drop.packets, drop.reason))),
        );
    }
    lines.extend(counts.unknown.as_ref().map(|unknown| output.bad(&format!("cannot know: {unknown}"))));
    let by = match counts.source {
        Some(Source::Drivers) => " as the drivers count, packets of other programs included",
        _ if lines.is_empty() => " none yet",
        _ => "",
    };
    writeln!(text, "{}{by}", output.bold("after redirect"))?;
    lines.iter().try_for_each(|line| writeln!(text, "       {line}"))
}

fn line(counter: &VerdictCount) -> String {
    format!("{:>14} {:<7} {}", counter.packets, counter.kind, counter.name)
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}
