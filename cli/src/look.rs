//! Looking at what a daemon pinned, with or without it.

use std::collections::HashMap;
use trieline_dataplane::{View, open_readonly};
use trieline_node::instance::{self, Instance, is_hidden};

/// Opens what is pinned.
pub fn open(instance: &Instance) -> anyhow::Result<View> {
    match open_readonly(&instance.pins()) {
        Err(_) if is_hidden() => Err(instance::Error::Hidden.into()),
        opened => Ok(opened?),
    }
}

/// Device names by number, asked for once.
#[derive(Debug, Default)]
pub struct Names(HashMap<u32, String>);

impl Names {
    /// The name of a device of this network namespace, or its number when it has none.
    pub fn get(&mut self, ifindex: u32) -> String {
        let ask = || rustix::net::netdevice::index_to_name_inlined(socket()?, ifindex).ok();
        let socket_name = || ask().map(|name| name.as_str().to_owned());
        self.0.entry(ifindex).or_insert_with(|| socket_name().unwrap_or_else(|| ifindex.to_string())).clone()
    }
}

fn socket() -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None).ok()
}
