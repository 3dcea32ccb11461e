//! The command `trieline`: `trieline [-j] [-4|-6] [-n NETNS] OBJECT COMMAND`.

mod demo;
mod lab;
mod look;
mod node;
mod output;
mod progress;
mod route;

use clap::{Parser, Subcommand};
use output::Output;
use std::process::ExitCode;

/// Forwarding by longest-prefix match in XDP, mirrored from the kernel's routes
#[derive(Debug, Parser)]
#[command(name = "trieline", version, infer_subcommands = true, arg_required_else_help = true)]
struct Cli {
    /// Print JSON
    #[arg(short, long, global = true)]
    json: bool,
    /// Indent JSON
    #[arg(short, long, global = true)]
    pretty: bool,
    /// Only IPv4
    #[arg(short = '4', global = true, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6
    #[arg(short = '6', global = true)]
    ipv6: bool,
    /// Network namespace: a name of `ip netns`, or a path
    #[arg(short = 'n', long = "netns", global = true, value_name = "NETNS")]
    netns: Option<String>,
    #[command(subcommand)]
    object: Object,
}

#[derive(Debug, Subcommand)]
enum Object {
    /// The daemon and its devices
    #[command(subcommand, infer_subcommands = true)]
    Node(node::NodeCommand),
    /// Mirrored routes
    #[command(subcommand, infer_subcommands = true)]
    Route(route::RouteCommand),
    /// Experiments that measure it
    Lab(lab::LabArgs),
    /// A whole table in the kernel's routes, packets through the kernel and through XDP, and how they compare
    Demo(demo::DemoArgs),
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    let output = Output::new(cli.json, cli.pretty);
    if let Some(netns) = &cli.netns {
        trieline_node::instance::enter_namespace(netns)?;
    }
    match &cli.object {
        Object::Node(command) => node::run(command, &output),
        Object::Route(command) => {
            let family = if cli.ipv4 { Some(4) } else { cli.ipv6.then_some(6) };
            route::run(command, family, &output)
        }
        Object::Lab(args) => lab::run(args, &output),
        Object::Demo(args) => demo::run(args, &output),
    }
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(code) => code,
        Err(error) if output::is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("trieline: {error:#}");
            ExitCode::FAILURE
        }
    }
}
