//! The daemon `trielined`: mirrors the kernel's routes into XDP until it is stopped; forwarding stays.

use crate::config::{
    File, Size, check_devices, check_image, map_types, parse_device, parse_next_hops, receive_buffer,
};
use crate::log;
use anyhow::{Context, anyhow, bail};
use clap::Parser;
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::collections::VecDeque;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use trieline_router::daemon::veth::{CUTS, cuts};
use trieline_router::daemon::{Command, Config, ControlSource, Daemon};
use trieline_router::{AttachMode, ImageMapType};

/// Read when no other file is named and it exists.
const FILE: &str = "/etc/trieline/trielined.toml";

/// Time between two notes to systemd's watchdog.
const WATCHDOG: Duration = Duration::from_secs(1);

/// The name of the program, and of the link to `trieline` in packages.
pub const NAME: &str = "trielined";

/// The end of the help.
const AFTER_HELP: &str = "\
SIZE is a number of bytes, or a number with K, M or G, such as 256M.
It needs root (--check does not). Exit codes: 0 stopped, or the configuration is good;
1 failed, or --check found it wrong; 2 the command line is wrong; 78 the configuration is wrong, so systemd does not try again.";

/// The exit code of a start with a wrong configuration, as in sysexits.h.
const WRONG_CONFIGURATION: u8 = 78;

/// Mirror the kernel's routes into XDP
///
/// After trielined stops, forwarding stays on; `trieline node detach` removes it.
#[derive(Debug, Clone, Parser)]
#[command(name = NAME, version, after_help = AFTER_HELP)]
struct Cli {
    /// Forward between this device and others; repeatable
    #[arg(long = "dev", value_name = "DEVICE", value_parser = parse_device)]
    devices: Vec<String>,
    /// Run in this network namespace: a name, or a path
    #[arg(short = 'n', long = "netns", value_name = "NETNS")]
    netns: Option<String>,
    /// Read this file [default: /etc/trieline/trielined.toml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Attach in generic mode
    ///
    /// For devices without native XDP, and for veths whose containers mostly speak TCP to each other.
    #[arg(long)]
    generic: bool,
    /// Keep tables in this map type [default: arena if possible]
    #[arg(long, value_parser = map_types())]
    map_type: Option<ImageMapType>,
    /// Limit the tables' memory to SIZE [default: 256M]
    ///
    /// A power of two from 1M to 4G (512M with --map-type array). While trielined rebuilds the tables, it must hold them twice.
    #[arg(long, value_name = "SIZE")]
    image: Option<Size>,
    /// Limit distinct next hops [default: 65536]
    #[arg(long, value_name = "COUNT", value_parser = parse_next_hops)]
    next_hops: Option<u32>,
    /// Set the receive buffer for kernel changes [default: 32M]
    #[arg(long, value_name = "SIZE")]
    receive_buffer: Option<Size>,
    /// Start although netfilter has rules for forwarded packets
    ///
    /// Packets that XDP forwards bypass those rules.
    #[arg(long)]
    bypass_netfilter: bool,
    /// Check the configuration and the files it names, and end
    #[arg(long)]
    check: bool,
    /// Log more
    #[arg(short, long)]
    verbose: bool,
}

impl Cli {
    /// The file to read, if any.
    fn path(&self) -> Option<&Path> {
        let usual = || Some(Path::new(FILE)).filter(|path| path.exists());
        self.config.as_deref().or_else(usual)
    }

    /// Flags and file together.
    fn merged(&self) -> anyhow::Result<Config> {
        let file = self.path().map(File::read).transpose()?.unwrap_or_default();
        check_devices(&self.devices).map_err(|error| anyhow!("--dev: {error}"))?;
        // Names of files in the file count from its folder on.
        let folder = self.path().and_then(Path::parent).unwrap_or(Path::new("."));
        let config = file.config(folder);
        let map_type = self.map_type.or(config.map_type);
        let image_bytes = self.image.map_or(config.image_bytes, |size| size.0);
        // The file by itself has been checked; these checks are for flags and file together.
        check_image(Size(image_bytes), map_type)
            .map_err(|error| anyhow!("--image and --map-type: {error}"))?;
        let devices = if self.devices.is_empty() { config.devices } else { self.devices.clone() };
        if let (Some(path), Some(error)) = (self.path(), config.tenants.stranger(&devices)) {
            bail!("{}: {error}", path.display());
        }
        Ok(Config {
            devices,
            mode: if self.generic { AttachMode::Generic } else { config.mode },
            map_type,
            image_bytes,
            actions: self.next_hops.unwrap_or(config.actions),
            receive_buffer: self.receive_buffer.map_or(config.receive_buffer, receive_buffer),
            bypass_netfilter: self.bypass_netfilter || config.bypass_netfilter,
            ..config
        })
    }
}

