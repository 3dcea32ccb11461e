//! Network namespaces made through `ip`, entered by a thread, and gone when dropped.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_setaffinity};

use crate::{
    command,
    daemon::Product,
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
        let file = File::open(&path).during(|| format!("cannot open {path}"));
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
        let back = File::open(path).during(|| format!("cannot open {path}"))?;
        switch(&self.file).during(|| format!("cannot enter namespace {}", self.name))?;
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

/// Takes down what killed runs left: daemons, their forwarding and namespaces whose names are of our form and whose process is
/// gone. Tells `note` of each. It skips leftovers that it cannot remove.
pub fn remove_leftovers(product: Option<&Product>, note: &dyn Fn(&str)) {
    let there = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in there.map(|entry| entry.file_name().to_string_lossy().into_owned()) {
        let Some(pid) = maker(&name) else { continue };
        if Path::new(&format!("/proc/{pid}")).exists() {
            continue;
        }
        end_daemons(&name);
        if let Some(product) = product {
            let trieline = product.trieline.display().to_string();
            if let Err(error) = command::run(&trieline, &["-n", &name, "node", "detach"]) {
                note(&format!("{name}: left by a killed run (process {pid}): {error}"));
            }
        }
        match command::ip(&["netns", "del", &name]) {
            Ok(_) => note(&format!("removed {name}, left by a killed run (process {pid})")),
            Err(error) => {
                note(&format!("{name}, left by a killed run (process {pid}), not removed: {error}"))
            }
        }
    }
}

/// The process that made a namespace of this name; none when the name is not of our form.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.strip_prefix('-')?.splitn(3, '-');
    let (pid, number, role) = (parts.next()?, parts.next()?, parts.next()?);
    number.parse::<u32>().ok().filter(|_| !role.is_empty())?;
    pid.parse().ok()
}

/// Ends every `trielined` in a namespace. The run that started it cannot any more.
fn end_daemons(namespace: &str) {
    let listed = command::ip(&["netns", "pids", namespace]).unwrap_or_default();
    for pid in listed.lines().filter_map(|line| line.trim().parse().ok()) {
        let is_daemon =
            || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "trielined\n");
        let Some(process) = Pid::from_raw(pid).filter(|_| is_daemon()) else { continue };
        let _ = kill_process(process, Signal::TERM);
        let until = Instant::now() + Duration::from_secs(5);
        while is_daemon() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
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
    let cpu = pin_here()?;
    insist_here()?;
    Ok(cpu)
}

/// Keeps the calling thread on the last CPU that is online, whatever it was kept on before; which one.
pub(crate) fn pin_here() -> Result<u32> {
    const ONLINE: &str = "/sys/devices/system/cpu/online";
    let online = fs::read_to_string(ONLINE).during(|| ONLINE.into())?;
    // Ranges in order: "0-3,8".
    let last = online.trim().rsplit([',', '-']).next().and_then(|cpu| cpu.parse().ok()).unwrap_or(0);
    pin_to(last as usize)?;
    Ok(last)
}

/// Keeps the calling thread on a CPU.
pub(crate) fn pin_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).during(|| format!("cannot pin to CPU {cpu}"))
}

/// Gives the calling thread precedence; needs root.
pub(crate) fn insist_here() -> Result<()> {
    // Of the calling thread alone, which ends with the experiment.
    rustix::process::setpriority_process(None, -20).during(|| "cannot raise this thread's priority".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_form_have_a_maker() {
        assert_eq!(maker("tllab-1234-0-gen"), Some(1234));
        for other in
            ["tllab", "tllab-1234", "tllab-1234-gen", "tllab-x-0-gen", "tllab-1-0-", "tllabs-1-0-gen", "x"]
        {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
