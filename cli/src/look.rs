//! Looking at what a daemon pinned, with or without it.

use anyhow::{anyhow, bail};
use serde_json::Value;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::time::Duration;
use trieline_dataplane::{Error, View, open_readonly};
use trieline_node::control::{self, Request};
use trieline_node::filter::JobStatus;
use trieline_node::instance::{self, Instance, is_hidden};

/// Opens what is pinned.
pub fn open(instance: &Instance) -> anyhow::Result<View> {
    match open_readonly(&instance.pins()) {
        Err(_) if is_hidden() => Err(instance::Error::Hidden.into()),
        Err(Error::NotPinned { .. }) if ask(instance, &Request::Status, |_| false)?.is_none() => {
            Err(anyhow!(
                "trielined runs, but `trieline node detach` has removed its tables: the kernel forwards alone until trielined is started anew"
            ))
        }
        Err(error @ Error::NotPinned { .. }) => Err(anyhow!(
            "{error} (no trielined was started in this network namespace; another one? -n NETNS)"
        )),
        opened => Ok(opened?),
    }
}

/// Asks the daemon; `each` gets every line of its answer until it says false. The error of there being no daemon comes back
/// as a value, for callers that can do without one.
pub fn ask(
    instance: &Instance,
    request: &Request,
    each: impl FnMut(Value) -> bool,
) -> anyhow::Result<Option<control::Error>> {
    match control::ask(&instance.socket(), request, each) {
        Ok(()) => Ok(None),
        Err(control::Error::NotRunning { path, source }) if source.kind() == ErrorKind::PermissionDenied => {
            bail!("asking trielined needs root: {}: {source}", path.display())
        }
        Err(absent @ control::Error::NotRunning { .. }) => Ok(Some(absent)),
        Err(error) => Err(error.into()),
    }
}

/// The one line of an answer; an error inside is that there is no daemon.
pub fn one(instance: &Instance, request: &Request) -> anyhow::Result<anyhow::Result<Value>> {
    let mut answer = Value::Null;
    let absent = ask(instance, request, |line| {
        answer = line;
        false
    })?;
    Ok(absent.map_or(Ok(answer), |error| Err(error.into())))
}

/// Has files read, and waits until what they say is in force; returns the keys that only a restart follows.
pub fn job(instance: &Instance, request: &Request) -> anyhow::Result<Vec<String>> {
    let answer = one(instance, request)??;
    let Some(job) = answer.get("job").and_then(Value::as_u64) else {
        bail!("trielined answered {answer}; expected a job");
    };
    loop {
        let status: JobStatus = serde_json::from_value(one(instance, &Request::Job { job })??)?;
        match status {
            JobStatus { failed: Some(error), .. } => bail!("{error}; nothing has changed"),
            JobStatus { done: true, waits, .. } => return Ok(waits),
            JobStatus { .. } => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

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
        let ask = || rustix::net::netdevice::index_to_name_inlined(socket()?, ifindex).ok();
        let socket_name = || ask().map(|name| name.as_str().to_owned());
        self.0.entry(ifindex).or_insert_with(|| socket_name().unwrap_or_else(|| ifindex.to_string())).clone()
    }
}

fn socket() -> Option<std::os::fd::OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::DGRAM, None).ok()
}