/// Signals, as commands to the daemon.
struct Signals {
    pipe: UnixStream,
    cli: Cli,
    queue: VecDeque<i32>,
    received: std::sync::Arc<std::sync::Mutex<VecDeque<i32>>>,
    reloading: bool,
    /// When systemd was last notified that the loop goes on.
    notified: Option<Instant>,
    /// The state that the supervisor has.
    state: String,
    supervisor: Supervisor,
}

impl Signals {
    /// Catches signals from now on.
    fn catch(cli: Cli) -> anyhow::Result<Self> {
        let (pipe, write) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let received = std::sync::Arc::default();
        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT, SIGHUP])?;
        let theirs: std::sync::Arc<std::sync::Mutex<VecDeque<i32>>> = std::sync::Arc::clone(&received);
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for signal in signals.forever() {
                theirs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_back(signal);
                // A full pipe wakes as well as one byte more would.
                let _ = std::io::Write::write(&mut &write, &[0]);
            }
        })?;
        let supervisor = Supervisor::start()?;
        Ok(Self {
            pipe,
            cli,
            queue: VecDeque::new(),
            received,
            reloading: false,
            notified: None,
            state: String::new(),
            supervisor,
        })
    }
}

/// Notifications to the supervisor (systemd), sent by a thread of their own: a supervisor that does not read its socket must not stop
/// the daemon.
struct Supervisor(SyncSender<Notice>);

/// One notification.
enum Notice {
    /// The state of the process.
    Process(NotifyState<'static>),
    /// The daemon's state, for `systemctl status`.
    State(String),
}

impl Supervisor {
    fn start() -> std::io::Result<Self> {
        let (sender, notices) = sync_channel(16);
        std::thread::Builder::new().name("notify".into()).spawn(move || {
            for notice in notices {
                // This does nothing without systemd.
                let _ = match &notice {
                    Notice::Process(state) => sd_notify::notify(std::slice::from_ref(state)),
                    Notice::State(text) => sd_notify::notify(&[NotifyState::Status(text)]),
                };
            }
        })?;
        Ok(Self(sender))
    }

    /// If the supervisor does not read, the notification is left out.
    fn send(&self, state: NotifyState<'static>) {
        let _ = self.0.try_send(Notice::Process(state));
    }

