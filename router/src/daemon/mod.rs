//! The daemon: takes the kernel's state over, follows it, answers commands.

mod audit;
mod bypass;
mod config;
mod error;
mod follow;
mod heartbeat;
pub mod ports;
pub mod rehearsal;
mod reload;
mod serve;
mod socket;
mod source;
mod standing;
mod start_check;
mod state;
mod tick;
pub mod veth;
mod work;

use crate::api::control::Client;
use crate::api::instance::{self, Instance};
use crate::bypass::scan::{Probes, Watch};
use crate::daemon::ports::Ports;
use crate::dataplane::Dataplane;
use crate::drops::Drops;
use crate::fib::publish::Publisher;
use crate::filter::Filters;
use crate::kernel::netdev::Features;
use crate::kernel::socket::Netlink;
use crate::rib::mirror::Mirror;
use crate::rib::resync::ATTEMPTS;
use crate::sid_hook::{self, SidHooks};
use crate::xdp::options::Options;
use config::Pending;
pub use config::{AUDIT_RATE, AUDIT_RATE_MOST, Config};
pub use error::Error;
use error::{DETACHED, is_out_of_memory};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket::Listener;
use source::{Counts, Source, milliseconds};
use standing::Standing;
use start_check::check_at_start;
use std::collections::BTreeSet;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};
use work::{Audit, Work};

/// Multicast groups of the route family (`RTNLGRP_*`): links, neighbours, addresses, routes, rules, forwarding settings,
/// next hop objects.
const GROUPS: [u32; 11] = [1, 3, 5, 9, 7, 11, 8, 19, 24, 25, 32];

/// A burst of changes is published at the latest after this time.
const BATCH: Duration = Duration::from_millis(5);
/// Unannounced settings, stale neighbours.
const TICK: Duration = Duration::from_secs(1);
/// Looking at what the kernel does not announce takes the time of all devices. At most one part in so many of a processor's time goes
/// into it, but it is done at the latest after `POLL_AT_LEAST`.
const POLL_SHARE: u32 = 250;
/// See `POLL_SHARE`.
const POLL_AT_LEAST: Duration = Duration::from_secs(5);
/// The daemon resolves so many next hops without a MAC address at a time.
const RESOLVED: usize = 1000;
/// A grace period takes about this long.
const GRACE: Duration = Duration::from_millis(20);

/// Commands to the daemon from outside.
#[derive(Debug)]
pub enum Command {
    /// End; forwarding stays.
    Stop,
    /// Follow the configuration as it is now. Settings that cannot change while trielined runs are ignored.
    Reload,
}

/// How the daemon hears from outside.
pub trait ControlSource {
    /// Readable when there may be a command.
    fn wake(&self) -> BorrowedFd<'_>;
    /// The next command.
    fn command(&mut self) -> Option<Command>;
    /// The configuration as it is now, or what is wrong with it.
    fn configuration(&mut self) -> Result<Config, String>;
    /// Called in each round of the daemon's loop, at least once a second.
    fn alive(&mut self) {}
    /// Called once a second with the daemon's state in one line.
    fn state(&mut self, _state: String) {}
}

/// A running daemon.
pub struct Daemon {
    instance: Instance,
    _claim: File,
    started: Instant,
    events: Netlink,
    /// Hears of netfilter, if this kernel has nftables.
    watch: Option<Watch>,
    /// Hears of devices' XDP features, if this kernel tells them.
    features: Option<Features>,
    probes: Probes,
    requests: Netlink,
    /// For dumps of routes, which other requests come between.
    dumps: Netlink,
    dataplane: Dataplane,
    drops: Drops,
    mirror: Mirror,
    publisher: Publisher,
    ports: Ports,
    filters: Filters,
    sid_hooks: SidHooks,
    /// A new configuration, until its filters are there.
    pending: Option<Pending>,
    listeners: [Listener; 2],
    clients: Vec<(Client, Option<Work>)>,
    /// Compares the kernel's routes with what packets meet.
    audit: Audit,
    /// No connections are taken before: the last one could not be.
    accept_after: Instant,
    counts: Counts,
    limits: Config,
    ticked: Instant,
    /// When settings that the kernel does not announce are looked at next.
    poll_at: Instant,
    /// Stale neighbours at the last tick: those whose actions were used since are in use.
    idle: BTreeSet<(IpAddr, u32)>,
    waiting: bool,
    /// The pins are gone, which has been logged.
    detached: bool,
    /// The last heartbeat.
    beaten: Instant,
    /// It failed, which has been logged.
    faint: bool,
    /// Why the tables are those of before, not as the configuration asks.
    kept: Option<String>,
    /// Errors that last.
    standing: Standing,
    /// Why the NEXT-C-SIDs are not written.
    csids: Option<String>,
}

