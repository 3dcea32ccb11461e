//! One device: driver, XDP, MTU, queues, interrupts, and who else is there.

use super::finding::Finding;
use super::offloads;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trieline_router::api::instance::Instance;
use trieline_router::daemon::rehearsal::Rehearsal;
use trieline_router::daemon::veth::{CUTS, cuts};
use trieline_router::kernel::ethtool;
use trieline_router::kernel::link::{Link, hardware_folder};
use trieline_router::{AttachMode, DriverXdp, driver_xdp, occupant};

/// Bytes of a page that a frame in one buffer cannot have. They are XDP's headroom, the kernel's record behind the frame, Ethernet header and
/// checksum, and a VLAN tag, as the driver `ena` counts them.
const OUTSIDE: u32 = 256 + 320 + 14 + 4 + 4;

/// The answers of a device and its hardware.
#[derive(Debug, Default)]
pub struct Looked {
    /// Its driver, or the kind of link.
    pub driver: String,
    /// Mbit/s.
    pub speed: Option<u32>,
    queues: Option<u32>,
    /// Names of the features that are on.
    features: Option<Vec<String>>,
    xdp: Option<DriverXdp>,
    numa: Option<i32>,
    /// Processors that its interrupts come to.
    processors: BTreeSet<u32>,
}

/// Looks at a device. Fields without an answer stay empty.
pub fn look(link: &Link) -> Looked {
    let folder = hardware_folder(link.ifindex).ok().flatten();
    let driver = folder.as_ref().and_then(|folder| fs::read_link(folder.join("driver")).ok());
    let driver = driver.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let hardware = ethtool::hardware(link.ifindex).unwrap_or_default();
    let numa = folder.as_ref().and_then(|folder| fs::read_to_string(folder.join("numa_node")).ok());
    Looked {
        driver: driver.unwrap_or_else(|| link.kind.clone()),
        speed: hardware.speed,
        queues: hardware.queues,
        features: ethtool::active_features(link.ifindex).ok(),
        xdp: driver_xdp(link.ifindex),
        numa: numa.and_then(|text| text.trim().parse().ok()).filter(|node| *node >= 0),
        processors: folder.map(|folder| processors(&folder)).unwrap_or_default(),
    }
}

/// Processors that the interrupts of a piece of hardware come to; a virtio device has those of the PCI device above it.
fn processors(folder: &Path) -> BTreeSet<u32> {
    let above = fs::canonicalize(folder).ok().and_then(|path| path.parent().map(Path::to_owned));
    let folders = std::iter::once(folder.to_owned()).chain(above);
    let mut listed = folders.filter_map(|folder| fs::read_dir(folder.join("msi_irqs")).ok());
    let numbers = listed.next().into_iter().flatten().flatten();
    let lists = numbers.filter_map(|entry| {
        let number = entry.file_name();
        fs::read_to_string(Path::new("/proc/irq").join(number).join("effective_affinity_list")).ok()
    });
    lists.flat_map(|list| members(list.trim())).collect()
}

/// The numbers of a list as the kernel writes it, such as `0-3,8`.
fn members(list: &str) -> Vec<u32> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

/// Findings about one device.
pub fn findings(
    rehearsal: &Rehearsal,
    link: &Link,
    looked: &Looked,
    mode: AttachMode,
    instance: &Instance,
) -> Vec<Finding> {
    let name = link.name.as_str();
    if link.is_loopback() {
        let what = "the loopback: only this node's own packets come by it, and XDP forwards none of them";
        return vec![Finding::no_go(name, what, "leave it out of `devices`")];
    }
    let mut findings = Vec::new();
    let speed = looked.speed.map_or_else(|| "speed unknown".into(), |speed| format!("{speed} Mbit/s"));
    let driver = if looked.driver.is_empty() { "unknown" } else { &looked.driver };
    findings.push(Finding::go(name, format!("driver {driver}, MTU {}, {speed}", link.mtu)));
    if link.mac.is_none() {
        let what =
            "its packets have no Ethernet header (as of tun, ppp, WireGuard): XDP forwards none of them";
        findings.push(Finding::no_go(name, what, "leave it out of `devices`"));
    } else if mode == AttachMode::Native {
        findings.push(native(name, link, looked));
    }
    if cuts(link, mode) {
        findings.push(Finding::warn(name, CUTS, "trielined --generic"));
    }
    if let Some(limit) =
        looked.xdp.and_then(|xdp| mtu_limit(xdp, mode, page_size())).filter(|limit| link.mtu > *limit)
    {
        let what = format!(
            "MTU {} is more than {limit}: the driver does not support XDP multi-buffer frames",
            link.mtu
        );
        findings.push(Finding::no_go(name, what, format!("ip link set dev {name} mtu {limit}")));
    }
    if let Some(other) = occupant(link.ifindex, &instance.pins()) {
        let what = format!("XDP is taken by program `{}` (id {})", other.name, other.program);
        let mend = match other.link {
            Some(id) => format!("bpftool link detach id {id}"),
            None => format!("ip link set dev {name} xdp off"),
        };
        findings.push(Finding::no_go(name, what, mend));
    }
    findings.extend(offloads::findings(name, &link.kind, looked.features.as_deref(), mode));
    if !link.is_up() {
        findings.push(Finding::warn(name, "the device is down", format!("ip link set dev {name} up")));
    }
    if let Some(master) =
        link.master.and_then(|master| rehearsal.link(master)).filter(|master| master.vrf_table.is_none())
    {
        let what = format!(
            "it is a port of {} ({}), which takes its packets before they are routed",
            master.name, master.kind
        );
        findings.push(match master.kind.as_str() {
            "bond" => Finding::no_go(name, what, format!("--dev {} instead", master.name)),
            "bridge" => {
                let what = format!("{what}: XDP forwards none of them, and filters alone hold there");
                let mend = format!("ip link set dev {name} nomaster; or --generic --dev {}", master.name);
                Finding::no_go(name, what, mend)
            }
            _ => Finding::no_go(name, what, format!("ip link set dev {name} nomaster")),
        });
    }
    for (family, key) in rehearsal.not_forwarded(link.ifindex) {
        let what = format!("forwarding of {family} is off; the kernel gets its packets");
        findings.push(Finding::warn(name, what, format!("sysctl -w {key}=1")));
    }
    findings.extend(queues(name, looked));
    findings
}

