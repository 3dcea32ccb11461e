//! The daemon's side of commands: connections that never make it wait, and its state in numbers.

use super::work::{FullAudit, Work};
use super::{ControlSource, DETACHED, Daemon, TICK};
use crate::api::control::{Access, Client, Job, Refusal, Request};
use crate::api::hint;
use crate::api::route::Route;
use crate::api::route_json;
use crate::api::route_query::{self, Cursor};
use crate::api::status::{DeviceStatus, FamilyStatus, ImageStatus, Punted, Refused, Status, Usage};
use crate::daemon::veth::CUTS;
use crate::drops::AfterRedirect;
use crate::fib::published::Published;
use crate::kernel::{family, route::kind};
use crate::rib::family::Family;
use crate::rib::table::Ip;
use crate::xdp::action::{Action, PassReason};
use crate::xdp::attachment::Attachment;
use crate::xdp::counters::Counters;
use crate::xdp::ports::{Port, PortFlags};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Instant;

/// More connections wait until some are closed.
const CLIENTS: usize = 128;
/// The same for those that may only read: they take no place of the others.
const READERS: usize = 32;

fn limit(access: Access) -> usize {
    match access {
        Access::Full => CLIENTS,
        Access::Read => READERS,
    }
}

impl Daemon {
    /// Whether connections with this access are taken at present.
    pub(super) fn listens(&self, access: Access, now: Instant) -> bool {
        let has_room = self.connected(access) < limit(access) || self.idle(access).is_some();
        has_room && self.accept_after <= now
    }

    fn connected(&self, access: Access) -> usize {
        self.clients.iter().filter(|(client, _)| client.access() == access).count()
    }

    /// The connection with this access that has been there for the longest time, of those that wait for no answer.
    fn idle(&self, access: Access) -> Option<usize> {
        let is_idle = |(client, work): &(Client, Option<Work>)| {
            client.access() == access && work.is_none() && !client.has_output()
        };
        self.clients.iter().position(is_idle)
    }

    /// Answers commands as far as that goes without waiting.
    pub(super) fn serve(&mut self, control_source: &mut dyn ControlSource) {
        for index in 0..self.listeners.len() {
            self.accept(index);
        }
        let mut clients = std::mem::take(&mut self.clients);
        self.audit.is_running = clients.iter().any(|(_, work)| matches!(work, Some(Work::Audit(_))));
        clients.retain_mut(|(client, work)| self.serve_client(client, work, control_source).is_ok());
        self.clients = clients;
    }

