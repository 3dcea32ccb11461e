//! Shared by several commands: the daemon's answers, names of devices, numbers in words.

use std::collections::HashMap;

pub use trieline_router::api::client::{claim_capture, job, one, one_within, open, send_request};

/// A number of things: `1 device`, `2 devices`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// Device names by number, asked for once.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// The name of a device of this network namespace, or its number when it has none.
    pub fn get(&mut self, ifindex: u32) -> String {
        let name = || find_name(ifindex).unwrap_or_else(|| ifindex.to_string());
        self.0.entry(ifindex).or_insert_with(name).clone()
    }
}

/// The name of a device of this network namespace.
pub fn find_name(ifindex: u32) -> Option<String> {
    let name = rustix::net::netdevice::index_to_name_inlined(socket()?, ifindex).ok()?;
    Some(name.as_str().to_owned())
}

fn socket() -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None).ok()
}
