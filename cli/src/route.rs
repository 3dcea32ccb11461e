//! `trieline route`: the mirrored routes, and what happens to packets to an address.

mod filters;
mod packet;

use crate::addresses::{Addresses, Query, parse_query};
use crate::client::{Names, open, send_request};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use std::net::IpAddr;
use std::process::ExitCode;
use trieline_dataplane::{Action, Filters, PinnedMaps, Port, Rule, RuleAction, VALUE_THROW, is_rules};
use trieline_lpm::{IpPrefix, Memory, Reader};
use trieline_node::control::Request;
use trieline_node::instance::Instance;
use trieline_node::publish::{TABLE4, TABLE6};
use trieline_node::route_json;
use trieline_terminal::{List, Output, usage};

/// Ends of the helps.
const EXIT_CODES: &str = "It needs root. Exit codes: 0 done; 1 failed; 2 the command line is wrong.";
const GET_EXIT_CODES: &str = "It needs root. Exit codes: 0 all have a route; 1 one has none, or it failed; 2 the command line is wrong.";
/// Addresses in one request to the daemon.
const BATCH: usize = 50_000;
/// How often image and daemon may disagree because a route is just changing.
const ATTEMPTS: u32 = 5;

/// Routes.
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// List the mirrored routes, with XDP's action for each
    #[command(after_help = EXIT_CODES)]
    #[command(visible_alias = "list")]
    Show(ShowArgs),
    /// Show what XDP does with packets to an address
    #[command(after_help = GET_EXIT_CODES)]
    Get(GetArgs),
}

/// Options of `route show`.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// Show only this prefix and the prefixes below it
    ///
    /// `default` is the default route alone.
    #[arg(value_name = "PREFIX|default", value_parser = parse_wanted)]
    prefix: Option<Wanted>,
    /// Also show the node's own addresses (table local)
    #[arg(long)]
    local: bool,
    /// Show only this table: a number, `local`, `main` or `default`
    #[arg(long, value_name = "TABLE", value_parser = parse_table)]
    table: Option<u32>,
    /// Show only the table of this VRF
    #[arg(long, value_name = "NAME", conflicts_with = "table")]
    vrf: Option<String>,
}

fn parse_table(text: &str) -> Result<u32, String> {
    match text {
        "local" => Ok(255),
        "main" => Ok(254),
        "default" => Ok(253),
        _ => text.parse().map_err(|_| "expected a table's number, or local, main or default".into()),
    }
}

/// Which routes to list.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wanted {
    Within(IpPrefix),
    Default,
}

fn parse_wanted(text: &str) -> Result<Wanted, String> {
    if text == "default" {
        return Ok(Wanted::Default);
    }
    text.parse().map(Wanted::Within).map_err(|error: trieline_lpm::PrefixError| error.to_string())
}

/// Options of `route get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Look up these addresses; `-` reads them, one a line
    #[arg(required_unless_present = "packet", value_name = "ADDRESS|-", value_parser = parse_query::<IpAddr>)]
    addresses: Vec<Query>,
    /// Run the program on a packet: hex digits or a pcap file
    ///
    /// The packet begins with its Ethernet header, or with its IP header; then it goes to the device's MAC address. Of a pcap or pcap-ng
    /// file, packets that left are skipped.
    #[arg(long, value_name = "HEX|FILE", conflicts_with = "addresses")]
    packet: Option<String>,
    /// Set the source address of the packets, for `from` rules
    #[arg(long, value_name = "ADDRESS", conflicts_with = "packet")]
    from: Option<IpAddr>,
    /// Let the packets come in by this device [default: any]
    ///
    /// By default, the tables local and main decide if devices differ. A packet of a file comes in by the device that the file names,
    /// else by trieline's first one.
    #[arg(long, value_name = "DEVICE")]
    iif: Option<String>,
}

