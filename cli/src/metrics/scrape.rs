//! The metrics of one scrape, from the daemon's answers. docs/metrics.md has each name. No label is an address or a prefix.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Error;
use std::time::Instant;
use trieline_router::api::status::{BatchTimes, Status};
use trieline_router::drops::AfterRedirect;
use trieline_router::filter::FilterStatus;
use trieline_router::sid_hook::SidHookStatus;
use trieline_router::xdp::counters::Kind;

/// Labels of a sample.
type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// All of a scrape.
#[derive(Debug)]
pub struct Scrape {
    /// The daemon's answers, if it answered.
    pub daemon: Option<(Status, Vec<SidHookStatus>)>,
    /// When the scrape began.
    pub begun: Instant,
}

impl Scrape {
    /// Its text in the format of OpenMetrics.
    pub fn encode(self) -> Result<String, Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut families = Families(encoder);
        let version = [(vec![("version", env!("CARGO_PKG_VERSION").into())], 1)];
        families.gauge("trieline_build_info", "Version of this program; always 1.", version)?;
        families.one("trieline_up", "Whether trielined answered.", i64::from(self.daemon.is_some()))?;
        if let Some((status, hooks)) = &self.daemon {
            families.daemon(status)?;
            families.devices(status)?;
            families.after_redirect(&status.after_redirect)?;
            families.filters(&status.filters)?;
            families.sid_hooks(hooks)?;
            families.routes(status)?;
            families.image(status)?;
            families.mirror(status)?;
            families.audit(status)?;
        }
        let took = self.begun.elapsed().as_secs_f64();
        families.one("trieline_scrape_duration_seconds", "Time that this scrape took.", took)
    }
}

