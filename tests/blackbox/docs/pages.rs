//! A test for each page that shows commands: they run in order, in surroundings that the page's reader has.

use super::page::{blocks, pages};
use super::run::Page;
use std::collections::BTreeMap;
use std::fs;

/// A test for each page, and the list of them.
macro_rules! pages {
    ($($test:ident: $name:literal, $page:expr;)*) => {
        /// Pages whose commands run.
        const RUN: &[&str] = &[$($name),*];
        $(#[test]
        fn $test() {
            $page.run($name);
        })*
    };
}

/// Reasons for which no test runs a block, and how many blocks may have each.
const REASONS: [(&str, usize); 6] = [
    // For minutes, and it may install packages.
    ("it compiles a release", 2),
    // tests/blackbox/walk.rs walks for a short while; the kernel's own tests need a package of its sources.
    ("it takes minutes to hours", 2),
    // It installs packages, which that test does in a system of its own.
    ("tests/blackbox/package.rs runs it", 1),
    // There the library is built, and this box does not need it.
    ("examples/acl/tests/acl.rs runs it", 1),
    // Their drivers have XDP transmit and counters, which no device of a namespace has.
    ("it needs two devices joined by a cable", 1),
    // lab/tests/figures.rs compares the pages with the documents.
    ("it writes the pages of the repository", 1),
];

const ROUTER: &str = include_str!("beds/router.sh");
const FORWARDING: &str = include_str!("beds/forwarding.sh");
const MESSAGES: &str = include_str!("beds/messages.sh");
const NGINX: &str = include_str!("beds/nginx.sh");

/// Packets that the container sends to an address leave by XDP. `node status` counts each twice: at its device, and in the sum.
macro_rules! forwarded {
    ($to:literal) => {
        concat!(
            "forwarded() { trieline node status | awk '$2 == \"forward\" { sum += $1 } END { print sum + 0 }'; }
             before=$(forwarded)
             for n in 1 2 3 4 5; do ip netns exec container bash -c 'echo . >/dev/udp/",
            $to,
            "/9'; done
             test $(forwarded) -ge $((before + 10))"
        )
    };
}