impl std::fmt::Debug for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Daemon").field("instance", &self.instance).finish_non_exhaustive()
    }
}

impl Daemon {
    /// Takes the network namespace of this thread over: when this returns, packets are forwarded by the kernel's routes.
    ///
    /// Pins of an earlier daemon forward meanwhile. When this fails, and there was none, nothing is left behind.
    ///
    /// New tables of another size or map type may not find the memory to take the place of those that forward. Then the daemon follows
    /// the kernel with the old ones. It cannot where another version made them: where the kernel may have all packets meanwhile, the old
    /// ones go first then.
    pub fn start(config: Config) -> Result<Self, Error> {
        let instance = Instance::current()?;
        let options = config.options(&instance);
        let error = match Self::start_with(config.clone(), instance.clone(), &options) {
            Err(error) if !matches!(error, Error::Instance(_)) => error,
            done => return done,
        };
        if let Ok(Some(pinned)) = crate::xdp::options::pinned_options(&options) {
            tracing::error!("new tables failed: {error}; trielined goes on with the tables in force");
            let mut daemon = Self::start_with(config, instance, &pinned)?;
            daemon.kept = Some(error.to_string());
            return Ok(daemon);
        }
        let differs = || matches!(crate::xdp::options::difference(&options), Ok(Some(_)));
        if !is_out_of_memory(&error) || config.asks_more_than_the_kernel() || !differs() {
            return Err(error);
        }
        tracing::error!(
            "new tables failed: {error}; trielined removes the old ones first, and the kernel forwards alone meanwhile"
        );
        crate::xdp::pins::detach_all(&instance.pins())?;
        Self::start_with(config, instance, &options)
    }

