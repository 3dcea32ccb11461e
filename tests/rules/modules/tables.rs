//! The floors of each crate's modules, and the circles among them that are known.

/// The floors of a package's modules, lowest first. Modules on one floor may use each other.
pub(super) const FLOORS: &[(&str, &[&str])] = &[
    (
        "trieline-lpm",
        &["graph prefetch prefix", "key oracle", "prefix_store", "image", "table", "map ops", "io"],
    ),
    (
        "trieline-bpf",
        &["sys probe", "error value", "deferred key", "image_map pins", "grace pages lpm_trie", "tables"],
    ),
    ("trieline-capi", &["error", "entry", "kinds", "handle", "load table"]),
    (
        "trieline-cli",
        &[
            "addresses client command config dissect log",
            "audit check daemon report",
            "capture filter metrics node",
            "extcap route table",
            "sid top",
        ],
    ),
    ("trieline-terminal", &["columns output program progress", "error_report", "pages"]),
    ("trieline-draw", &["scene", "layout", "drawing", "dot svg", "command"]),
    ("trieline-plot", &["draw", "bars curve lines thresholds"]),
    ("trieline-sampling", &["gate samples", "rounds"]),
    (
        "trieline-router",
        &[
            "kernel",
            "xdp",
            "bypass capture drops filter sid_hook srv6::csids srv6::sids",
            "decoders dataplane",
            "rib",
            "fib",
            "srv6 bypass::scan bypass::rx_handler_scan",
            "audit",
            "api",
            "daemon",
        ],
    ),
    (
        "trieline-trace",
        &[
            "backend intf payers runtime usage",
            "error record",
            "decode filter sends user",
            "join",
            "options summary",
            "layout",
            "rings stamps",
            "check hooks",
            "ring",
            "tracer",
            "cost",
        ],
    ),
    (
        "trieline-trace-cli",
        &[
            "calibrate cgroup command errors probes",
            "args records",
            "following liveness node",
            "report",
            "join outputs",
            "trace",
        ],
    ),
    (
        "trieline-lab",
        &[
            "error heap live",
            "load",
            "account",
            "measure object published report tables",
            "results",
            "netns netlink",
            "topology",
            "fork frames redirects sinks xdp_fib",
            "generator traffic flow_sender",
            "rivals",
            "experiments",
            "compare page",
            "commands",
        ],
    ),
    (
        "trieline-tests",
        &["options outcome script", "twin", "frames neighbours verbs", "judge", "report shrink"],
    ),
    ("trieline-testbed", &["bpffs command craft daemon error namespace packets random skip socket wire bed"]),
];

/// Files that count for themselves and not as part of their folder, in the table above, too. The maps of SRv6 lie below what
/// resolves its routes. The state of what XDP bypasses lies below what scans for it by the links.
pub(super) const APART: &[(&str, &str)] = &[
    ("trieline-router", "srv6::csids"),
    ("trieline-router", "srv6::sids"),
    ("trieline-router", "bypass::scan"),
    ("trieline-router", "bypass::rx_handler_scan"),
];

/// Circles that are still to be untied: the package, the folder, and the modules in it. `self` is the folder's own file.
pub(super) const KNOWN: &[(&str, &str, &str)] = &[];
