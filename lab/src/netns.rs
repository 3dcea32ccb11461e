//! Network namespaces made through `ip`, entered by a thread, and gone when dropped.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    sync::atomic::{AtomicU32, Ordering},
};

use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use crate::{
    command,
    error::{During, Result},
};

/// Prefix of every namespace the lab makes.
pub const PREFIX: &str = "tllab";

/// A named network namespace; dropping it deletes it and everything inside.
#[derive(Debug)]
pub struct Netns {
    name: String,
    file: File,
}

impl Netns {
    /// Makes one whose name ends in `role`, unique in this machine.
    pub fn create(role: &str) -> Result<Netns> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}-{}-{number}-{role}", std::process::id());
        command::ip(&["netns", "add", &name])?;
        let path = format!("/run/netns/{name}");
        let file = File::open(&path).during(|| format!("opening {path}"));
        match file {
            Ok(file) => Ok(Netns { name, file }),
            Err(error) => {
                let _ = command::ip(&["netns", "del", &name]);
                Err(error)
            }
        }
    }

    /// Its name, for `ip -n`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Moves the calling thread in until the guard is dropped.
    pub fn enter(&self) -> Result<Entered> {
        let path = "/proc/thread-self/ns/net";
        let back = File::open(path).during(|| format!("opening {path}"))?;
        switch(&self.file).during(|| format!("entering namespace {}", self.name))?;
        Ok(Entered { back })
    }

    /// `ip -n NAME args`.
    pub fn ip(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["-n", self.name()];
        all.extend(args);
        command::ip(&all)
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        if let Err(error) = command::ip(&["netns", "del", &self.name]) {
            tracing::warn!(namespace = self.name, %error, "namespace not removed");
        }
    }
}

/// This process's namespaces that are still there: once an experiment is over none, unless removing one failed.
pub fn left() -> Vec<String> {
    let own = format!("{PREFIX}-{}-", std::process::id());
    let there = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    there
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with(&own))
        .collect()
}

/// The calling thread is in another namespace; dropping leaves it.
#[derive(Debug)]
pub struct Entered {
    back: File,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(error) = switch(&self.back) {
            tracing::error!(%error, "thread could not return to its network namespace");
        }
    }
}

fn switch(to: impl AsFd) -> rustix::io::Result<()> {
    move_into_link_name_space(to.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Keeps the calling thread on one CPU, the last (interrupts and daemons tend to be on the first), and lets hardly anybody
/// interrupt it: other programs' time would count as ours. Returns the CPU.
pub fn measure_here() -> Result<u32> {
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut set = CpuSet::new();
    set.set(cpus - 1);
    sched_setaffinity(None, &set).during(|| format!("pinning to CPU {}", cpus - 1))?;
    // Of the calling thread alone, which ends with the experiment.
    rustix::process::setpriority_process(None, -20).during(|| "raising this thread's priority".into())?;
    Ok(cpus as u32 - 1)
}
