//! `trieline capture`: the packets that XDP handles, as they come in and as they leave, into a pcap-ng file.

use crate::client::{Names, claim_capture, count, open};
use anyhow::{Context, anyhow, bail};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::fs::File;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trieline_router::api::instance::Instance;
use trieline_router::capture::pcapng::{Direction, Writer};
use trieline_router::{CAPTURE_ALL, Capture, CaptureOptions, SNAP_MAX};
use trieline_terminal::{Output, is_closed_pipe};

/// Ends of the help.
const AFTER_HELP: &str = "\
trieline writes each packet as it came in and, if XDP sent it on, as it left; --direction in or out writes one of the two. \
Both have the verdict as their comment, and the filter's name if a filter dropped or passed the packet.
Ctrl-C ends the capture; trieline then prints how many packets were left out, and writes it into the file's interface statistics. \
Only one capture runs at a time.
It needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong.";

/// Options of `trieline capture`.
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CaptureArgs {
    #[command(flatten)]
    options: Options,
    /// End after so many packets
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Write this file; `-` is standard output
    #[arg(short, long, value_name = "FILE|-")]
    write: PathBuf,
    /// Tell no counts at the end: who reads the pipe takes each line for an error.
    #[arg(skip)]
    silent: bool,
}

impl CaptureArgs {
    /// A capture into a pipe, until a signal.
    pub fn for_pipe(options: Options, pipe: PathBuf) -> Self {
        Self { options, count: None, write: pipe, silent: true }
    }
}

/// The packets that are captured, and how much of each.
#[derive(Debug, Args)]
pub struct Options {
    /// Capture only packets that come in by this device
    #[arg(long, value_name = "DEVICE")]
    dev: Option<String>,
    /// Capture only packets to this outer IPv6 destination
    #[arg(long, value_name = "ADDRESS")]
    sid: Option<Ipv6Addr>,
    /// Write packets only as they came in, or as they left
    #[arg(long, value_name = "DIRECTION", default_value = "both")]
    direction: Way,
    /// Keep so many bytes of each frame
    #[arg(long, value_name = "BYTES", default_value_t = SNAP_MAX, value_parser = clap::value_parser!(u32).range(14..=i64::from(SNAP_MAX)))]
    snap: u32,
    /// Capture at most so many packets a second: 1000, or 1000/s
    #[arg(long, value_name = "PACKETS", value_parser = parse_rate)]
    rate: Option<u32>,
}

/// Which frames of a packet are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    /// As it came in
    In,
    /// As it left, if it left
    Out,
    /// Both
    Both,
}

fn parse_rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    match number.parse() {
        Ok(rate) if rate > 0 => Ok(rate),
        _ => Err(format!("invalid rate {text:?}: expected packets a second, such as 1000/s")),
    }
}

/// Memory of the ring: a few hundred large frames, or 40,000 small ones.
const RING: u32 = 8 << 20;
/// How long a wait for packets is, at most.
const WAIT: Duration = Duration::from_millis(200);

/// Runs the command.
pub fn run(args: &CaptureArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    let pinned = open(&instance)?;
    let ifindex = args.options.dev.as_deref().map(device).transpose()?;
    if let Some((dev, ifindex)) = args.options.dev.as_deref().zip(ifindex)
        && !pinned.attachments()?.iter().any(|attached| attached.ifindex == ifindex)
    {
        bail!(
            "invalid device {dev}: trieline is not attached to it; expected a device of `trieline node status`"
        );
    }
    if args.write == Path::new("-") && std::io::stdout().is_terminal() {
        bail!("-: standard output is a terminal, and a capture no text; expected a file or a pipe");
    }
    let _held = claim_capture(&instance)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).context("cannot catch signals")?;
    }
    let file: Box<dyn Write> = if args.write == Path::new("-") {
        Box::new(std::io::stdout().lock())
    } else {
        Box::new(File::create(&args.write).with_context(|| args.write.display().to_string())?)
    };
    let mut writer = Writer::new(BufWriter::new(file), args.options.snap)?;
    match args.options.direction {
        Way::In => writer.only(Direction::Inbound),
        Way::Out => writer.only(Direction::Outbound),
        Way::Both => {}
    }
    let (rate, ring_bytes) = (args.options.rate, RING);
    let options =
        CaptureOptions { ifindex, sid: args.options.sid, snap: args.options.snap, rate, ring_bytes };
    let mut capture = Capture::start(&instance.pins(), CAPTURE_ALL, &options)?;
    let mut names = Names::default();
    let mut packets = 0;
    let written = loop {
        let is_over = ended.load(Ordering::Relaxed) || args.count.is_some_and(|count| packets >= count);
        let records = if is_over {
            capture.stop();
            capture.rest()?
        } else {
            capture.poll(WAIT)?
        };
        let written = records.into_iter().try_for_each(|record| {
            // The packets asked for, each with what became of it.
            if args.count.is_some_and(|count| record.number > count) {
                return Ok(());
            }
            packets += u64::from(record.verdict.is_some());
            let filter = record.filter.and_then(|counter| pinned.filter_name(counter));
            writer.record(record, filter.as_deref(), &mut |ifindex| names.get(ifindex))
        });
        let written = written.and_then(|()| writer.flush());
        if is_over || written.is_err() {
            break written;
        }
    };
    let counts = capture.counts();
    drop(capture);
    let frames = writer.written();
    let done = written.and_then(|()| writer.finish(counts, &mut |ifindex| names.get(ifindex)).map(drop));
    match done.map_err(anyhow::Error::from) {
        Err(error) if !is_closed_pipe(&error) => {
            return Err(error.context(args.write.display().to_string()));
        }
        _ => {}
    }
    if args.silent {
        return Ok(ExitCode::SUCCESS);
    }
    let line = format!(
        "{} as {}; {} left out for the rate, {} lost for a full buffer",
        count(packets, "packet", "packets"),
        count(frames, "frame", "frames"),
        counts.limited,
        count(counts.lost, "record", "records"),
    );
    if output.json {
        let counts = serde_json::json!({
            "packets": packets, "frames": frames, "limited": counts.limited, "lost": counts.lost,
        });
        eprintln!("{counts}");
    } else {
        eprintln!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of a device of this network namespace.
pub fn device(name: &str) -> anyhow::Result<u32> {
    use rustix::net::{AddressFamily, SocketType, netdevice::name_to_index, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    name_to_index(socket, name).map_err(|_| anyhow!("{name}: no such device in this network namespace"))
}
