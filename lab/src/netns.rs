//! The lab's network namespaces, what killed runs left of them, and the CPU that the calling thread stays on.

use std::fs;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use trieline_testbed::{
    command,
    daemon::Programs,
    namespace::{self, Namespace},
};

use crate::{
    Context,
    error::{During, Error, Result},
    measure::Gate,
};

/// The first word of the names of the lab's namespaces.
const PREFIX: &str = "tllab";

/// Makes one whose name ends in `role`, unique in this machine.
pub fn create(role: &str) -> Result<Namespace> {
    Ok(Namespace::create(PREFIX, role)?)
}

/// Runs `ip ARGS -batch -` with `lines`, and shows how many are through.
pub fn ip_batch(args: &[&str], lines: impl Iterator<Item = String>, context: &Context) -> Result<()> {
    let done = command::ip_batch(args, lines, |_| {
        context.progress.advance(1024);
        !context.interrupted()
    });
    context.check()?;
    Ok(done?)
}

/// This process's namespaces that are still there: once an experiment is over none, unless removing one failed.
pub fn left() -> Vec<String> {
    namespace::left(PREFIX)
}

/// Takes down what killed runs left: daemons, their forwarding and namespaces whose names are of our form and whose process is
/// gone. Tells `note` of each. It skips leftovers that it cannot remove.
pub fn remove_leftovers(programs: Option<&Programs>, note: &dyn Fn(&str)) {
    for leftover in namespace::leftovers(PREFIX) {
        let (name, maker) = (&leftover.name, leftover.maker);
        leftover.end_daemons();
        if let Some(Err(error)) = programs.map(|programs| programs.detach(name)) {
            note(&format!("{name}: left by a killed run (process {maker}): {error}"));
        }
        match leftover.remove() {
            Ok(()) => note(&format!("removed {name}, left by a killed run (process {maker})")),
            Err(error) => {
                note(&format!("{name}, left by a killed run (process {maker}), not removed: {error}"))
            }
        }
    }
}

/// Keeps the calling thread on one CPU, the last (interrupts and daemons tend to be on the first). It lets hardly anybody
/// interrupt it: other programs' time would count as ours. Returns the CPU.
pub fn measure_here() -> Result<u32> {
    let last = last_cpu()?;
    pin_to(last as usize)?;
    insist_here()?;
    Ok(last)
}

/// The last CPU that is online.
pub fn last_cpu() -> Result<u32> {
    const ONLINE: &str = "/sys/devices/system/cpu/online";
    let online = fs::read_to_string(ONLINE).during(|| ONLINE.into())?;
    // Ranges in order: "0-3,8".
    Ok(online.trim().rsplit([',', '-']).next().and_then(|cpu| cpu.parse().ok()).unwrap_or(0))
}

/// An even and an odd CPU that this thread may run on. A veth with two queues takes what they send to its first and to its second one. An
/// error if there are no two.
pub(crate) fn two_cpus() -> Result<[usize; 2]> {
    let may = sched_getaffinity(None).during(|| "cannot read this thread's CPUs".into())?;
    let cpus = || (0..CpuSet::MAX_CPU).filter(|cpu| may.is_set(*cpu));
    let even = cpus().find(|cpu| cpu % 2 == 0);
    even.zip(cpus().rfind(|cpu| cpu % 2 == 1)).map(|(even, odd)| [even, odd]).ok_or(Error::OneProcessor)
}

/// Keeps the calling thread on a CPU.
pub(crate) fn pin_to(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).during(|| format!("cannot pin to CPU {cpu}"))
}

/// Does some work between two readings of the calibration loop on each of these CPUs: for work that other threads do there.
pub(crate) fn between<T>(gate: &mut Gate, cpus: &[usize], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut read = || {
        for cpu in cpus {
            let reading = std::thread::scope(|scope| {
                let reading = scope.spawn(|| pin_to(*cpu).map(|()| Gate::seconds()));
                reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            gate.add(reading?);
        }
        Ok::<_, Error>(())
    };
    read()?;
    let done = work()?;
    read()?;
    Ok(done)
}

/// Gives the calling thread precedence; needs root.
pub(crate) fn insist_here() -> Result<()> {
    // Of the calling thread alone, which ends with the experiment.
    rustix::process::setpriority_process(None, -20).during(|| "cannot raise this thread's priority".into())
}

/// Gives the calling thread the usual precedence again.
pub(crate) fn usual_here() -> Result<()> {
    rustix::process::setpriority_process(None, 0).during(|| "cannot set this thread's priority".into())
}

/// The first and the last CPU that the calling thread may use.
pub(crate) fn cpus_here() -> Result<(usize, usize)> {
    let set = rustix::thread::sched_getaffinity(None).during(|| "cannot read this thread's CPUs".into())?;
    let usable = || (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok((usable().next().unwrap_or(0), usable().next_back().unwrap_or(0)))
}
