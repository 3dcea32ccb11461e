//! `trieline-capture`: the capture for Wireshark, as its extcap protocol asks for it (extcap(4), doc/README.extcap of Wireshark).
//!
//! Wireshark runs each program in its folder of extcaps. There, a link of this name leads to `trieline`.

use crate::capture::{self, CaptureArgs};
use crate::client::open;
use anyhow::Context;
use clap::{CommandFactory, Parser};
use std::path::PathBuf;
use std::process::ExitCode;
use trieline_router::SNAP_MAX;
use trieline_router::api::instance::{Instance, enter_namespace};
use trieline_terminal::{Output, usage};

/// The name of the link.
pub const NAME: &str = "trieline-capture";
/// The interface that Wireshark lists.
const INTERFACE: &str = "trieline";

/// The end of the help.
const AFTER_HELP: &str = "\
Link it into a folder of extcaps, which `tshark -G folders` names. Then Wireshark lists the interface `trieline`.
Capturing needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong.";

/// Capture the packets that XDP handles, for Wireshark
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = AFTER_HELP)]
struct Extcap {
    /// List the interfaces
    #[arg(long)]
    extcap_interfaces: bool,
    /// Version of Wireshark
    #[arg(long, value_name = "VERSION", num_args = 0..=1, require_equals = true)]
    extcap_version: Option<Option<String>>,
    /// List the link types of the interface
    #[arg(long)]
    extcap_dlts: bool,
    /// List the options of the interface
    #[arg(long)]
    extcap_config: bool,
    /// Use this interface
    #[arg(long, value_name = "INTERFACE", default_value = INTERFACE, value_parser = [INTERFACE])]
    extcap_interface: String,
    /// Capture only packets of this filter: not possible
    #[arg(long, value_name = "FILTER")]
    extcap_capture_filter: Option<String>,
    /// Capture into the pipe
    #[arg(long)]
    capture: bool,
    /// Write into this pipe
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,
    /// Capture in this network namespace: a name, or a path
    #[arg(long, value_name = "NETNS")]
    netns: Option<String>,
    #[command(flatten)]
    options: capture::Options,
}

/// Sentences of the protocol: the options that Wireshark's dialogue offers.
fn config() -> String {
    format!(
        "\
arg {{number=0}}{{call=--dev}}{{display=Device}}{{type=string}}{{tooltip=Only packets that come in by this device}}
arg {{number=1}}{{call=--sid}}{{display=Destination}}{{type=string}}{{tooltip=Only packets to this outer IPv6 destination}}
arg {{number=2}}{{call=--direction}}{{display=Direction}}{{type=selector}}{{tooltip=Packets as they came in, as they left, or both}}
value {{arg=2}}{{value=both}}{{display=Both}}{{default=true}}
value {{arg=2}}{{value=in}}{{display=As they came in}}{{default=false}}
value {{arg=2}}{{value=out}}{{display=As they left}}{{default=false}}
arg {{number=3}}{{call=--snap}}{{display=Bytes of a frame}}{{type=unsigned}}{{range=14,{SNAP_MAX}}}{{default={SNAP_MAX}}}\
{{tooltip=Bytes that are kept}}
arg {{number=4}}{{call=--rate}}{{display=Packets a second}}{{type=string}}{{tooltip=At most so many}}
arg {{number=5}}{{call=--netns}}{{display=Network namespace}}{{type=string}}{{tooltip=A name, or a path}}
"
    )
}

/// Answers Wireshark.
pub fn run() -> anyhow::Result<ExitCode> {
    let output = Output::new(false, false);
    // Wireshark gives an option without a value where a field of its dialogue is empty.
    let given: Vec<_> = std::env::args_os().collect();
    let args = Extcap::parse_from(given.iter().enumerate().filter_map(|(at, word)| {
        let is_empty = |at: usize| given.get(at).is_some_and(|word| word.is_empty());
        (!is_empty(at) && !is_empty(at + 1)).then_some(word)
    }));
    if args.extcap_interfaces {
        output.text(&format!(
            "extcap {{version={}}}{{help=https://www.wireshark.org/docs/man-pages/extcap.html}}{{display=trieline}}\n\
             interface {{value={INTERFACE}}}{{display=packets that XDP handles}}\n",
            env!("CARGO_PKG_VERSION")
        ))?;
    } else if args.extcap_dlts {
        output.text("dlt {number=1}{name=EN10MB}{display=Ethernet}\n")?;
    } else if args.extcap_config {
        output.text(&config())?;
    } else if args.capture {
        let fifo = args.fifo.ok_or_else(|| usage("no pipe; expected --fifo FILE".into()))?;
        if args.extcap_capture_filter.is_some_and(|filter| !filter.is_empty()) {
            return Err(usage("capture filters are not possible; expected a display filter".into()).into());
        }
        if let Some(netns) = &args.netns {
            enter_namespace(netns)?;
        }
        // The error in Wireshark's window is this one, not that of a pipe.
        drop(open(&Instance::current()?).context("cannot capture")?);
        return capture::run(&CaptureArgs::for_pipe(args.options, fifo), &output);
    } else {
        Extcap::command().print_help()?;
    }
    Ok(ExitCode::SUCCESS)
}