    fn accept(&mut self, index: usize) {
        let access = self.listeners[index].access;
        for _ in 0..limit(access) {
            if !self.listens(access, Instant::now()) {
                break;
            }
            match self.listeners[index].accept() {
                Ok(client) => {
                    if self.connected(access) >= limit(access) {
                        // A connection that asks nothing takes no place of one that does.
                        self.idle(access).map(|idle| self.clients.remove(idle));
                    }
                    self.clients.extend(client.map(|client| (client, None)));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // No file descriptors, no memory: the connection stays queued, and asking at once would change nothing.
                Err(_) => self.accept_after = Instant::now() + TICK,
            }
        }
    }

    fn serve_client(
        &mut self,
        client: &mut Client,
        work: &mut Option<Work>,
        control_source: &mut dyn ControlSource,
    ) -> std::io::Result<()> {
        client.write()?;
        if client.has_output() {
            return Ok(());
        }
        if let Some(open) = work {
            let done = match open {
                Work::Show(cursor) => cursor.advance(&self.mirror, &self.publisher.action_index, client)?,
                Work::Audit(audit) => self.audit_on(audit, client)?,
            };
            if done {
                *work = None;
            }
            return client.write();
        }
        match client.request()? {
            Some(Ok(request)) if request.changes() && client.access() == Access::Read => {
                let error = "this socket only answers questions; run as root to change something".into();
                client.answer(&Refusal { error })?;
            }
            Some(Ok(Request::Status)) => client.answer(&self.status())?,
            Some(Ok(Request::Explain { asked })) => {
                client.answer(&route_query::explain(&asked, &self.mirror, &self.publisher))?;
            }
            Some(Ok(Request::Filters)) => client.answer(&self.filters.status(self.dataplane.filters()))?,
            Some(Ok(Request::Sids)) => {
                let counts = self.dataplane.sid_counters().unwrap_or_default();
                client.answer(&route_query::sids(&self.mirror, &self.publisher, &counts))?;
            }
            Some(Ok(Request::SidHooks)) => client.answer(&self.sid_hooks.status())?,
            Some(Ok(Request::Reload { filter })) => match self.filters.reload(filter.as_deref()) {
                Ok(job) => client.answer(&Job { job })?,
                Err(error) => client.answer(&Refusal { error: error.to_string() })?,
            },
            Some(Ok(Request::Reconfigure)) => {
                let job = control_source
                    .configuration()
                    .and_then(|config| self.reload(config).map_err(|error| error.to_string()));
                match job {
                    Ok(job) => client.answer(&Job { job })?,
                    Err(error) => client.answer(&Refusal { error })?,
                }
            }
            Some(Ok(Request::Audit { .. })) if self.audit.is_running => {
                let error = "another audit is running; run this one when it has ended".into();
                client.answer(&Refusal { error })?;
            }
            Some(Ok(Request::Audit { repair })) => match FullAudit::new(repair) {
                Ok(audit) => {
                    self.audit.is_running = true;
                    *work = Some(Work::Audit(Box::new(audit)));
                }
                Err(error) => client.answer(&Refusal { error: error.to_string() })?,
            },
            Some(Ok(Request::Job { job })) => client.answer(&self.filters.job(job))?,
            Some(Ok(request)) => match Cursor::new(&request, &self.mirror) {
                Ok(open) => *work = Some(Work::Show(open)),
                Err(error) => client.answer(&Refusal { error })?,
            },
            Some(Err(error)) => client.answer(&Refusal { error: error.to_string() })?,
            None => {}
        }
        client.write()
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
            map_type: Some(self.dataplane.map_type()),
            image: ImageStatus {
                bytes: image.size,
                used: image.used,
                limbo: image.limbo,
                peak: image.peak,
                claimed: image.claimed,
            },
            devices: ports.map(|(key, port)| self.device(*key, port, &modes, counters.as_ref())).collect(),
            missing: self.missing(),
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
            unresolved: self.publisher.action_index.unresolved(|nhg| {
                let nhg = self.mirror.nhgs.get(nhg);
                nhg.is_some_and(|nhg| nhg.hops.iter().any(|hop| hop.gateway.is_some() || hop.encap.is_some()))
            }),
            actions: Usage { used: (nexthop_groups + hosts + 2) as u64, limit: self.limits.actions.into() },
            actions_refused: self.publisher.action_index.refused,
            punted: self.punted(),
            bypassed: self.mirror.kernel.bypass.bypassed(&self.mirror.kernel),
            mirror,
            overruns: self.counts.overruns,
            resyncs: self.counts.resyncs,
            audit: self.audit.status(),
            counters: counters.as_ref().map(|counters| counters.total.clone()).unwrap_or_default(),
            after_redirect: self.after_redirect(modes.iter().any(Attachment::is_generic)),
            ..Status::default()
        }
        .with_heartbeat(self.dataplane.heartbeat())
    }

    /// Names of the configuration that no link has: devices, and declared VLANs.
    fn missing(&self) -> Vec<String> {
        let kernel = &self.mirror.kernel;
        let vlans = kernel.settings.tenants.missing(&kernel.links).into_iter();
        self.ports.missing(kernel).chain(vlans).map(str::to_owned).collect()
    }

