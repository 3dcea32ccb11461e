//! Commands about routes, next hop objects and policy rules.

use super::state::{Verbs, family};
use crate::script::{Step, node};

/// Attributes that can be left out.
pub(super) const ATTRIBUTES: &[&str] = &[
    "multipath4",
    "multipath6",
    "via-inet6",
    "link-local",
    "onlink",
    "nhid",
    "encap",
    "l2encap",
    "inline",
    "mtu-route",
    "src",
    "tos",
    "from",
    "expires",
    "metric",
    "scope",
    "realms",
    "pref",
    "hoplimit",
    "type",
    "local-type",
    "append6",
    "local-table",
    "noprefixroute",
    "addr-metric",
    "addr-lifetime",
    "addr-scope",
    "group",
    "resilient",
    "fdb",
    "setting-all",
    "goto",
    "suppress",
    "rule-action",
    "rule-mark",
    "rule-not",
    "rule-ports",
    "rule-oif",
    "rule-iif",
    "End.X",
    "End.T",
    "End.DX2",
    "End.DX4",
    "End.DX6",
    "End.DT6",
    "End.DT4",
    "End.DT46",
    "End.B6",
    "End.B6.Encaps",
    "flavors",
];

const PREFIXES4: &[&str] = &[
    "10.50.0.0/16",
    "10.50.1.0/24",
    "10.50.1.128/25",
    "10.50.1.5/32",
    "10.51.0.0/16",
    "10.52.0.0/16",
    "10.48.0.0/13",
    "default",
    "10.99.0.0/24",
    "10.1.0.0/24",
    "10.2.0.0/25",
    "192.0.2.0/24",
];
const PREFIXES6: &[&str] = &[
    "fd50::/32",
    "fd50:0:1::/48",
    "fd50:0:1:5::/64",
    "fd50:0:1:5::5/128",
    "fd51::/32",
    "fd52::/32",
    "fd50::/16",
    "default",
    "fd99::/64",
    "fd00:1::/64",
    "fd70::/16",
    "fd71::2/128",
    "2001:db8::/32",
];

impl Verbs {
    /// The way of a route: gateway, device or both.
    fn way(&mut self, six: bool) -> String {
        let (link, gateway) = self.gateway(six);
        let device = self.links[link].clone();
        match self.random.below(14) {
            0..4 => format!("via {gateway} dev {device}"),
            4..7 => format!("via {gateway}"),
            7 | 8 => format!("dev {}", self.device()),
            9 if !six && self.may("via-inet6") => format!("via inet6 fd00:{link}::2 dev {device}"),
            10 if six && self.may("link-local") => format!("via fe80::2 dev {device}"),
            10 if !six && self.may("link-local") => format!("via inet6 fe80::2 dev {device}"),
            11 | 12 if self.may("onlink") => {
                format!("via {} dev {device} onlink", if six { "fd99::2" } else { "10.99.0.2" })
            }
            _ => format!("via {gateway} dev {device}"),
        }
    }