/// Runs a `route` command. `family` is 4 or 6 with -4 or -6.
pub fn run(command: &RouteCommand, family: Option<u8>, output: &Output) -> anyhow::Result<ExitCode> {
    let instance = Instance::current()?;
    match command {
        RouteCommand::Show(args) => show_routes(args, family, &instance, output),
        RouteCommand::Get(GetArgs { packet: Some(packet), iif, .. }) => {
            packet::run(packet, iif.as_deref(), &instance, output)
        }
        RouteCommand::Get(args) => get(args, family, &instance, output),
    }
}

fn show_routes(
    args: &ShowArgs,
    family: Option<u8>,
    instance: &Instance,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let default = args.prefix == Some(Wanted::Default);
    let prefixes = match args.prefix {
        None => vec![None],
        Some(Wanted::Within(prefix)) => {
            let is = if matches!(prefix, IpPrefix::V4(_)) { 4 } else { 6 };
            expect_family(family, is, &prefix).map_err(usage)?;
            vec![Some(prefix.to_string())]
        }
        Some(Wanted::Default) => [(4, "0.0.0.0/0"), (6, "::/0")]
            .into_iter()
            .filter(|(is, _)| family.is_none_or(|family| family == *is))
            .map(|(_, prefix)| Some(prefix.to_owned()))
            .collect(),
    };
    let mut list = List::new(output, output.stdout());
    let mut trouble = None;
    for prefix in prefixes {
        let (table, vrf) = (args.table, args.vrf.clone());
        let request = Request::Show { family, prefix, local: args.local && !default, table, vrf };
        let absent = send_request(instance, &request, |route| {
            // Default routes are the first of all.
            if default && route.get("dst").is_none_or(|dst| dst != "default") {
                return false;
            }
            match list.push(&route, text) {
                Ok(()) => true,
                Err(error) => {
                    trouble = Some(error);
                    false
                }
            }
        })?;
        if let Some(error) = absent {
            return Err(error.into());
        }
        if let Some(error) = trouble {
            return Err(error);
        }
    }
    let shown = list.finish()?;
    if let Some(prefix) = args.prefix.filter(|_| shown == 0 && !output.json) {
        eprintln!(
            "trieline: no routes of {}",
            match prefix {
                Wanted::Default => "default".to_owned(),
                Wanted::Within(prefix) => format!("{prefix} or below"),
            }
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn get(args: &GetArgs, family: Option<u8>, instance: &Instance, output: &Output) -> anyhow::Result<ExitCode> {
    let mut addresses = Addresses::new(&args.addresses, family);
    let mut batch = addresses.batch(BATCH)?;
    let pinned = open(instance)?;
    let mut names = Names::default();
    let ingress = Ingress::new(args, &pinned, &mut names)?;
    let mut list = List::new(output, output.stdout());
    let mut all = true;
    while !batch.is_empty() {
        for answer in answers(&batch, &ingress, &pinned, instance, &mut names)? {
            all &= answer.get("type").is_none_or(|kind| kind != "none");
            list.push(&Value::Object(answer), text)?;
        }
        list.flush()?;
        batch = addresses.batch(BATCH)?;
    }
    list.finish()?;
    // "The answer is no": some address has no route.
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// An error unless `what`, of family `is` (0: not an address), is of the family of -4 or -6.
pub(crate) fn expect_family(asked: Option<u8>, is: u8, what: &impl std::fmt::Display) -> Result<(), String> {
    match asked {
        Some(asked) if is == 0 => Err(format!("invalid address {what}: -{asked} expects IPv{asked}")),
        Some(asked) if asked != is => Err(format!("{what} is IPv{is}; -{asked} expects IPv{asked}")),
        _ => Ok(()),
    }
}

pub(crate) fn family_of(address: &IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

/// Where packets come from, and so what decides for them.
struct Ingress {
    from: Option<IpAddr>,
    /// Views of IPv4 and of IPv6.
    lookups: (u32, u32),
    /// Whether packets of each family are forwarded at all.
    forwards: (bool, bool),
    /// Of a tenant that the kernel does not know: what it would get is dropped.
    tenant: bool,
    /// Whether a port asks filters.
    filter: bool,
}

impl Ingress {
    fn new(args: &GetArgs, pinned: &PinnedMaps, names: &mut Names) -> anyhow::Result<Self> {
        let mut ports: Vec<_> = pinned.ports()?.into_iter().map(|(_, _, port)| port).collect();
        if let Some(device) = &args.iif {
            ports.retain(|port| names.get(port.ifindex) == *device);
            if ports.is_empty() {
                return Err(anyhow::anyhow!(
                    "{device}: trieline takes no packets from it; expected a device or VLAN of `trieline node status`"
                ));
            }
        }
        // Where all ports agree, they say what any packet meets.
        let one = |lookups: std::collections::BTreeSet<u32>, else_: u32| match lookups.first() {
            Some(pinned) if lookups.len() == 1 => *pinned,
            _ => else_,
        };
        Ok(Self {
            from: args.from,
            lookups: (
                one(ports.iter().map(|port| port.table4).collect(), TABLE4),
                one(ports.iter().map(|port| port.table6).collect(), TABLE6),
            ),
            forwards: (
                ports.iter().any(|port| port.flags.forward4),
                ports.iter().any(|port| port.flags.forward6),
            ),
            tenant: !ports.is_empty() && ports.iter().all(|port| port.flags.tenant),
            filter: ports.iter().any(|port| port.flags.filter),
        })
    }

    /// Of packets from an address that come in by a port.
    fn of_port(from: Option<IpAddr>, port: &Port) -> Self {
        let forwards = (port.flags.forward4, port.flags.forward6);
        let (tenant, filter) = (port.flags.tenant, port.flags.filter);
        Self { from, lookups: (port.table4, port.table6), forwards, tenant, filter }
    }

    /// The table that decides in a view, and the value it gives; or a value that a rule gives by itself.
    fn decide(&self, pinned: &PinnedMaps, reader: &Reader<'_>, number: u32, to: IpAddr) -> Decided {
        let unspecified = if to.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let from = self.from.filter(|from| from.is_ipv4() == to.is_ipv4()).unwrap_or(unspecified);
        let mut last = Decided { rule: None, table: None, value: None };
        for rule in pinned.concerning(number, from, to) {
            let by = Some(rule).filter(|_| is_rules(number));
            last = match rule.then {
                RuleAction::Value(value) => return Decided { rule: by, table: None, value: Some(value) },
                RuleAction::Table(table) => {
                    Decided { rule: by, table: Some(table), value: lookup_table(reader, table, &to) }
                }
                RuleAction::Except(table, value) => {
                    let found = lookup_table(reader, table, &to).filter(|found| *found != value);
                    Decided { rule: by, table: Some(table), value: found }
                }
                // The view has followed it.
                RuleAction::GoTo(_) => continue,
            };
            if last.value.is_some_and(|value| value != VALUE_THROW) {
                return last;
            }
        }
        Decided { value: None, ..last }
    }
}

/// Which packets a rule selects, in the words of `ip rule`.
fn selector(rule: &Rule) -> String {
    let not = if rule.inverted { "not " } else { "" };
    let from = rule.from.map_or(format!("{not}from all"), |from| format!("{not}from {from}"));
    rule.to.map_or(from.clone(), |to| format!("{from} to {to}"))
}

/// The value that decides, with its rule.
#[derive(Clone, Copy, PartialEq)]
struct Decided {
    /// The rule that decides, where there is more than one table.
    rule: Option<Rule>,
    table: Option<u32>,
    value: Option<u32>,
}

fn lookup_table(reader: &Reader<'_>, table: u32, address: &IpAddr) -> Option<u32> {
    match address {
        IpAddr::V4(addr) => reader.lookup4(table, (*addr).into()),
        IpAddr::V6(addr) => reader.lookup6(table, (*addr).into()),
    }
}

/// The image's answer for each address, in the daemon's words if it runs.
///
/// The image decides: the daemon's explanation is taken only when it is about the very value the image gave.
fn answers(
    addresses: &[IpAddr],
    ingress: &Ingress,
    pinned: &PinnedMaps,
    instance: &Instance,
    names: &mut Names,
) -> anyhow::Result<Vec<Map<String, Value>>> {
    let memory = pinned.memory();
    let reader = Reader::new(memory.words())?;
    let first = |address: &IpAddr| {
        let number = if address.is_ipv4() { ingress.lookups.0 } else { ingress.lookups.1 };
        ingress.decide(pinned, &reader, number, *address)
    };
    // An action may name another view; that view's answer counts, and the action is shown with it.
    let vrf_lookup =
        |address: &IpAddr, decided: Decided| match decided.value.and_then(|value| pinned.action(value)) {
            Some(Action::Table(number)) => Some(ingress.decide(pinned, &reader, number, *address)),
            _ => None,
        };
    let filtering = if ingress.filter { pinned.filters(Filters::PORTS) } else { Vec::new() };
    let mut found = vec![None; addresses.len()];
    let mut open: Vec<usize> = (0..addresses.len()).collect();
    for attempt in 0..ATTEMPTS {
        let decided: Vec<_> = open
            .iter()
            .map(|at| {
                let first = first(&addresses[*at]);
                let last = vrf_lookup(&addresses[*at], first);
                (first, last.unwrap_or(first))
            })
            .collect();
        let asked = open.iter().zip(&decided);
        let asked: Vec<_> =
            asked.map(|(at, (_, last))| (addresses[*at], last.table.unwrap_or(u32::MAX))).collect();
        let explained = explain(asked, instance)?;
        let mut differ = Vec::new();
        for (nth, (at, (first, last))) in open.iter().zip(&decided).enumerate() {
            let address = &addresses[*at];
            let mut answer = Map::new();
            answer.insert("dst".into(), address.to_string().into());
            if first != last {
                answer.insert("through".into(), "vrf".into());
            }
            if let Some(rule) = last.rule {
                answer.insert("rule".into(), selector(&rule).into());
            }
            if let Some(explained) = explained.as_ref().and_then(|all| all.get(nth)) {
                let id = explained.get("id").and_then(Value::as_u64);
                let id = id.filter(|id| *id != u64::from(VALUE_THROW));
                if last.table.is_none() {
                    // A rule decides by itself; no table is asked.
                } else if id != last.value.map(u64::from) {
                    differ.push(*at);
                    if attempt + 1 < ATTEMPTS {
                        continue;
                    }
                } else if let Value::Object(explained) = explained {
                    let reported = explained.iter().filter(|(key, _)| *key != "id");
                    answer.extend(reported.map(|(key, value)| (key.clone(), value.clone())));
                    answer.insert("source".into(), "image+daemon".into());
                }
            }
            if !answer.contains_key("source") {
                answer.insert("source".into(), "image".into());
            }
            let forwards = if address.is_ipv4() { ingress.forwards.0 } else { ingress.forwards.1 };
            if last.table.is_none() && last.value.is_some() {
                // A rule decides by itself.
                answer.insert("type".into(), "rule".into());
            }
            match last.value.map(|value| pinned.action(value)) {
                // Whatever the tables say: where no port forwards this family, its packets are the kernel's.
                Some(Some(action)) if !forwards && !matches!(action, Action::Pass(_)) => {
                    answer.insert("action".into(), "pass".into());
                    answer.insert("reason".into(), "forwarding_off".into());
                }
                Some(Some(action)) => route_json::action(&action, |ifindex| names.get(ifindex), &mut answer),
                Some(None) => drop(answer.insert("action".into(), "pass".into())),
                None => {
                    answer.insert("type".into(), "none".into());
                    answer.insert("action".into(), "pass".into());
                    answer.insert("reason".into(), "no_route".into());
                }
            }
            if ingress.filter {
                filters::apply(&filtering, &reader, ingress.from, *address, &mut answer);
            }
            if ingress.tenant {
                drop_for_tenant(&mut answer);
            }
            found[*at] = Some(answer);
        }
        open = differ;
        if open.is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(found.into_iter().flatten().collect())
}

/// Packets that the kernel would get are dropped, except for those to the node itself.
fn drop_for_tenant(answer: &mut Map<String, Value>) {
    if answer.get("action").is_none_or(|action| action != "pass")
        || answer.get("reason").is_some_and(|why| why == "local")
    {
        return;
    }
    answer.insert("action".into(), "drop".into());
    if let Some(first) = answer.insert("reason".into(), "tenant".into()) {
        answer.insert("first_reason".into(), first);
    }
}

/// The daemon's explanations; `None` if no daemon runs.
fn explain(asked: Vec<(IpAddr, u32)>, instance: &Instance) -> anyhow::Result<Option<Vec<Value>>> {
    let mut explained = None;
    send_request(instance, &Request::Explain { asked }, |answer| {
        if let Value::Array(answers) = answer {
            explained = Some(answers);
        }
        false
    })?;
    Ok(explained)
}

/// A value in one word, a list with commas.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(word).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// Keys of one way out, and `ip route`'s words.
const WAY: [(&str, &str); 12] = [
    ("encap", "encap"),
    ("mode", "mode"),
    ("behaviour", "action"),
    ("segs", "segs"),
    ("nh4", "nh4"),
    ("nh6", "nh6"),
    ("oif", "oif"),
    ("lookup", "table"),
    ("vrftable", "vrftable"),
    ("flavors", "flavors"),
    ("gateway", "via"),
    ("dev", "dev"),
];

/// A route as `ip route` would print it, then what XDP does.
pub(crate) fn text(route: &Value) -> String {
    let mut line = String::new();
    if let Some(kind) = route.get("type") {
        line += &format!("{} ", word(kind));
    }
    line += &route.get("dst").map(word).unwrap_or_default();
    let ways = route.get("nexthops").and_then(Value::as_array);
    let ingress = if ways.is_none() { &WAY[..] } else { &[] };
    for (key, name) in [("prefix", "in"), ("rule", "rule")].iter().chain(ingress).chain(&[
        ("table", "table"),
        ("protocol", "proto"),
        ("scope", "scope"),
        ("prefsrc", "src"),
        ("metric", "metric"),
        ("nhid", "nhid"),
    ]) {
        if let Some(value) = route.get(key) {
            line += &format!(" {name} {}", word(value));
        }
        if *key == "gateway"
            && let Some(via) = route.get("via")
        {
            line += &format!(" via inet6 {}", via.get("host").map(word).unwrap_or_default());
        }
    }
    for hop in ways.into_iter().flatten() {
        line += " nexthop";
        for (key, name) in WAY.iter().chain(&[("weight", "weight")]) {
            if let Some(value) = hop.get(key) {
                line += &format!(" {name} {}", word(value));
            }
            if *key == "gateway"
                && let Some(via) = hop.get("via")
            {
                line += &format!(" via inet6 {}", via.get("host").map(word).unwrap_or_default());
            }
        }
    }
    line + "  [" + &doing(route) + "]"
}

/// XDP's action.
fn doing(route: &Value) -> String {
    let mut line = route.get("action").map(word).unwrap_or_else(|| "kernel".into());
    for path in route.get("paths").and_then(Value::as_array).into_iter().flatten() {
        line += &format!(" ({} weight {})", doing(path), path.get("weight").map(word).unwrap_or_default());
    }
    for (key, name) in [
        ("reason", ""),
        ("first_reason", "for "),
        ("hint", ""),
        ("filter", "by filter "),
        ("filters_may_match", "unless a filter matches: "),
        ("out", "out "),
        ("lladdr", ""),
        ("smac", "smac "),
        ("vlan", "vlan "),
        ("outer_src", "outer from "),
        ("outer_dst", "to "),
        ("outer_segs", "segs "),
        ("outer_flow", "flow label "),
        ("outer_bytes", "bytes "),
    ] {
        if let Some(value) = route.get(key) {
            line += &format!(" {name}{}", word(value));
        }
    }
    line
}
