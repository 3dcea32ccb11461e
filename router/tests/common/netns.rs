//! Network namespaces with veth pairs: sender, node, receiver.
//!
//! ```text
//!   a                n                        b
//!   a0 ------------- n0          n1 ------------- b0
//!   SENDER_MAC       PORT_MAC    OUT_MAC          NEXT_HOP_MAC
//! ```

use trieline_testbed::command::sh;
use trieline_testbed::namespace::{End, Namespace, veth};
use trieline_testbed::socket::RawSocket;

use super::PORT_MAC;
use super::packet::{NEXT_HOP_MAC, OUT_MAC, SENDER_MAC};

/// The three namespaces; gone when dropped.
pub struct Line([Namespace; 3]);

impl Line {
    pub fn new() -> Self {
        let line = Self(["a", "n", "b"].map(Namespace::new));
        let [a, n, b] = &line.0;
        for namespace in &line.0 {
            namespace.sysctl("net.ipv6.conf.all.accept_dad", "0");
            namespace.sysctl("net.ipv6.conf.default.accept_dad", "0");
        }
        let end = |namespace, device, mac| End { namespace, device, mac };
        for [near, far] in [
            [end(a, "a0", SENDER_MAC), end(n, "n0", PORT_MAC)],
            [end(n, "n1", OUT_MAC), end(b, "b0", NEXT_HOP_MAC)],
        ] {
            veth(near, far).unwrap();
            for end in [near, far] {
                end.namespace.ip(&format!("link set {} up", end.device));
            }
        }
        line
    }

    fn namespace(&self, name: &str) -> &Namespace {
        &self.0[["a", "n", "b"].iter().position(|role| *role == name).unwrap()]
    }

    /// The name of a namespace ("a", "n", "b").
    pub fn name(&self, namespace: &str) -> &str {
        self.namespace(namespace).name()
    }

    /// Runs a script in a namespace ("a", "n", "b").
    pub fn sh(&self, namespace: &str, script: &str) {
        self.within(namespace, || sh(script));
    }

    /// Does `work` with this thread in a namespace.
    pub fn within<T>(&self, namespace: &str, work: impl FnOnce() -> T) -> T {
        let _inside = self.namespace(namespace).enter_here().unwrap();
        work()
    }

    /// A raw socket on a device of a namespace.
    pub fn socket(&self, namespace: &str, device: &str) -> RawSocket {
        RawSocket::open(self.namespace(namespace), device)
    }

    pub fn ifindex(&self, namespace: &str, device: &str) -> u32 {
        self.namespace(namespace).ifindex(device).unwrap()
    }
}
