//! The state of the daemon in one line, as `systemctl status` shows it.

use super::Daemon;
use crate::fib::published::Published;
use crate::rib::table::Ip;
use crate::xdp::ports::PortFlags;

impl Daemon {
    /// The state in one line: what XDP forwards, the mirrored routes, and the devices that the program is attached to.
    pub fn state(&self) -> String {
        let devices = &self.ports.names;
        let problems = match self.problems().len() {
            0 => String::new(),
            1 => ", 1 problem".into(),
            count => format!(", {count} problems"),
        };
        format!(
            "{}; {} routes, {} of {} devices{problems}",
            self.forwarding(),
            self.mirror.routes(),
            self.ports.attached_of(&self.mirror.kernel),
            devices.len(),
        )
    }

    fn forwarding(&self) -> &'static str {
        let forwards4 = self.forwards(&self.publisher.v4, |flags| flags.forward4);
        let forwards6 = self.forwards(&self.publisher.v6, |flags| flags.forward6);
        match (forwards4, forwards6) {
            _ if self.is_detached() => "detached: the kernel forwards alone",
            (true, true) => "forwarding",
            (true, false) => "forwarding IPv4 only",
            (false, true) => "forwarding IPv6 only",
            (false, false) => "the kernel forwards alone",
        }
    }

    /// Whether XDP forwards packets of a family.
    pub(super) fn forwards<A: Ip>(&self, published: &Published<A>, any: fn(PortFlags) -> bool) -> bool {
        published.is_current() && !self.is_detached() && self.ports.iter().any(|(_, port)| any(port.flags))
    }
}
