//! The daemon's side of commands: connections that never make it wait, and its state in numbers.

use super::{ControlSource, DETACHED, Daemon, TICK, map_type};
use crate::control::{Client, Request};
use crate::family::Family;
use crate::hint;
use crate::kernel::{family, route::kind};
use crate::publish::Published;
use crate::rib::Ip;
use crate::route_json;
use crate::route_query::{self, Cursor};
use crate::status::{self, DeviceStatus, FamilyStatus, ImageStatus, Punted, Refused, Status, Usage};
use crate::veth::CUTS;
use rustix::fs::Mode;
use serde_json::{Map, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Instant;
use trieline_dataplane::{Action, Attachment, Counters, PassReason, Port, PortFlags};

/// More connections wait until some are closed.
const CLIENTS: usize = 128;

/// Opens the control socket, for its owner alone from the first moment on.
pub(super) fn listen(path: &Path) -> std::io::Result<UnixListener> {
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Whether the process at the other end may command: one of root's, or of this process' user.
fn may_command(stream: &UnixStream) -> bool {
    let user = rustix::net::sockopt::socket_peercred(stream).map(|peer| peer.uid);
    user.is_ok_and(|user| user.is_root() || user == rustix::process::geteuid())
}

impl Daemon {
    /// Whether connections are taken at present.
    pub(super) fn listens(&self, now: Instant) -> bool {
        self.clients.len() < CLIENTS && self.accept_after <= now
    }

    /// Answers commands as far as that goes without waiting.
    pub(super) fn serve(&mut self, control_source: &mut dyn ControlSource) {
        while self.listens(Instant::now()) {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if may_command(&stream)
                        && let Ok(client) = Client::new(stream)
                    {
                        self.clients.push((client, None));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // No file descriptors, no memory: the connection stays queued, and asking at once would change nothing.
                Err(_) => self.accept_after = Instant::now() + TICK,
            }
        }
        let mut clients = std::mem::take(&mut self.clients);
        clients.retain_mut(|(client, cursor)| self.serve_client(client, cursor, control_source).is_ok());
        self.clients = clients;
    }

    fn serve_client(
        &mut self,
        client: &mut Client,
        cursor: &mut Option<Cursor>,
        control_source: &mut dyn ControlSource,
    ) -> std::io::Result<()> {
        client.write()?;
        if client.has_output() {
            return Ok(());
        }
        if let Some(open) = cursor {
            if open.advance(&self.mirror, &self.publisher.action_index, client)? {
                *cursor = None;
            }
            return client.write();
        }
        match client.request()? {
            Some(Ok(Request::Status)) => client.answer(&self.status())?,
            Some(Ok(Request::Explain { asked })) => {
                client.answer(&route_query::explain(&asked, &self.mirror, &self.publisher))?;
            }
            Some(Ok(Request::Filters)) => client.answer(&self.filters.status(self.dataplane.filters()))?,
            Some(Ok(Request::Sids)) => client.answer(&self.sids())?,
            Some(Ok(Request::SidHooks)) => client.answer(&self.sid_hooks.status())?,
            Some(Ok(Request::Reload { filter })) => match self.filters.reload(filter.as_deref()) {
                Ok(job) => client.answer(&json!({ "job": job }))?,
                Err(error) => client.answer(&json!({ "error": error.to_string() }))?,
            },
            Some(Ok(Request::Reconfigure)) => {
                let job = control_source
                    .configuration()
                    .and_then(|config| self.reload(config).map_err(|error| error.to_string()));
                match job {
                    Ok(job) => client.answer(&json!({ "job": job }))?,
                    Err(error) => client.answer(&json!({ "error": error }))?,
                }
            }
            Some(Ok(Request::Job { job })) => client.answer(&self.filters.job(job))?,
            Some(Ok(request)) => match Cursor::new(&request, &self.mirror) {
                Ok(open) => *cursor = Some(open),
                Err(error) => client.answer(&json!({ "error": error }))?,
            },
            Some(Err(error)) => client.answer(&json!({ "error": error.to_string() }))?,
            None => {}
        }
        client.write()
    }

    fn sids(&self) -> Vec<status::SidCount> {
        let counts = self.dataplane.sid_counters().unwrap_or_default().into_iter();
        let reported = |(id, count): (u32, trieline_dataplane::SidCount)| status::SidCount {
            id,
            packets: count.packets,
            bytes: count.bytes,
            errors: count.errors,
        };
        counts.map(reported).collect()
    }

    fn status(&mut self) -> Status {
        let filters = self.filters.status(self.dataplane.filters());
        let image = self.publisher.image_stats();
        let counters = self.dataplane.counters().ok();
        let modes = self.dataplane.attachments().unwrap_or_default();
        let (nexthop_groups, hosts) = self.publisher.action_index.len();
        let mut mirror = self.counts.status;
        mirror.prefixes_written = self.publisher.counts.prefixes;
        mirror.tables_written = self.publisher.counts.tables;
        mirror.full = self.publisher.counts.full;
        mirror.requests = crate::kernel::socket::sent();
        let ports = self.ports.iter();
        Status {
            running: true,
            version: env!("CARGO_PKG_VERSION").into(),
            pid: Some(std::process::id()),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            namespace: self.instance.inode,
            map_type: map_type(self.dataplane.map_type()).into(),
            image: ImageStatus {
                bytes: image.size,
                used: image.used,
                limbo: image.limbo,
                peak: image.peak,
                claimed: image.claimed,
            },
            devices: ports.map(|(key, port)| self.device(*key, port, &modes, counters.as_ref())).collect(),
            missing: self.ports.missing(&self.mirror.kernel).map(str::to_owned).collect(),
            refused: self
                .ports
                .refused()
                .iter()
                .map(|(dev, reason)| Refused { dev: dev.clone(), reason: reason.clone() })
                .collect(),
            problems: self.problems(),
            filters,
            families: vec![
                self.family("inet", &self.mirror.v4, &self.publisher.v4),
                self.family("inet6", &self.mirror.v6, &self.publisher.v6),
            ],
            nexthop_groups,
            hosts,
            unresolved: self.publisher.action_index.unresolved(|path| {
                let path = self.mirror.nhgs.get(path);
                path.is_some_and(|path| {
                    path.hops.iter().any(|hop| hop.gateway.is_some() || hop.encap.is_some())
                })
            }),
            actions: Usage { used: (nexthop_groups + hosts + 2) as u64, limit: self.limits.actions.into() },
            actions_refused: self.publisher.action_index.refused,
            punted: self.punted(),
            bypassed: self.mirror.kernel.bypass.bypassed(&self.mirror.kernel),
            mirror,
            overruns: self.counts.overruns,
            resyncs: self.counts.resyncs,
            counters: counters.as_ref().map(|counters| status::counters(&counters.total)).unwrap_or_default(),
            ..Status::default()
        }
        .with_heartbeat(self.dataplane.heartbeat())
    }

    /// Deviations from the configuration that trielined tries to mend again.
    fn problems(&self) -> Vec<String> {
        let kept = self.kept.iter().map(|why| {
            format!("the tables have the size and map type of before (new ones: {why}); restart trielined to try again")
        });
        let outdated = self.dataplane.outdated().iter().map(|ifindex| {
            let name = self.mirror.kernel.links.get(ifindex).map_or("", |link| link.name.as_str());
            format!("device {name} ({ifindex}) refused this version's program and runs the one of before; trielined tries again every second")
        });
        let csids = self.csids.iter().map(|why| {
            format!("NEXT-C-SIDs not written: {why}; SID hooks may not see each packet; trielined tries again every second")
        });
        kept.chain(outdated).chain(csids).chain(self.sid_hooks.problems().map(str::to_owned)).collect()
    }

    /// Paths that only the kernel can follow, by what they do.
    fn punted(&self) -> Vec<Punted> {
        /// Verdict, what it is, device, hint.
        type Kind = (&'static str, String, Option<String>, Option<String>);
        let mut punted: BTreeMap<Kind, usize> = BTreeMap::new();
        for (id, path) in self.mirror.nhgs.iter() {
            let reason = match self.publisher.action_index.action(id) {
                Some(Action::Pass(reason)) => reason,
                // No action is made for them: their prefixes are the kernel's.
                None if path.selects_more() => &PassReason::Unsupported,
                _ => continue,
            };
            let dev = match reason {
                PassReason::NoDevice | PassReason::NoXdpXmit | PassReason::NoCarrier => {
                    path.hops.first().map(|hop| self.mirror.kernel.name(hop.ifindex))
                }
                PassReason::Unsupported | PassReason::TableFull | PassReason::OnLink => None,
                _ => continue,
            };
            let mut words = Map::new();
            path.hops
                .iter()
                .for_each(|hop| route_json::hop(path.family, hop, &self.mirror.kernel, &mut words));
            let words: Vec<&str> =
                ["encap", "mode", "behaviour"].iter().filter_map(|key| words.get(*key)?.as_str()).collect();
            let what = if words.is_empty() { kind::name(path.kind).to_owned() } else { words.join(" ") };
            let hint = hint::of(path, *reason, &self.mirror.kernel);
            *punted.entry((reason.name(), what, dev, hint)).or_default() += 1;
        }
        let reported = |((reason, what, dev, hint), nexthop_groups): (Kind, _)| Punted {
            what,
            nexthop_groups,
            reason: reason.into(),
            dev,
            hint,
        };
        punted.into_iter().map(reported).collect()
    }

    fn device(
        &self,
        (ifindex, vlan): (u32, Option<u16>),
        port: &Port,
        modes: &[Attachment],
        counters: Option<&Counters>,
    ) -> DeviceStatus {
        let given = self.ports.given(&self.mirror.kernel, ifindex);
        let mode = modes.iter().find(|attachment| attachment.ifindex == given);
        let counts = counters.iter().flat_map(|counters| &counters.ports);
        let counts = counts.filter(|count| (count.ifindex, count.vlan) == (ifindex, vlan));
        let counts: Vec<_> = counts.collect();
        let counted = !counts.is_empty() || counters.is_none();
        let mut counters: Vec<_> = counts.iter().flat_map(|count| status::counters(&count.counts)).collect();
        counters.retain(|counter| counter.packets > 0);
        let mut flags = status::flags(port.flags);
        if !self.ports.egress().contains(&given) {
            flags.push("no-xdp-xmit".into());
        }
        if !counted {
            flags.push("shared-counters".into());
        }
        DeviceStatus {
            dev: self.mirror.kernel.name(port.ifindex),
            ifindex: port.ifindex,
            mode: mode.map(|attachment| attachment.mode.to_string()).unwrap_or_default(),
            vlan,
            flags,
            counters,
            hint: (vlan.is_none() && self.ports.cuts(&self.mirror.kernel, ifindex)).then(|| CUTS.into()),
        }
    }

    fn family<A: Ip>(&self, name: &str, routes: &Family<A>, published: &Published<A>) -> FamilyStatus {
        let obstacle = self.mirror.kernel.obstacle(A::NETLINK);
        let ipv4 = A::NETLINK == family::INET;
        let any = |flags: PortFlags| if ipv4 { flags.forward4 } else { flags.forward6 };
        let detached = self.is_detached();
        let forwards =
            !detached && published.is_current() && self.ports.iter().any(|(_, port)| any(port.flags));
        let reason = match published.blocked() {
            _ if detached => Some(DETACHED.to_owned()),
            Some((error, _)) => Some(error.clone()),
            None if !forwards => Some(obstacle.unwrap_or_else(|| "forwarding is off on every device".into())),
            None => None,
        };
        FamilyStatus {
            family: name.into(),
            forwards,
            reason,
            main: routes.main.routes(),
            local: routes.local.routes(),
            prefixes: published.main.table.as_ref().map_or(0, trieline_lpm::Table::len),
            tables: published.others.len(),
            others: routes.others.values().map(crate::rib::Table::routes).sum(),
            punted: self.publisher.policies.punted[usize::from(!ipv4)].iter().cloned().collect(),
            neighbours: routes.neighbours.len(),
        }
    }
}
