//! The command `trieline`: `trieline [-j] [-4|-6] [-n NETNS] OBJECT COMMAND`.

mod addresses;
mod capture;
mod complaint;
mod demo;
mod dissect;
mod draw;
mod engines;
mod filter;
mod lab;
mod look;
mod maps;
mod node;
mod output;
mod progress;
mod route;
mod sid;
mod table;
mod top;
mod trace;
mod traces;
mod tries;

use clap::{Parser, Subcommand};
use output::Output;
use std::process::ExitCode;

/// `lab run engines` says what each structure holds.
#[global_allocator]
static ALLOCATOR: trieline_lab::heap::Counting = trieline_lab::heap::Counting;

/// What every help of a command ends with.
const AFTER_HELP: &str = "\
All commands need root, except `table`, `lab list` and `lab table`.
Exit codes: 0 done; 1 failed, or the answer is no (`route get` without a route, `table diff` with differences);
2 the command line is wrong.";

/// Where the options of all commands stand in a help.
const GLOBAL: &str = "Global options";

/// Forwarding by longest-prefix match in XDP, mirrored from the kernel's routes
#[derive(Debug, Parser)]
#[command(name = "trieline", version, infer_subcommands = true, arg_required_else_help = true, after_help = AFTER_HELP)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true, help_heading = GLOBAL)]
    json: bool,
    /// Indent JSON
    #[arg(long, global = true, help_heading = GLOBAL)]
    pretty: bool,
    /// Only IPv4
    #[arg(short = '4', global = true, help_heading = GLOBAL, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6
    #[arg(short = '6', global = true, help_heading = GLOBAL)]
    ipv6: bool,
    /// Network namespace: a name of `ip netns`, or a path
    #[arg(short = 'n', long = "netns", global = true, help_heading = GLOBAL, value_name = "NETNS")]
    netns: Option<String>,
    #[command(subcommand)]
    object: Object,
}

#[derive(Debug, Subcommand)]
enum Object {
    /// The daemon's state; taking XDP off its devices
    #[command(subcommand, infer_subcommands = true)]
    Node(node::NodeCommand),
    /// Mirrored routes, and what happens to packets to an address
    #[command(subcommand, infer_subcommands = true)]
    Route(route::RouteCommand),
    /// What packets are asked before they are routed: sets of prefixes, what they matched, reading them anew
    #[command(subcommand, infer_subcommands = true)]
    Filter(filter::FilterCommand),
    /// The packets that XDP handles, as they come in and as they leave, into a pcap-ng file
    Capture(capture::CaptureArgs),
    /// SRv6 SIDs: behaviours, packets, and functions bound to them
    #[command(subcommand, infer_subcommands = true)]
    Sid(sid::SidCommand),
    /// Packets a second by device, verdict, filter and SID, live
    Top(top::TopArgs),
    /// Prefix tables in files: prefix lists, `ip route`, MRT dumps, images
    #[command(subcommand, infer_subcommands = true)]
    Table(table::TableCommand),
    /// Experiments that re-measure trieline's figures
    Lab(lab::LabArgs),
    /// Where a message's time goes in unmodified processes, with the tracer's own cost and losses
    Trace(Box<trace::TraceArgs>),
    /// A whole table in the kernel's routes, packets through the kernel and through XDP, and how they compare
    Demo(demo::DemoArgs),
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let output = Output::new(cli.json, cli.pretty);
    if let Some(netns) = &cli.netns {
        trieline_node::instance::enter_namespace(netns)?;
    }
    let family = if cli.ipv4 { Some(4) } else { cli.ipv6.then_some(6) };
    if family.is_some() && matches!(cli.object, Object::Trace(_)) {
        return Err(
            route::usage("-4 and -6 do not select what is traced: --port and --transport do".into()).into()
        );
    }
    match &cli.object {
        Object::Node(command) => node::run(command, &output),
        Object::Route(command) => route::run(command, family, &output),
        Object::Capture(args) => capture::run(args, &output),
        Object::Top(args) => top::run(args, &output),
        Object::Sid(command) => sid::run(command, &output),
        Object::Filter(command) => filter::run(command, &output),
        Object::Table(command) => table::run(command, family, &output),
        Object::Lab(args) => lab::run(args, &output),
        Object::Trace(args) => trace::run(args, &output),
        Object::Demo(args) => demo::run(args, &output),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        // A command line that is found wrong only here.
        Err(error) if error.is::<clap::Error>() => {
            eprint!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("trieline: {}", complaint::said(&error));
            ExitCode::FAILURE
        }
    }
}
