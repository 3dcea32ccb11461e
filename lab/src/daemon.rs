//! Drives the product as a user would: starts `trielined`, asks `trieline`, and takes everything down again.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    error::{During, Error, Result},
    measure::monotonic_ns,
    netns::Netns,
};

/// Where the product's programs are.
#[derive(Clone, Debug)]
pub struct Product {
    /// The command.
    pub trieline: PathBuf,
    /// The daemon.
    pub trielined: PathBuf,
}

impl Product {
    /// The programs beside the one that runs, as installed or as built.
    pub fn beside_me() -> Result<Product> {
        let me = std::env::current_exe().during(|| "cannot find this program".into())?;
        let beside = |name: &str| me.with_file_name(name);
        let product = Product { trieline: beside("trieline"), trielined: beside("trielined") };
        for program in [&product.trieline, &product.trielined] {
            if !program.is_file() {
                return Err(Error::NoProduct(program.clone()));
            }
        }
        Ok(product)
    }
}

/// A running `trielined`; dropping stops it and detaches what it attached.
pub struct Daemon {
    product: Product,
    namespace: String,
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
    started: Instant,
    started_ns: u64,
}

/// Lines of the daemon's log that an error quotes.
const LOG_LINES: usize = 20;

impl Daemon {
    /// Starts `trielined -n NAMESPACE --dev …`, with a configuration file if there is one.
    pub fn start(
        product: &Product,
        namespace: &Netns,
        devices: &[&str],
        configuration: Option<&Path>,
    ) -> Result<Daemon> {
        let mut command = Command::new(&product.trielined);
        command.args(["-n", namespace.name()]);
        if let Some(file) = configuration {
            command.arg("--config").arg(file);
        }
        for device in devices {
            command.args(["--dev", device]);
        }
        // A group of its own: Ctrl-C reaches us, and we end it.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let (started, started_ns) = (Instant::now(), monotonic_ns());
        let mut child = command.spawn().during(|| format!("cannot start {}", product.trielined.display()))?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let reader = child.stderr.take().map(|stderr| {
            let log = log.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
                    let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                    log.push_back(line);
                    if log.len() > LOG_LINES {
                        log.pop_front();
                    }
                }
            })
        });
        let (product, namespace) = (product.clone(), namespace.name().to_owned());
        Ok(Daemon { product, namespace, child, log, reader, started, started_ns })
    }

    /// When it was started, by CLOCK_MONOTONIC.
    pub fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// How long ago it was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// An error when it has ended.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait().during(|| "cannot wait for trielined".into())? {
            None => Ok(()),
            Some(status) => Err(self.failed(format!("trielined ended with {status}"))),
        }
    }

    /// An error with the end of its log.
    pub fn failed(&self, what: String) -> Error {
        // The reader is a moment behind the end of the program.
        std::thread::sleep(Duration::from_millis(50));
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        Error::Daemon { what, stderr: log.iter().cloned().collect::<Vec<_>>().join("\n") }
    }

    /// `trieline -n NAMESPACE -j node status`; none when it does not answer.
    pub fn status(&self) -> Option<serde_json::Value> {
        let output = Command::new(&self.product.trieline)
            .args(["-n", &self.namespace, "-j", "node", "status"])
            .stdin(Stdio::null())
            .output()
            .ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait().during(|| "cannot wait for trielined".into())?.is_none() {
            if let Some(pid) = Pid::from_raw(self.child.id() as i32) {
                kill_process(pid, Signal::TERM).during(|| "cannot stop trielined".into())?;
            }
            let until = Instant::now() + Duration::from_secs(5);
            while self.child.try_wait().during(|| "cannot wait for trielined".into())?.is_none() {
                if Instant::now() > until {
                    self.child.kill().during(|| "cannot kill trielined".into())?;
                    self.child.wait().during(|| "cannot wait for trielined".into())?;
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
        let trieline = self.product.trieline.display().to_string();
        crate::command::run(&trieline, &["-n", &self.namespace, "node", "detach"]).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            tracing::warn!(%error, "trielined not taken down cleanly");
        }
    }
}