    /// The same for the daemon's state; whether it is not left out.
    fn send_state(&self, state: &str) -> bool {
        self.0.try_send(Notice::State(state.to_owned())).is_ok()
    }
}

impl ControlSource for Signals {
    fn wake(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    fn command(&mut self) -> Option<Command> {
        if std::mem::take(&mut self.reloading) {
            // The daemon asks again once the last command is done.
            self.supervisor.send(NotifyState::Ready);
        }
        let mut bytes = [0; 64];
        while self.pipe.read(&mut bytes).is_ok_and(|len| len == bytes.len()) {}
        self.queue.append(&mut self.received.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        match self.queue.pop_front()? {
            SIGHUP => {
                // This does nothing without systemd.
                self.supervisor.send(NotifyState::Reloading);
                self.reloading = true;
                Some(Command::Reload)
            }
            _ => Some(Command::Stop),
        }
    }

    fn alive(&mut self) {
        log::write_left_out(false);
        if self.notified.is_none_or(|at| at.elapsed() >= WATCHDOG) {
            self.notified = Some(Instant::now());
            // This does nothing without systemd or without a watchdog.
            self.supervisor.send(NotifyState::Watchdog);
        }
    }

    fn state(&mut self, state: String) {
        // The daemon calls this once a second, so a route that flaps brings no more notifications.
        if state != self.state && self.supervisor.send_state(&state) {
            self.state = state;
        }
    }

    fn configuration(&mut self) -> Result<Config, String> {
        match self.cli.merged() {
            // So looks a file that an editor has just begun to write.
            Ok(config) if config.devices.is_empty() => Err("no devices".into()),
            Ok(config) => Ok(config),
            Err(error) => Err(trieline_terminal::error_text(&error)),
        }
    }
}

/// Notes of `--check` on devices, which are not mistakes: one that is not there, one that a native program makes slower. None where the
/// namespace cannot be looked into.
fn note_devices(cli: &Cli, config: &Config) {
    if let Some(netns) = &cli.netns
        && trieline_router::api::instance::enter_namespace(netns).is_err()
    {
        return;
    }
    let Ok(links) = trieline_router::kernel::link::list() else { return };
    for device in &config.devices {
        match links.iter().find(|link| link.is_named(device)) {
            None => eprintln!(
                "trielined: note: {device}: no such device in this network namespace; trielined attaches as soon as it appears"
            ),
            Some(link) if cuts(link, config.mode) => eprintln!("trielined: note: {device}: {CUTS}"),
            Some(_) => {}
        }
    }
}

/// The configuration, with a device at least.
fn configuration(cli: &Cli) -> anyhow::Result<Config> {
    let config = cli.merged()?;
    if config.devices.is_empty() {
        let expected = "expected --dev DEVICE, or devices = [\"DEVICE\"] in the configuration file";
        match cli.path() {
            Some(path) => bail!("{}: no devices; {expected}", path.display()),
            None => bail!("no devices; {expected} ({FILE} does not exist)"),
        }
    }
    Ok(config)
}

/// While a process has one thread, the kernel enlarges its table of descriptors at once. Later it waits for a grace period of RCU each
/// time: at start that would take 10 to 20 ms.
fn make_room_for_descriptors() {
    // Closed again; the room stays. A low limit of open files refuses it, which costs that time only.
    drop(rustix::io::fcntl_dupfd_cloexec(std::io::stderr(), 255));
}

fn run(cli: &Cli, config: Config) -> anyhow::Result<()> {
    if cli.check {
        cli.path().map_or(Ok(()), File::check_files)?;
        note_devices(cli, &config);
        let checked = cli.path().unwrap_or(Path::new("command line")).display();
        let mut error_text = format!("{checked}: ok\n");
        if rustix::process::geteuid().is_root() {
            if let Some(netns) = &cli.netns {
                trieline_router::api::instance::enter_namespace(netns)?;
            }
            if let Some(differs) = config.replaced()? {
                error_text += &format!(
                    "{differs}: a start of trielined replaces the tables in force; no packet is lost, all counters start at 0\n"
                );
            }
        }
        let mut out = std::io::stdout().lock();
        return std::io::Write::write_all(&mut out, error_text.as_bytes())
            .context("cannot write to standard output");
    }
    if let Some(netns) = &cli.netns {
        trieline_router::api::instance::enter_namespace(netns)?;
    }
    make_room_for_descriptors();
    let mut signals = Signals::catch(cli.clone()).context("cannot catch signals")?;
    let mut daemon = Daemon::start(config)?;
    signals.state(daemon.state());
    signals.supervisor.send(NotifyState::Ready);
    daemon.run(&mut signals)?;
    signals.supervisor.send(NotifyState::Stopping);
    if daemon.is_detached() {
        tracing::info!("stopped; trielined was detached before, the kernel forwards");
    } else {
        tracing::info!("stopped; forwarding stays on until `trieline node detach`");
    }
    Ok(())
}

/// The daemon, from its command line to its exit code.
pub fn main() -> ExitCode {
    let cli: Cli = trieline_terminal::parse(&[]);
    // Scripts and people find the daemon by this name, whatever name the program was called by.
    let _ = rustix::thread::set_name(c"trielined");
    // Sockets, locks and samples are root's alone, whatever the caller's mask.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    log::begin(cli.verbose);
    let wrong = if cli.check { ExitCode::FAILURE } else { ExitCode::from(WRONG_CONFIGURATION) };
    let (ended, failed) = match configuration(&cli) {
        Ok(config) => (run(&cli, config), ExitCode::FAILURE),
        Err(error) => (Err(error), wrong),
    };
    log::write_left_out(true);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{NAME}: {}", trieline_terminal::error_text(&error));
            failed
        }
    }
}