fn native(name: &str, link: &Link, looked: &Looked) -> Finding {
    match looked.xdp {
        None => {
            let what = "unknown what the driver can do with XDP: the kernel reports it since Linux 6.3";
            Finding::warn(
                name,
                what,
                format!("trielined --dev {name}: it refuses a driver without native XDP"),
            )
        }
        Some(xdp) if !xdp.native => {
            Finding::no_go(name, "its driver has no native XDP", "trielined --generic")
        }
        Some(xdp) if !xdp.source => {
            Finding::no_go(name, "its driver cannot redirect frames", "trielined --generic")
        }
        Some(xdp) if !xdp.target && link.kind == "veth" => {
            let what = "native XDP; the device drops redirected frames until its peer has GRO or XDP";
            Finding::warn(name, what, "ethtool -K PEER gro on, where the peer is")
        }
        Some(xdp) if !xdp.target => Finding::warn(
            name,
            "native XDP; the driver takes redirected frames only while a program is attached, if at all",
            "trieline node status, once trielined runs: it lists no-xdp-xmit for a device that takes none",
        ),
        Some(_) => Finding::go(name, "native XDP; source and target of redirected frames"),
    }
}

/// The largest MTU with XDP; `None`: there is none.
fn mtu_limit(xdp: DriverXdp, mode: AttachMode, page: u32) -> Option<u32> {
    (mode == AttachMode::Native && xdp.native && !xdp.frags).then(|| page - OUTSIDE)
}

fn page_size() -> u32 {
    rustix::param::page_size() as u32
}

/// Queues against processors, and where their interrupts go.
fn queues(name: &str, looked: &Looked) -> Vec<Finding> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let mut findings = Vec::new();
    match looked.queues {
        Some(queues) if queues < processors => findings.push(Finding::warn(
            name,
            format!(
                "{queues} receive queues for {processors} processors: so many at most forward its packets"
            ),
            format!("ethtool -L {name} combined {processors}"),
        )),
        Some(queues) => {
            findings.push(Finding::go(name, format!("{queues} receive queues for {processors} processors")))
        }
        None => findings
            .push(Finding::go(name, "number of receive queues unknown: the driver does not report it")),
    }
    let own: Option<BTreeSet<u32>> = looked.numa.and_then(|node| {
        let list = fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist")).ok()?;
        Some(members(list.trim()).into_iter().collect())
    });
    if let Some(away) = own.map(|own| looked.processors.difference(&own).count()).filter(|away| *away > 0) {
        let what = format!(
            "interrupts come to {away} processors of another NUMA node than its own ({})",
            looked.numa.unwrap_or(0)
        );
        let mend = "write near processors to /proc/irq/NUMBER/smp_affinity_list";
        findings.push(Finding::warn(name, what, mend));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        assert_eq!(members("0-2,8"), [0, 1, 2, 8]);
        assert!(members("").is_empty());
    }

    #[test]
    fn only_native_drivers_of_one_buffer_limit_the_mtu() {
        let one = DriverXdp { native: true, source: true, target: true, frags: false };
        assert_eq!(mtu_limit(one, AttachMode::Native, 4096), Some(3498));
        assert_eq!(mtu_limit(DriverXdp { frags: true, ..one }, AttachMode::Native, 4096), None);
        assert_eq!(mtu_limit(one, AttachMode::Generic, 4096), None);
    }
}