    fn start_with(config: Config, instance: Instance, options: &Options) -> Result<Self, Error> {
        let started = Instant::now();
        let claim = match instance.claim() {
            Ok(claim) => claim,
            Err(error @ (instance::Error::File { .. } | instance::Error::Foreign { .. })) => {
                // Without root nothing works; then say what is missing rather than which file could not be written.
                let missing = crate::xdp::probe::probe().missing_capabilities;
                if missing.is_empty() {
                    return Err(error.into());
                }
                let permission = trieline_bpf::Error::Permission {
                    operation: error.to_string(),
                    missing: missing.join(", "),
                };
                return Err(crate::xdp::error::Error::from(permission).into());
            }
            Err(error) => return Err(error.into()),
        };
        let missing = trieline_bpf::probe::missing_capabilities();
        if !missing.is_empty() {
            let operation = "cannot use BPF and netlink".into();
            let permission = trieline_bpf::Error::Permission { operation, missing: missing.join(", ") };
            return Err(crate::xdp::error::Error::from(permission).into());
        }
        let mut events = Netlink::route()?;
        events.subscribe(&GROUPS, config.receive_buffer)?;
        let watch = Watch::start(config.receive_buffer)?;
        let features = Features::start(config.receive_buffer)?;
        let mut requests = Netlink::route()?;
        let mut mirror = Mirror::default();
        mirror.kernel.settings = config.settings();
        mirror.dump_kernel_state(&mut requests)?;
        instance::refuse_realtime()?;
        instance::ensure_bpffs()?;
        instance::secure_pins(&instance.pins())?;
        match crate::xdp::pins::sweep(&instance.pins()) {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "removed pins of network namespaces that are gone"),
            Err(error) => {
                tracing::warn!(%error, "cannot remove pins of network namespaces that are gone; trielined goes on")
            }
        }
        if let Err(error) = instance.sweep() {
            tracing::warn!(%error, "cannot remove files of network namespaces that are gone; trielined goes on");
        }
        let (mut dumps, mut counts) = (Netlink::route()?, Counts::default());
        // The verifier takes longer than the dump of a full table. Each has a CPU of its own if there are two.
        let mut dump = || {
            let (events, requests, dumps) = (&mut events, &mut requests, &mut dumps);
            Source { events, requests, dumps, mirror: &mut mirror, counts: &mut counts }.dump_first()
        };
        let (opened, dumped) = std::thread::scope(|scope| {
            let dumping = std::thread::Builder::new().name("dump".into()).spawn_scoped(scope, &mut dump);
            let opened = Dataplane::open(options);
            let joined = |dumping: ScopedJoinHandle<'_, _>| {
                dumping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            (opened, dumping.map(joined))
        });
        let mut dataplane = opened.inspect_err(|_| {
            // It is empty only if this start has made it.
            let _ = std::fs::remove_dir(instance.pins());
        })?;
        // No more threads: one after the other.
        let dumped = dumped.unwrap_or_else(|_| dump());
        let (fresh, aside) = (!dataplane.reopened() && !dataplane.supersedes(), dataplane.supersedes());
        let mut probes = Probes::default();
        let made = Publisher::new(&mut dataplane).map_err(Error::from).and_then(|mut publisher| {
            dumped?;
            let mut ports = Ports::new(config.devices.clone(), config.mode, &dataplane)?;
            // The pins forward by tables that only a daemon follows: trielined starts without a missing device.
            for dev in ports.missing(&mirror.kernel) {
                tracing::warn!(
                    dev,
                    "no such device in this network namespace; trielined attaches as soon as it appears"
                );
            }
            let (mut sid_hooks, former) = (SidHooks::new(dataplane.pins()), dataplane.former_sid_hooks());
            let numbers = sid_hooks.numbers(&config.sid_hooks, dataplane.sid_hooks())?;
            let lists = sid_hook::lists(&config.sid_hooks, &numbers);
            let bound = dataplane.sid_hooks();
            let prepared = if fresh {
                sid_hooks.prepare(config.sid_hooks.clone(), &numbers, bound)?
            } else {
                sid_hooks.prepare_again(config.sid_hooks.clone(), &numbers, bound, former.as_ref())?
            };
            let preceded = sid_hooks.replace_filters(&prepared, bound);
            let (image, filters) = (publisher.image(), dataplane.filters());
            let filters = preceded
                .map_err(Error::from)
                .and_then(|()| Ok(Filters::start(config.filters.clone(), lists, image, filters)?));
            let filters = match filters {
                Ok(filters) => filters,
                Err(error) => {
                    sid_hooks.discard(prepared, dataplane.sid_hooks());
                    return Err(error);
                }
            };
            let mut grace = dataplane.grace();
            sid_hooks.commit(prepared, dataplane.sid_hooks(), &mut grace)?;
            (ports.filters, ports.sid_hooks) = (filters.any(), sid_hooks.any());
            check_at_start(&mut mirror, &mut probes, &mut requests, &ports)?;
            let listeners = [Listener::full(&instance)?, Listener::read(&instance)?];
            Ok((publisher, ports, filters, sid_hooks, listeners))
        });
        // Runs after the last reference to the dataplane is dropped.
        let undo = |error: Error| {
            // The error that led here is the one to tell.
            if fresh {
                let _ = crate::xdp::pins::detach_all(&instance.pins());
            } else if aside {
                let _ = crate::xdp::pins::abandon(&instance.pins());
            }
            error
        };
        let (publisher, ports, filters, sid_hooks, listeners) = match made {
            Ok(made) => made,
            Err(error) => {
                drop(dataplane);
                return Err(undo(error));
            }
        };
        let now = Instant::now();
        let audit = Audit::new(config.audit_rate)?;
        let mut daemon = Self {
            instance: instance.clone(),
            _claim: claim,
            started,
            events,
            watch,
            features,
            probes,
            requests,
            dumps,
            dataplane,
            drops: Drops::default(),
            mirror,
            publisher,
            ports,
            filters,
            sid_hooks,
            pending: None,
            listeners,
            clients: Vec::new(),
            audit,
            accept_after: now,
            counts,
            limits: config,
            ticked: now,
            poll_at: now,
            idle: BTreeSet::new(),
            waiting: false,
            detached: false,
            beaten: now,
            faint: false,
            kept: None,
            standing: Standing::default(),
            csids: None,
        };
        let (pins, grace) = (daemon.dataplane.pins().to_owned(), daemon.dataplane.grace());
        let start_drops = || Drops::start(&pins, grace.clone());
        let taken = std::thread::scope(|scope| {
            let starting = std::thread::Builder::new().name("drops".into()).spawn_scoped(scope, start_drops);
            daemon.take_over(|| match starting {
                Ok(starting) => starting.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                // No more threads.
                Err(_) => start_drops(),
            })
        });
        match taken {
            Ok(()) => Ok(daemon),
            Err(error) => {
                drop(daemon);
                Err(undo(error))
            }
        }
    }

    /// Attached first: many drivers take redirected frames only while a program is attached. A new device's packets pass until its
    /// port is set. Then tables, ports. `drops` waits for the counters of drops, which must be pinned before the pins change places.
    fn take_over(&mut self, drops: impl FnOnce() -> Drops) -> Result<(), Error> {
        let kernel = &mut self.mirror.kernel;
        kernel.settings.tenants.apply(&mut kernel.links);
        self.log_missing_vlans();
        self.mirror.kernel.sysctl = self.sysctl()?;
        self.ports.attach(&self.mirror.kernel, &mut self.dataplane)?;
        self.open_egress();
        self.ports.freeze(&self.mirror.kernel, &mut self.dataplane)?;
        self.drops = drops();
        if let Some(why) = self.drops.unknown() {
            tracing::warn!("drops after redirect are not all counted: {why}; trielined goes on");
        }
        self.follow_drops();
        if !self.read_changes(TICK)? {
            self.mirror.resync.lose_routes();
        }
        for _ in 0..ATTEMPTS {
            if !self.mirror.resync.needs_round() {
                break;
            }
            self.resync()?;
            self.read_changes(BATCH)?;
        }
        let built = Instant::now();
        self.publish();
        // Else the round has built the tables.
        if self.counts.resyncs == 1 {
            self.counts.status.build_ms = milliseconds(built.elapsed());
        }
        let tables = self.tables();
        if self.ports.set(
            &self.mirror.kernel,
            &self.publisher.policies.lookup_ids,
            &mut self.dataplane,
            tables,
        ) {
            self.publisher.release_unused(&self.mirror, self.dataplane.parts().0);
        }
        self.begin_heartbeat()?;
        let supersedes = self.dataplane.supersedes();
        let refused = self.dataplane.take_place()?;
        self.sid_hooks.move_to(self.dataplane.pins());
        self.ports.attach_again(&refused, &self.mirror.kernel, &mut self.dataplane);
        if supersedes {
            // In another mode only now: the tables are filled.
            self.ports.attach(&self.mirror.kernel, &mut self.dataplane)?;
        }
        self.follow_drops();
        if let Err(error) = self.ports.leave_others(&self.mirror.kernel, &mut self.dataplane) {
            tracing::error!(%error, "cannot detach from devices; trielined goes on");
        }
        self.counts.status.ready_ms = milliseconds(self.started.elapsed());
        let (attached, devices) = (self.ports.attached_of(&self.mirror.kernel), self.ports.names.len());
        if attached == 0 {
            tracing::warn!(devices, "no device is attached; the kernel forwards until one of them can be");
        }
        tracing::info!(
            routes = self.mirror.routes(),
            devices = format!("{attached} of {devices}"),
            dump_ms = self.counts.status.dump_ms.round(),
            build_ms = self.counts.status.build_ms.round(),
            ready_ms = self.counts.status.ready_ms.round(),
            map_type = %self.dataplane.map_type(),
            "forwarding"
        );
        self.log_bypass();
        self.log_sid_hooks();
        Ok(())
    }

    /// Which families' tables are as the kernel's.
    fn tables(&self) -> (bool, bool) {
        (self.publisher.v4.is_current(), self.publisher.v6.is_current())
    }

    /// Follows the kernel until a command ends the loop. Forwarding stays on.
    pub fn run(&mut self, control_source: &mut dyn ControlSource) -> Result<(), Error> {
        loop {
            match control_source.command() {
                Some(Command::Stop) => return Ok(()),
                Some(Command::Reload) => match control_source.configuration() {
                    // How it ends is logged.
                    Ok(config) => drop(self.reload(config)),
                    Err(error) => tracing::error!("not reloaded: {error}"),
                },
                None => {}
            }
            self.wait(control_source)?;
            self.read_changes(BATCH)?;
            // Actions that lead to a dead link are wrong by now: nothing slow comes before them.
            self.publish();
            self.read_netfilter_events()?;
            self.read_features();
            if self.mirror.resync.is_due(Instant::now()) {
                self.resync()?;
            }
            if self.ticked.elapsed() >= TICK {
                self.tick();
                control_source.state(self.state());
            }
            self.use_files();
            self.publish();
            self.beat();
            control_source.alive();
            self.audit_samples();
            self.waiting = self.publisher.reclaim(self.dataplane.parts());
            self.serve(control_source);
        }
    }

    /// Whether another program has removed the tables.
    pub fn is_detached(&self) -> bool {
        !self.instance.pins().exists()
    }

    /// Checks that the tables are still there; logs once if they are not.
    fn notice_detached(&mut self) {
        if !self.detached && self.is_detached() {
            self.detached = true;
            tracing::warn!("{DETACHED}");
        }
    }

    /// Sleeps until there is something to do.
    fn wait(&mut self, control_source: &dyn ControlSource) -> Result<(), Error> {
        let now = Instant::now();
        let mut until = self.ticked + TICK;
        if self.waiting {
            until = until.min(now + GRACE);
        }
        if let Some(at) = self.mirror.resync.at() {
            until = until.min(at);
        }
        until = self.audit.at(now).map_or(until, |at| until.min(at));
        let mut timeout = until.saturating_duration_since(now);
        let mut fds = vec![
            PollFd::new(&self.events, PollFlags::IN),
            PollFd::from_borrowed_fd(control_source.wake(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.filters.wake(), PollFlags::IN),
        ];
        fds.extend(self.features.as_ref().map(|features| PollFd::new(features, PollFlags::IN)));
        fds.extend(self.watch.as_ref().map(|watch| PollFd::new(watch, PollFlags::IN)));
        let open = self.listeners.iter().filter(|listener| self.listens(listener.access, now));
        fds.extend(open.map(|listener| PollFd::new(&listener.socket, PollFlags::IN)));
        let first = fds.len();
        for (client, work) in &self.clients {
            let pause =
                work.as_ref().and_then(Work::waits_until).filter(|at| *at > now && !client.has_output());
            let flags = match pause {
                Some(at) => {
                    timeout = timeout.min(at - now);
                    PollFlags::empty()
                }
                None if client.has_output() || work.is_some() => PollFlags::OUT,
                None => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(client.as_fd(), flags));
        }
        if self.mirror.changes.any() {
            timeout = Duration::ZERO;
        }
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(Error::Socket(errno.into())),
        }
        // An answer that is only due later shows nothing of a client that is gone. As long as the client is listed, poll returns at
        // once.
        let gone = PollFlags::HUP | PollFlags::ERR;
        let mut listed =
            fds[first..].iter().map(|fd| fd.revents().intersects(gone)).collect::<Vec<_>>().into_iter();
        self.clients.retain(|(_, work)| !(listed.next().unwrap_or(false) && work.is_some()));
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Later requests fail at once: without the socket, `trieline` knows that no daemon runs.
        let _ = std::fs::remove_file(self.instance.socket());
        let _ = std::fs::remove_file(self.instance.read_socket());
    }
}