pages! {
    the_readme_works: "README.md", Page {
        bed: &[include_str!("beds/readme.sh")],
        ..Page::default()
    };
    install_works: "install.md", Page {
        bed: &[include_str!("beds/readme.sh")],
        effects: &[("sudo install", "cmp /usr/sbin/trielined $PROGRAMS/trielined")],
        ..Page::default()
    };
    route_works: "route.md", Page {
        bed: &[ROUTER, include_str!("beds/route.sh")],
        effects: &[
            ("trielined --dev", "ip netns exec container ping -c 1 -W 1 192.0.2.1"),
            ("ip netns exec container ethtool", forwarded!("192.0.2.1")),
            ("trieline node reload", "trieline route get 10.7.0.2 --iif eth1 | grep 'in 10.7.0.0/24'"),
            ("ip neigh add", "trieline route get 10.7.0.2 --iif eth1 | grep 'forward.* 02:00:00:00:07:02'"),
            ("ip neigh add", forwarded!("10.7.0.2")),
        ],
        codes: &[("trieline route get 192.0.2.1 198.51.100.1", &[1])],
        ..Page::default()
    };
    filter_works: "filter.md", Page {
        bed: &[ROUTER, FORWARDING, include_str!("beds/filter.sh")],
        effects: &[(
            "trielined &",
            "ip netns exec container ping -c 1 -W 1 -I 192.0.2.7 10.2.0.2 &&
             ! ip netns exec container ping -c 1 -W 1 -I 203.0.113.7 10.2.0.2 &&
             trieline filter show threats | grep ' [1-9][0-9]* packets'",
        )],
        codes: &[("trieline filter reload monitoring", &[1])],
        ..Page::default()
    };
    srv6_works: "srv6.md", Page {
        bed: &[ROUTER, FORWARDING, include_str!("beds/srv6.sh")],
        effects: &[(
            "ip -6 route add fd00:a::4",
            "ip netns exec container ping -c 1 -W 1 198.51.100.1 &&
             trieline sid show | grep '[[]end_dx4 .* [1-9][0-9]* packet'",
        )],
        ..Page::default()
    };
    operation_works: "operation.md", Page {
        needs: &["tshark"],
        bed: &[ROUTER, FORWARDING, include_str!("beds/operation.sh")],
        before: &[
            ("trieline node audit", "until trieline node status | grep ^running; do sleep 0.1; done"),
            (
                "trieline node status",
                "until trieline sid show | grep '[[]end_dx4 .* [1-9][0-9]* packet'; do sleep 0.1; done",
            ),
        ],
        until: &[
            ("trieline top", "grep '^End.DX4 fd00:a::1' $OUTPUT"),
            ("trieline capture -w", "test $(stat -c %s all.pcapng) -gt 4000"),
        ],
        // Some packets of the file may be the kernel's, such as ARP.
        codes: &[("trieline route get --packet all.pcapng", &[0, 1])],
        effects: &[
            ("trieline node status", "grep ' forward end_dx4' $OUTPUT && grep ' forward ipv4' $OUTPUT"),
            ("trieline sid show", "grep 'fd00:a::1 .* packets' $OUTPUT"),
            ("trieline capture -w", "tshark -r all.pcapng -T fields -e frame.comment | grep 'forward end_dx4'"),
            ("trieline capture --dev", "grep 'ICMP 162 Echo (ping) request' $OUTPUT && ! grep reply $OUTPUT"),
            ("trieline route get --packet all.pcapng  ", "grep '^forward end_dx4' $OUTPUT"),
            ("trieline route get --packet all.pcapng --summary", "grep ' forward end_dx4' $OUTPUT"),
            ("trieline route get --packet all.pcapng --against", "grep 'forward ipv4 out eth1 via 10.1.0.2 -> pass' $OUTPUT"),
        ],
        ..Page::default()
    };
    metrics_work: "metrics.md", Page {
        needs: &["curl"],
        bed: &[ROUTER, FORWARDING, "trielined --dev eth1 --dev eth2 &\ndisown -a"],
        effects: &[
            ("trieline metrics serve", "curl -s http://127.0.0.1:9464/metrics | grep '^trieline_routes{family=\"inet\"} [1-9]'"),
        ],
        ..Page::default()
    };
    sid_hooks_work: "sid-hooks.md", Page {
        needs: &["clang-19", "gcc", "tshark"],
        bed: &[ROUTER, FORWARDING, include_str!("beds/sid-hooks.sh")],
        effects: &[
            (
                "trielined &",
                "for sid in 1 2 3; do ip netns exec container ping -c 1 -W 1 198.51.100.$sid || exit; done
                 ! ip netns exec container ping -c 1 -W 1 -I 203.0.113.7 198.51.100.1",
            ),
            ("trieline sid show", "tshark -r /var/log/trieline/look.pcapng | grep ICMP"),
            // The SID's argument is the DSCP.
            (
                "trieline sid show",
                "timeout -s INT 5 trieline capture --sid fd00:a::3 --count 1 -w mine.pcapng &
                 for n in 1 2 3 4 5; do ip netns exec container ping -c 1 -W 1 198.51.100.3; sleep 0.2; done
                 wait; tshark -r mine.pcapng -Y 'ip.dsfield.dscp == 3' | grep ICMP",
            ),
        ],
        ..Page::default()
    };
    tables_work: "tables.md", Page {
        needs: &["clang-19", "gcc"],
        bed: &[include_str!("beds/tables.sh")],
        ..Page::default()
    };
    tries_work: "tries.md", Page {
        bed: &[include_str!("beds/tries.sh")],
        effects: &[("trieline ", "grep '<svg' routes-fib.svg")],
        ..Page::default()
    };
    measure_works: "measure.md", Page {
        bed: &[include_str!("beds/lab.sh")],
        instead: &[
            (
                "trieline lab run forward --quick",
                "--quick",
                "--quick --rounds 1 --frames 2000 --only ipv4 --table ROUTES.txt.gz",
            ),
            ("trieline lab run forward --table", "ROUTES.txt.gz", "ROUTES.txt.gz --quick --rounds 1 --frames 2000 --only ipv4"),
            ("trieline lab run map-tables", "--save", "--save --quick --rounds 1"),
            ("trieline lab run all --quick", "--quick", "--quick --rounds 1 --only trace-hooks"),
            ("trieline lab run throughput --quick", "--quick", "--quick --trial 0.02 --size 64 --path ipv4 --flows 1"),
            ("trieline lab run throughput --size", "--flows 1", "--flows 1 --quick --trial 0.02"),
        ],
        effects: &[
            ("trieline lab list", "grep '^forward ' $OUTPUT"),
            ("trieline lab run map-tables", "ls results/map-tables.json results/map-tables-packet.svg"),
            ("trieline lab run all --quick", "ls results/trace-hooks.json"),
            ("trieline lab run all --quick --resume", "grep '^trace-hooks *skipped ' $OUTPUT"),
            ("trieline lab compare", "grep '^map-tables: A before.json ' $OUTPUT"),
            ("trieline lab report", "grep 'id=\"experiment-map-tables\"' report.html"),
            ("trieline lab table", "test $(grep -vc : $OUTPUT) -ge 100000"),
            // On a busy machine a quick run may end before the second size.
            ("trieline lab run throughput --size", "grep '^decap *xdp *64 *1 ' $OUTPUT"),
            ("trieline lab profile", "python3 -m py_compile mixed.py && grep -c '^    ([17], 0x0800' mixed.py | grep 2"),
        ],
        ..Page::default()
    };
    queues_works: "queues.md", Page {
        instead: &[
            ("trieline lab run rss", "rss", "rss --quick --rounds 1 --flows 300 --packets 4000"),
            ("trieline lab run queues", "queues", "queues --quick --rounds 1 --frames 2000 --only 'xdp 2/2 none balanced'"),
        ],
        effects: &[
            ("trieline lab run rss", "grep '^  ethtool -X DEV hkey 6d:5a:' $OUTPUT"),
            ("trieline lab run queues", "grep '^xdp *none *balanced *2 *2 ' $OUTPUT"),
        ],
        ..Page::default()
    };
    lpm_trie_works: "lpm-trie.md", Page {
        instead: &[
            ("trieline lab run map-ops", "10000", "1000 --quick --rounds 1"),
            ("trieline lab run map-curve", "map-curve", "map-curve --entries 10 --quick --rounds 1"),
            ("trieline lab run map-free", "map-free", "map-free --entries 1000 --quick --rounds 1"),
            ("trieline lab run map-tables", "hosts-10000", "hosts-10000 --quick --rounds 1"),
        ],
        ..Page::default()
    };
    trace_works: "trace.md", Page {
        needs: &["redis-server", "nginx", "openssl", "tshark", "python3"],
        bed: &[ROUTER, FORWARDING, MESSAGES, NGINX, include_str!("beds/brokers.sh")],
        attempts: &["trieline trace --comm redis-server"],
        end: CGROUPS,
        instead: &[
            ("trieline trace --", "trace --", "trace --no-cost --"),
            ("trieline trace -p", "trace -p", "trace --no-cost -p"),
            ("trieline trace --client redis-cli --records", "--duration 10", "--duration 4"),
            ("trieline trace -p $(cat /run/redis.pid) --records", "--duration 10", "--duration 3"),
            ("trieline trace --", "--duration 10", "--duration 2"),
            ("trieline trace --comm redis-server", "trace --no-cost", "trace"),
            ("trieline trace --comm redis-server", "--duration 6", "--duration 1"),
        ],
        until: &[
            ("trieline trace -p $(cat /run/redis.pid)  ", "grep 'tracing by' $OUTPUT && sleep 2"),
            ("trieline trace node", "test -s node.jsonl && test $(wc -l <node.jsonl) -gt 20"),
        ],
        effects: &[
            ("trieline trace --csv", "grep udp messages.csv"),
            ("trieline trace --container", "grep '<svg' web.svg"),
            ("trieline trace --unit", "grep traceEvents messages.json"),
            ("trieline trace --comm nginx --otlp", "grep resourceSpans spans"),
            ("trieline trace -p $(cat /run/redis.pid) --client", "grep 'A→B' $OUTPUT && grep 'C→D' $OUTPUT"),
            ("trieline trace --comm broker --client sender --stamp", "grep '^[1-9][0-9]* messages stamped' $OUTPUT"),
            ("trieline trace join", "grep 'A→B' $OUTPUT && grep 'C→D' $OUTPUT"),
        ],
        ..Page::default()
    };
    trace_points_work: "trace-points.md", Page {
        needs: &["nginx", "openssl", "cc", "python3"],
        bed: &[MESSAGES, NGINX, include_str!("beds/relay.sh")],
        ..Page::default()
    };
    trace_cost_works: "trace-cost.md", Page {
        // A busy machine is refused.
        codes: &[("trieline trace calibrate", &[0, 1])],
        effects: &[(
            "trieline trace calibrate",
            "grep '^ *udp .* of ' $OUTPUT || grep 'speed changed.* try again on a quieter machine' $OUTPUT",
        )],
        ..Page::default()
    };
}

