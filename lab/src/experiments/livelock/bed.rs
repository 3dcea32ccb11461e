//! The namespaces of `livelock`: a sender's and a receiver's, joined by a veth pair for each receiver, set up as that receiver wants it.

use std::{
    fs,
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use rustix::{
    process::Pid,
    thread::{CpuSet, sched_setaffinity},
};
use trieline_testbed::{
    command,
    namespace::{End, Namespace, veth},
};

use super::receiver::{Napi, Receiver};
use crate::{
    Error,
    error::{During, Result},
    netns,
    object::{Compiled, compiled},
};

/// The sender's program, and AF_XDP's.
pub(super) const COMPILED: fn() -> Compiled = || compiled!("livelock");

/// One receiver's way from the sender.
pub(super) struct Pair {
    pub near_index: u32,
    pub near_mac: [u8; 6],
    pub far_index: u32,
    pub far_mac: [u8; 6],
    pub address: Ipv4Addr,
    /// The thread that polls the receiving end, where there is one.
    pub napi_thread: Option<i32>,
    object: Object,
    _xdp: Option<Link>,
}

/// The namespaces; dropping removes them.
pub(super) struct Bed {
    pub sender: Namespace,
    pub receiver: Namespace,
}

impl Bed {
    pub fn create() -> Result<Bed> {
        let (sender, receiver) = (netns::create("gen")?, netns::create("recv")?);
        for namespace in [&sender, &receiver] {
            for key in ["all", "default"] {
                namespace.write_sysctl(&format!("net/ipv6/conf/{key}/disable_ipv6"), "1")?;
                namespace.write_sysctl(&format!("net/ipv4/conf/{key}/rp_filter"), "0")?;
            }
        }
        receiver.ip_words(&["link", "set", "lo", "up"])?;
        Ok(Bed { sender, receiver })
    }

    /// The pair of one receiver. The kernel's part of a threaded or steered receiver runs on `cpu`.
    pub fn pair(&self, receiver: Receiver, number: u8, cpu: usize) -> Result<Pair> {
        // Names of this process's own: the threads that poll devices are named by them, whatever the namespace.
        let (near, far) =
            (format!("g{:x}{number}", std::process::id()), format!("n{:x}{number}", std::process::id()));
        let (near_mac, far_mac) = ([2, 0x74, 0x6c, 1, 0, number], [2, 0x74, 0x6c, 1, 1, number]);
        let address = Ipv4Addr::new(192, 0, 2, 1 + number);
        veth(
            End { namespace: &self.sender, device: &near, mac: near_mac },
            End { namespace: &self.receiver, device: &far, mac: far_mac },
        )?;
        self.receiver.ip_words(&["address", "add", &format!("{address}/32"), "dev", &far])?;
        for (namespace, device) in [(&self.sender, &near), (&self.receiver, &far)] {
            namespace.ip_words(&["link", "set", device, "up"])?;
            // GRO gives a veth end its NAPI: without one it takes no XDP frames.
            let _inside = namespace.enter_here()?;
            command::output("ethtool", &["-K", device, "gro", "on"])?;
        }
        let object = COMPILED().load(COMPILED().open()?)?;
        let far_index = self.receiver.ifindex(&far)?;
        let xdp = if receiver.is_xsk() {
            let _inside = self.receiver.enter_here()?;
            let program = COMPILED().program_mut(&object, "to_socket")?;
            Some(
                program
                    .attach_xdp(far_index as i32)
                    .during(|| format!("cannot attach the program of {} to {far}", receiver.name()))?,
            )
        } else {
            None
        };
        let mut napi_thread = None;
        match receiver.napi() {
            Napi::Softirq => {}
            Napi::Threaded => {
                self.write_class(&far, "threaded", "1")?;
                napi_thread = Some(pin_napi(&far, cpu)?);
            }
            Napi::Rps => self.write_class(&far, "queues/rx-0/rps_cpus", &mask(cpu))?,
        }
        let near_index = self.sender.ifindex(&near)?;
        Ok(Pair { near_index, near_mac, far_index, far_mac, address, napi_thread, object, _xdp: xdp })
    }

    /// Writes a file of the receiving device in /sys/class/net, which shows a namespace's devices only if it is mounted there.
    fn write_class(&self, device: &str, file: &str, value: &str) -> Result<()> {
        let line = format!("echo {value} > /sys/class/net/{device}/{file}");
        command::ip(&["netns", "exec", self.receiver.name(), "sh", "-c", &line])?;
        Ok(())
    }
}

impl Pair {
    /// The sender's program, loaded for this pair alone.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// Lets the device's program hand frames to an AF_XDP socket, until the socket closes.
    pub fn give_to(&self, socket: u32) -> Result<()> {
        let map = COMPILED().map(&self.object, "sockets")?;
        map.update(&0u32.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
            .during(|| "cannot put the AF_XDP socket into its map".into())
    }
}

/// The mask of one CPU: words of 32 bits in hexadecimal digits with commas between, the lowest last.
fn mask(cpu: usize) -> String {
    let mut words = format!("{:x}", 1u32 << (cpu % 32));
    for _ in 0..cpu / 32 {
        words.push_str(",00000000");
    }
    words
}

/// Finds the thread that polls a device and keeps it on a CPU; its id.
fn pin_napi(device: &str, cpu: usize) -> Result<i32> {
    let name = format!("napi/{device}-");
    let until = Instant::now() + Duration::from_secs(2);
    loop {
        let threads = fs::read_dir("/proc").during(|| "cannot read /proc".into())?.flatten();
        let found = threads.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok()).find(|id| {
            fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|comm| comm.starts_with(&name))
        });
        if let Some(id) = found {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(Pid::from_raw(id), &set)
                .during(|| format!("cannot pin {name} to CPU {cpu}"))?;
            return Ok(id);
        }
        if Instant::now() > until {
            return Err(Error::Unread { path: "/proc".into(), expected: "a thread of threaded NAPI" });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn masks_of_cpus() {
        assert_eq!([0, 1, 31, 33].map(super::mask), ["1", "2", "80000000", "2,00000000"]);
    }
}