/// Writes metric families.
struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge<'a, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    /// A gauge without labels.
    fn one(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> Result<(), Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    /// The format adds `_total` to the name.
    fn counter<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, u64)>,
    ) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    /// A counter without labels.
    fn count(&mut self, name: &str, help: &str, value: u64) -> Result<(), Error> {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        family.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn daemon(&mut self, status: &Status) -> Result<(), Error> {
        let map_type = status.map_type.map_or("unknown", |map_type| map_type.name());
        let labels = vec![("version", status.version.as_str().into()), ("map_type", map_type.into())];
        self.gauge("trieline_daemon_info", "Version of trielined, and the image's map type.", [(labels, 1)])?;
        self.one("trieline_uptime_seconds", "Time since trielined started.", status.uptime_seconds)?;
        let help = "Whether XDP leaves all packets to the kernel, because trielined follows it no more.";
        self.one("trieline_stale", help, i64::from(status.stale))?;
        let help = "Time since trielined's last heartbeat.";
        self.one("trieline_heartbeat_age_seconds", help, status.silent.unwrap_or(f64::NAN))?;
        let help = "Differences from the configuration that trielined tries to mend.";
        self.one("trieline_problems", help, status.problems.len())
    }

    fn devices(&mut self, status: &Status) -> Result<(), Error> {
        let attached = status.devices.iter().filter(|device| !device.mode.is_empty()).count();
        let states = [
            ("attached", attached),
            ("detached", status.devices.len() - attached),
            ("missing", status.missing.len()),
            ("refused", status.refused.len()),
        ];
        let states = states.map(|(state, devices)| (vec![("state", state.into())], devices));
        self.gauge("trieline_devices", "Configured devices by state.", states)?;
        // Devices of different numbers may have one name while it changes.
        let mut packets: BTreeMap<(&str, &str), (Kind, u64)> = BTreeMap::new();
        for device in &status.devices {
            for counter in &device.counters {
                let sum = packets.entry((&device.dev, &counter.name)).or_insert((counter.kind, 0));
                sum.1 += counter.packets;
            }
        }
        let packets = packets.into_iter().map(|((iface, verdict), (kind, packets))| {
            let labels =
                vec![("iface", iface.into()), ("verdict", verdict.into()), ("kind", kind.to_string().into())];
            (labels, packets)
        });
        let help = "Packets that came in by a device, by verdict; verdicts without packets are left out.";
        self.counter("trieline_packets", help, packets)?;
        let drops = status.counters.iter().filter(|counter| counter.kind == Kind::Drop);
        let drops = drops.map(|counter| (vec![("reason", counter.name.as_ref().into())], counter.packets));
        self.counter("trieline_drops", "Packets that XDP dropped, over all devices, former ones too.", drops)
    }

    fn after_redirect(&mut self, counts: &AfterRedirect) -> Result<(), Error> {
        let known = i64::from(counts.source.is_some() && counts.unknown.is_none());
        let help = "Whether all drops after redirect are counted.";
        self.one("trieline_drops_after_redirect_known", help, known)?;
        let iface = |name: &'_ str| ("iface", Cow::from(name.to_owned()));
        let drops = counts.devices.iter().flat_map(|device| {
            let of = move |reason: &str| vec![iface(device.name()), ("reason", reason.to_owned().into())];
            device.drops.iter().map(move |drop| (of(&drop.reason), drop.packets))
        });
        let help = "Packets that were forwarded and then lost, by output device.";
        self.counter("trieline_drops_after_redirect", help, drops)?;
        let sent =
            counts.devices.iter().filter_map(|device| Some((vec![iface(device.name())], device.sent?)));
        let help = "Forwarded packets that the driver of the output device took.";
        self.counter("trieline_sent_packets", help, sent)
    }

    fn filters(&mut self, filters: &[FilterStatus]) -> Result<(), Error> {
        let of = |filter: &FilterStatus| -> Labels<'_> {
            vec![
                ("filter", filter.rule.name.clone().into()),
                ("action", filter.rule.action.to_string().into()),
            ]
        };
        let packets = filters.iter().map(|filter| (of(filter), filter.packets));
        self.counter("trieline_filter_packets", "Packets that a filter matched.", packets)?;
        let bytes = filters.iter().map(|filter| (of(filter), filter.bytes));
        self.counter("trieline_filter_bytes", "Bytes of the frames that a filter matched.", bytes)?;
        let name = |filter: &FilterStatus| ("filter", filter.rule.name.clone().into());
        let prefixes = filters.iter().flat_map(|filter| {
            [("inet", filter.prefixes4), ("inet6", filter.prefixes6)].into_iter().filter_map(
                move |(family, prefixes)| Some((vec![name(filter), ("family", family.into())], prefixes?)),
            )
        });
        self.gauge("trieline_filter_prefixes", "Prefixes of a filter.", prefixes)?;
        let loaded = filters.iter().filter_map(|filter| Some((vec![name(filter)], filter.loaded?)));
        let help = "When trielined read a filter's file, in Unix time.";
        self.gauge("trieline_filter_loaded_timestamp_seconds", help, loaded)?;
        let bad = filters.iter().filter_map(|filter| Some((vec![name(filter)], filter.bad_lines?)));
        self.gauge(
            "trieline_filter_bad_lines",
            "Wrong lines of a filter's file, passed over (skip_bad).",
            bad,
        )?;
        let problem = filters.iter().map(|filter| (vec![name(filter)], i64::from(filter.problem.is_some())));
        let help = "Whether a filter's file is not in force: an older set is.";
        self.gauge("trieline_filter_problem", help, problem)
    }

    fn sid_hooks(&mut self, hooks: &[SidHookStatus]) -> Result<(), Error> {
        let name = |hook: &SidHookStatus| -> Labels<'_> { vec![("sid_hook", hook.rule.name.clone().into())] };
        let of = |count: fn(&SidHookStatus) -> Option<u64>| {
            hooks.iter().filter_map(move |hook| Some((name(hook), count(hook)?)))
        };
        let help = "Frames that a SID hook wrote to its sample.";
        self.counter("trieline_sid_hook_frames", help, of(|hook| hook.frames))?;
        let help = "Packets that a SID hook left out of its sample, for its rate.";
        self.counter("trieline_sid_hook_limited", help, of(|hook| hook.limited))?;
        let help = "Packets that a SID hook left out of its sample, for want of room.";
        self.counter("trieline_sid_hook_lost", help, of(|hook| hook.lost))?;
        let problem = hooks.iter().map(|hook| (name(hook), i64::from(hook.problem.is_some())));
        self.gauge("trieline_sid_hook_problem", "Whether a SID hook has no program or file.", problem)
    }

    fn routes(&mut self, status: &Status) -> Result<(), Error> {
        let each = || {
            let families = status.families.iter();
            families.map(|family| (vec![("family", Cow::from(&family.family))], family))
        };
        let forwards = each().map(|(labels, family)| (labels, i64::from(family.forwards)));
        self.gauge("trieline_forwards", "Whether XDP forwards packets of a family.", forwards)?;
        let routes = each().map(|(labels, family)| (labels, family.main + family.local + family.others));
        self.gauge("trieline_routes", "Mirrored routes of the kernel, of all tables.", routes)?;
        let prefixes = each().map(|(labels, family)| (labels, family.prefixes));
        self.gauge("trieline_prefixes", "Prefixes of tables local and main in the image.", prefixes)?;
        let tables = each().map(|(labels, family)| (labels, family.tables));
        self.gauge("trieline_tables", "Other tables in the image.", tables)?;
        let rules = each().map(|(labels, family)| (labels, family.punted.len()));
        self.gauge("trieline_punted_rules", "Policy rules left to the kernel.", rules)?;
        let neighbours = each().map(|(labels, family)| (labels, family.neighbours));
        self.gauge("trieline_neighbours", "Neighbours with a MAC address.", neighbours)?;
        self.one("trieline_nexthop_groups", "Distinct nexthop groups.", status.nexthop_groups)?;
        self.one("trieline_hosts", "Neighbours with a host entry.", status.hosts)?;
        let help = "Nexthop groups and host entries that wait for a MAC address.";
        self.one("trieline_unresolved", help, status.unresolved)?;
        let mut punted: BTreeMap<&str, usize> = BTreeMap::new();
        for way in &status.punted {
            *punted.entry(way.reason.name()).or_default() += way.nexthop_groups;
        }
        let punted = punted.into_iter().map(|(reason, groups)| (vec![("reason", reason.into())], groups));
        self.gauge("trieline_punted_nexthop_groups", "Nexthop groups left to the kernel.", punted)?;
        let mut bypassed: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for way in &status.bypassed {
            *bypassed.entry((&way.kind, if way.passes { "true" } else { "false" })).or_default() += 1;
        }
        let bypassed = bypassed
            .into_iter()
            .map(|((kind, passes), number)| (vec![("kind", kind.into()), ("passes", passes.into())], number));
        let help = "Processing that XDP bypasses, or for which it passes packets to the kernel.";
        self.gauge("trieline_bypassed", help, bypassed)?;
        self.one("trieline_actions", "Actions in use.", status.actions.used)?;
        self.one(
            "trieline_actions_limit",
            "The most actions that there can be (next_hops).",
            status.actions.limit,
        )?;
        let help = "Actions that could not be written for want of room.";
        self.count("trieline_actions_refused", help, status.actions_refused)
    }

    fn image(&mut self, status: &Status) -> Result<(), Error> {
        let image = &status.image;
        self.one("trieline_image_bytes", "Memory of the image in use by tables.", image.used)?;
        self.one("trieline_image_limit_bytes", "Memory that the image may take (image).", image.bytes)?;
        self.one(
            "trieline_image_limbo_bytes",
            "Replaced memory that waits for a grace period.",
            image.limbo,
        )?;
        self.one("trieline_image_peak_bytes", "The most memory that tables and limbo took.", image.peak)?;
        let help = "Memory in chunks that hold anything.";
        self.one("trieline_image_claimed_bytes", help, image.claimed)?;
        self.count("trieline_image_full", "Times that the image was full.", status.mirror.full)
    }

    fn audit(&mut self, status: &Status) -> Result<(), Error> {
        let audit = &status.audit;
        self.one("trieline_audit_rate", "Addresses that the audit compares each second.", audit.rate)?;
        let counts = [
            ("trieline_audit_samples", "Addresses that the audit compared.", audit.samples),
            ("trieline_audit_passed", "Of them, those whose packets are the kernel's.", audit.passed),
            ("trieline_audit_skipped", "Of them, those that could not be compared.", audit.skipped),
            ("trieline_audit_rounds", "Times that the audit sampled each prefix.", audit.rounds),
            ("trieline_audit_differences", "Differences that stayed.", audit.differences),
            ("trieline_audit_repairs", "Times that trielined repaired differences.", audit.repairs),
            ("trieline_audit_full", "Audits of everything.", audit.full),
        ];
        counts.into_iter().try_for_each(|(name, help, value)| self.count(name, help, value))
    }

    fn mirror(&mut self, status: &Status) -> Result<(), Error> {
        let mirror = &status.mirror;
        let times = &mirror.batch_times;
        let bounds = BatchTimes::BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(times.counts).collect();
        let help = "Time to publish a batch of the kernel's changes.";
        let mut family =
            self.0.encode_descriptor("trieline_update_latency_seconds", help, None, MetricType::Histogram)?;
        let (sum, count) = (times.sum_us as f64 / 1e6, times.counts.iter().sum());
        family.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        let counts = [
            ("trieline_netlink_requests", "Requests to the kernel by netlink.", mirror.requests),
            ("trieline_netlink_messages", "Messages of the kernel's changes.", mirror.messages),
            (
                "trieline_netlink_overruns",
                "Times that the kernel dropped changes (ENOBUFS).",
                status.overruns,
            ),
            ("trieline_resyncs", "Dumps of routes.", status.resyncs),
            ("trieline_resyncs_interrupted", "Dumps that changes disturbed.", mirror.interrupted),
            ("trieline_prefixes_written", "Prefixes written one by one.", mirror.prefixes_written),
            ("trieline_tables_written", "Tables written as a whole.", mirror.tables_written),
        ];
        for (name, help, value) in counts {
            self.count(name, help, value)?;
        }
        let seconds = |milliseconds: f64| milliseconds / 1e3;
        self.one("trieline_dump_seconds", "Time of the last dump of routes.", seconds(mirror.dump_ms))?;
        let help = "Time to build the tables after it.";
        self.one("trieline_build_seconds", help, seconds(mirror.build_ms))?;
        let help = "Time from trielined's start until its first tables were complete.";
        self.one("trieline_ready_seconds", help, seconds(mirror.ready_ms))
    }
}