    fn segments(&mut self) -> &'static str {
        self.random.pick(&["fd70::1", "fd71::2", "fd70::1,fd71::2", "fd71::2,fd70::1,fd52::7", "fd00:1::2"])
    }

    fn headend(&mut self, six: bool) -> String {
        let mode = self.random.pick(&["encap", "encap", "encap.red", "inline", "l2encap", "l2encap.red"]);
        let is_off = (mode == "inline" && !(six && self.may("inline")))
            || (mode.starts_with('l') && !self.may("l2encap"));
        let mode = if is_off { "encap" } else { mode };
        let segments = self.segments();
        format!("encap seg6 mode {mode} segs {segments}")
    }

    fn body(&mut self, six: bool) -> String {
        let multipath = if six { "multipath6" } else { "multipath4" };
        match self.random.below(20) {
            0..3 if self.may(multipath) => {
                let mut text = String::new();
                for _ in 0..2 + self.random.below(2) {
                    let weight = self.random.pick(&["", "", " weight 2", " weight 5"]);
                    let head = if self.random.one_in(6) && self.may("encap") {
                        self.headend(six) + " "
                    } else {
                        String::new()
                    };
                    text.push_str(&format!(" nexthop {head}{}{weight}", self.way(six)));
                }
                text
            }
            3..5 if self.may("nhid") => format!("nhid {}", self.random.below(8) + if six { 20 } else { 10 }),
            5..8 if self.may("encap") => {
                let (head, device) = (self.headend(six), self.device());
                if self.random.one_in(2) {
                    format!("{head} dev {device}")
                } else {
                    let way = self.way(six);
                    format!("{head} {way}")
                }
            }
            _ => self.way(six),
        }
    }

    pub(super) fn route(&mut self, six: bool) -> Step {
        let prefix = self.random.pick(if six { PREFIXES6 } else { PREFIXES4 });
        let verb = self.random.pick(&[
            "add", "add", "add", "append", "append", "prepend", "replace", "replace", "replace", "change",
        ]);
        let verb = if six && matches!(verb, "append" | "prepend") && !self.may("append6") {
            "replace"
        } else {
            verb
        };
        let table = self.table();
        let mut key = format!("{prefix}{table}");
        let kind = self.random.pick(&[
            "",
            "",
            "",
            "",
            "",
            "",
            "blackhole ",
            "unreachable ",
            "prohibit ",
            "throw ",
            "local ",
        ]);
        let kind = if self.may("type") && (kind != "local " || self.may("local-type")) { kind } else { "" };
        let body = match kind {
            "" => format!(" {}", self.body(six)),
            "local " => format!(" dev {}", self.device()),
            _ => String::new(),
        };
        if self.now("metric", 6) {
            key.push_str(&format!(" metric {}", self.random.pick(&[10, 20, 512, 1024, 2000])));
        }
        if !six && self.now("tos", 14) {
            key.push_str(" tos 0x10");
        }
        if six && self.now("from", 16) {
            key = key.replacen(prefix, &format!("{prefix} from fd00::/32"), 1);
        }
        let mut options = String::new();
        let own = self.own(six);
        let mtu = self.random.pick(&[
            "mtu 1400",
            "mtu 1300",
            "mtu lock 1300",
            "mtu 1280",
            "mtu lock 1000",
            "mtu 9000",
        ]);
        if self.now("mtu-route", 8) {
            options.push_str(&format!(" {mtu}"));
        }
        if self.now("src", 10) {
            options.push_str(&format!(" src {own}"));
        }
        if self.now("hoplimit", 20) {
            options.push_str(" hoplimit 9");
        }
        if six && self.now("expires", 20) {
            options.push_str(self.random.pick(&[" expires 100", " expires 2"]));
        }
        if six && self.now("pref", 30) {
            options.push_str(self.random.pick(&[" pref low", " pref high"]));
        }
        if !six && self.now("scope", 20) {
            options.push_str(self.random.pick(&[" scope link", " scope host", " scope 50"]));
        }
        if !six && self.now("realms", 40) {
            options.push_str(" realms 3");
        }
        self.routes.push(format!("{}route del {kind}{key}", if six { "-6 " } else { "" }));
        if self.routes.len() > 12 {
            self.routes.remove(0);
        }
        // Metrics stand before next hops.
        let text = if body.starts_with("  nexthop") {
            format!("route {verb} {kind}{key}{options}{body}")
        } else {
            format!("route {verb} {kind}{key}{body}{options}")
        };
        vec![family(six, &text)]
    }

    pub(super) fn route_del(&mut self) -> Step {
        if self.routes.is_empty() {
            return Step::new();
        }
        let at = self.random.below(self.routes.len());
        vec![node(format!("ip {}", self.routes.remove(at)))]
    }

    pub(super) fn table_flush(&mut self) -> Step {
        let six = self.random.one_in(2);
        let table = self.random.pick(&["100", "200"]);
        vec![family(six, &format!("route flush table {table}"))]
    }

    /// A SID: a route of IPv6 with a behaviour.
    pub(super) fn sid(&mut self) -> Step {
        let verb = self.random.pick(&["replace", "replace", "add", "del"]);
        let sid = format!("fd80::{:x}", self.random.below(16));
        let (link, next4) = self.gateway(false);
        let next6 = format!("fd00:{link}::{}", self.random.pick(&[2, 2, 3]));
        let (table, segments, port) = (self.random.pick(&[254, 100, 200]), self.segments(), self.device());
        let actions = [
            ("End", "action End".to_owned()),
            ("flavors", "action End flavors psp".to_owned()),
            ("flavors", "action End flavors next-csid lblen 48 nflen 16".to_owned()),
            ("End.X", format!("action End.X nh6 {next6}")),
            ("End.T", format!("action End.T table {table}")),
            ("End.DX2", format!("action End.DX2 oif {port}")),
            ("End.DX4", format!("action End.DX4 nh4 {next4}")),
            ("End.DX4", format!("action End.DX4 nh4 {next4}")),
            ("End.DX6", format!("action End.DX6 nh6 {next6}")),
            ("End.DT6", format!("action End.DT6 table {table}")),
            ("End.DT6", format!("action End.DT6 vrftable {table}")),
            ("End.DT4", format!("action End.DT4 vrftable {table}")),
            ("End.DT46", format!("action End.DT46 vrftable {table}")),
            ("End.B6", format!("action End.B6 srh segs {segments}")),
            ("End.B6.Encaps", format!("action End.B6.Encaps srh segs {segments}")),
        ];
        let (name, action) = self.random.pick(&actions);
        if !self.may(name) || !self.may("sid") {
            return Step::new();
        }
        let out = self.links[1].clone();
        let prefix = if action.contains("next-csid") { "fd8c::/48" } else { &format!("{sid}/128") };
        if verb == "del" {
            return vec![family(true, &format!("route del {prefix}"))];
        }
        vec![family(true, &format!("route {verb} {prefix} encap seg6local {action} dev {out}"))]
    }

    pub(super) fn nexthop(&mut self) -> Step {
        let six = self.random.one_in(2);
        let base = if six { 20 } else { 10 };
        let id = base + self.random.below(8);
        let verb = self.random.pick(&["replace", "replace", "replace", "add", "del"]);
        // The last three of each family are groups.
        let is_group = id >= base + 5;
        let (way, head) = (self.way(six), self.headend(six));
        let (first, second, third) = (self.random.below(5), self.random.below(5), self.random.below(5));
        let weight = 1 + self.random.below(4);
        let choice = self.random.below(12);
        if verb == "del" {
            return vec![family(six, &format!("nexthop del id {id}"))];
        }
        let text = if is_group {
            if !self.may("group") {
                return Step::new();
            }
            let kind = if choice < 2 && self.may("resilient") {
                " type resilient buckets 32 idle_timer 60"
            } else {
                ""
            };
            let more = if choice.is_multiple_of(2) { format!("/{}", base + third) } else { String::new() };
            format!("group {},{weight}/{}{}{kind}", base + first, base + second, more)
        } else {
            match choice {
                0 => "blackhole".to_owned(),
                1 | 2 if self.may("encap") => format!("{head} {way}"),
                3 if self.may("fdb") => format!("via {} fdb", if six { "fd00:1::2" } else { "10.1.0.2" }),
                _ => way,
            }
        };
        vec![family(six, &format!("nexthop {verb} id {id} {text}"))]
    }

    fn selector(&mut self, six: bool) -> String {
        let mut text = String::new();
        if self.now("rule-not", 10) {
            text.push_str(" not");
        }
        let link = self.link();
        let parts = 1 + self.random.below(2);
        for _ in 0..parts {
            let net = if six { format!("fd00:{link}::/64") } else { format!("10.{link}.0.0/24") };
            match self.random.below(10) {
                0..2 => text.push_str(&format!(" from {net}")),
                2..4 => {
                    let to = if six {
                        self.random.pick(&["fd50::/32", "fd51::/32", "fd50:0:1::/48"])
                    } else {
                        self.random.pick(&["10.50.0.0/16", "10.51.0.0/16", "10.50.1.0/24"])
                    };
                    text.push_str(&format!(" to {to}"));
                }
                4..7 if self.may("rule-iif") => {
                    let device = self.device();
                    let altname = self.random.pick(&[0usize, 1, 2]);
                    let name = self
                        .altnames
                        .get(altname)
                        .map(|found| found.1.clone())
                        .filter(|_| self.may("altname"));
                    text.push_str(&format!(" iif {}", name.unwrap_or(device)));
                }
                7 if self.may("rule-mark") => {
                    text.push_str(self.random.pick(&[" fwmark 7", " fwmark 0/0xf", " fwmark 0x10/0x10"]))
                }
                8 if self.may("tos") => text.push_str(" tos 0x10"),
                9 if self.may("rule-oif") => text.push_str(&format!(" oif {}", self.device())),
                _ if self.may("rule-ports") => {
                    text.push_str(self.random.pick(&[" ipproto udp dport 9", " ipproto tcp", " sport 4000"]))
                }
                _ => {}
            }
        }
        text
    }

    pub(super) fn rule(&mut self) -> Step {
        let six = self.random.one_in(2);
        let pref = self.random.pick(&[100, 100, 200, 300, 1000, 32770, 33000]);
        let selector = self.selector(six);
        let table = self.random.pick(&["100", "100", "200", "main", "300"]);
        let mut action = format!("lookup {table}");
        let kind = self.random.below(12);
        if kind == 0 && self.may("rule-action") {
            action = self.random.pick(&["blackhole", "unreachable", "prohibit"]).to_owned();
        } else if kind == 1 && self.may("goto") {
            action = self.random.pick(&["goto 32766", "goto 1000", "nop"]).to_owned();
        } else if kind == 2 && self.may("suppress") {
            action.push_str(self.random.pick(&[
                " suppress_prefixlength 0",
                " suppress_prefixlength 16",
                " suppress_ifgroup 7",
            ]));
        }
        self.rules.push(format!("{}rule del pref {pref}{selector} {action}", if six { "-6 " } else { "" }));
        if self.rules.len() > 6 {
            self.rules.remove(0);
        }
        vec![family(six, &format!("rule add pref {pref}{selector} {action}"))]
    }

    pub(super) fn rule_del(&mut self) -> Step {
        if self.rules.is_empty() {
            return Step::new();
        }
        let at = self.random.below(self.rules.len());
        let command = self.rules[at].clone();
        vec![node(format!("ip {command}"))]
    }

    /// Every rule twice: the kernel keeps equal rules if a message does not forbid it.
    pub(super) fn rule_twice(&mut self) -> Step {
        let six = if self.random.one_in(2) { "-6 " } else { "" };
        if self.doubled > 2 || !self.may("rule-twice") {
            return Step::new();
        }
        self.doubled += 1;
        vec![node(format!("sh ip {six}rule save | ip {six}rule restore"))]
    }

    /// The first rule moves behind others, or back.
    pub(super) fn rule_local(&mut self) -> Step {
        let six = self.random.one_in(2);
        if self.random.one_in(2) {
            vec![family(six, "rule add pref 32765 table local"), family(six, "rule del pref 0")]
        } else {
            vec![family(six, "rule add pref 0 table local"), family(six, "rule del pref 32765")]
        }
    }
}