/// The cgroups of beds/brokers.sh.
const CGROUPS: &str = "cd $(awk '$3 == \"cgroup2\" { print $2; exit }' /proc/mounts) &&
     rmdir docker-$(printf '%064x' $SHELL_PROCESS).scope gateway.service";

#[test]
fn every_page_with_commands_runs() {
    let (mut reasons, mut problems) = (BTreeMap::<String, usize>::new(), Vec::new());
    for page in pages() {
        let name = page.file_name().expect("a page has a name").to_string_lossy().into_owned();
        for block in blocks(&fs::read_to_string(&page).expect("a page can be read")) {
            let at = format!("{name}:{}", block.line);
            match block.not_run() {
                Some(reason) => {
                    println!("{at}: not run: {reason}: {}", block.lines.join("; "));
                    *reasons.entry(reason.to_owned()).or_default() += 1;
                }
                None if block.is_typed() && !RUN.contains(&name.as_str()) => {
                    problems.push(format!("{at}: no test runs {name}"));
                }
                None => {}
            }
            // A block without a language would be text that no test looks at.
            if !["sh", "bash", "console", "toml", "yaml", "c", "text"].contains(&block.language.as_str()) {
                problems.push(format!("{at}: expected sh, console, toml, c or text behind the fence"));
            }
        }
    }
    println!("{} blocks are not run: {reasons:?}", reasons.values().sum::<usize>());
    for (reason, count) in &reasons {
        let most = REASONS.iter().find(|(known, _)| known == reason).map_or(0, |(_, most)| *most);
        if *count > most {
            problems.push(format!(
                "{count} blocks are not run for the reason {reason:?}; expected at most {most}"
            ));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