    /// The fates of forwarded packets.
    fn after_redirect(&self, is_generic: bool) -> AfterRedirect {
        let counts = self.drops.read();
        let counts = if is_generic { counts.in_generic_mode() } else { counts };
        counts.named(|ifindex| self.mirror.kernel.links.get(&ifindex).map(|link| link.name.clone()))
    }

    /// Deviations from the configuration that trielined tries to mend again.
    pub(super) fn problems(&self) -> Vec<String> {
        let kept = self.kept.iter().map(|why| {
            format!("cannot make tables of the new size or map type: {why}; the previous ones stay; restart trielined to try again")
        });
        let outdated = self.dataplane.outdated().iter().map(|ifindex| {
            let name = self.mirror.kernel.links.get(ifindex).map_or("", |link| link.name.as_str());
            format!("device {name} ({ifindex}) refused the new program; the previous one stays attached; trielined tries again every second")
        });
        let csids = self.csids.iter().map(|why| {
            format!("NEXT-C-SIDs not written: {why}; SID hooks may not see each packet; trielined tries again every second")
        });
        kept.chain(outdated).chain(csids).chain(self.sid_hooks.problems().map(str::to_owned)).collect()
    }

    /// Nexthop groups that only the kernel can follow, by what they do.
    fn punted(&self) -> Vec<Punted> {
        /// Verdict, what it is, device, hint.
        type Kind = (PassReason, String, Option<String>, Option<String>);
        let mut punted: BTreeMap<Kind, usize> = BTreeMap::new();
        for (id, nhg) in self.mirror.nhgs.iter() {
            let reason = match self.publisher.action_index.action(id) {
                Some(Action::Pass(reason)) => *reason,
                // No action is made for them: their prefixes are the kernel's.
                None if nhg.selects_more() => PassReason::Unsupported,
                _ => continue,
            };
            let dev = match reason {
                PassReason::NoDevice | PassReason::NoXdpXmit | PassReason::NoCarrier => {
                    nhg.hops.first().map(|hop| self.mirror.kernel.name(hop.ifindex))
                }
                PassReason::Unsupported | PassReason::TableFull | PassReason::OnLink | PassReason::Rule => {
                    None
                }
                PassReason::Local if nhg.sid.is_some() => None,
                // By the loopback.
                PassReason::Unreachable if nhg.kind == kind::UNICAST => None,
                PassReason::Local
                | PassReason::Unreachable
                | PassReason::Prohibit
                | PassReason::Unresolved => continue,
            };
            let mut way = Route::default();
            nhg.hops.iter().for_each(|hop| route_json::hop(nhg.family, hop, &self.mirror.kernel, &mut way));
            let words: Vec<String> = [way.encap, way.mode, way.behaviour].into_iter().flatten().collect();
            let what = if words.is_empty() { kind::name(nhg.kind).to_owned() } else { words.join(" ") };
            let hint = hint::told(nhg, reason, self.publisher.action_index.cause(id), &self.mirror.kernel);
            *punted.entry((reason, what, dev, hint)).or_default() += 1;
        }
        let reported = |((reason, what, dev, hint), nexthop_groups): (Kind, _)| Punted {
            what,
            nexthop_groups,
            reason,
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
        let mut counters: Vec<_> = counts.iter().flat_map(|count| count.counts.clone()).collect();
        counters.retain(|counter| counter.packets > 0);
        let mut flags: Vec<String> = port.flags.names().map(str::to_owned).collect();
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
        let any: fn(PortFlags) -> bool = if ipv4 { |flags| flags.forward4 } else { |flags| flags.forward6 };
        let forwards = self.forwards(published, any);
        let reason = match published.blocked() {
            _ if self.is_detached() => Some(DETACHED.to_owned()),
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
            others: routes.others.values().map(crate::rib::table::Table::routes).sum(),
            punted: self.publisher.policies.punted[usize::from(!ipv4)].iter().cloned().collect(),
            neighbours: routes.neighbours.len(),
        }
    }
}
