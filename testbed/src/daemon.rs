//! `trielined` as a process: started, waited for, stopped or killed; and `trieline` asked about it.

use crate::command::{self, Answer, binary, binary_path, run_with};
use crate::error::{During, Error, Result};
use crate::namespace::Namespace;
use crate::patience;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the product's programs are.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The command.
    pub trieline: PathBuf,
    /// The daemon.
    pub trielined: PathBuf,
}

impl Programs {
    /// Those in the folder of the program that runs, as installed or as built.
    pub fn beside_me() -> Result<Self> {
        let me = std::env::current_exe().during(|| "cannot find this program".into())?;
        let [trieline, trielined] = ["trieline", "trielined"].map(|name| me.with_file_name(name));
        let missing = [&trieline, &trielined].into_iter().find(|program| !program.is_file());
        missing.map_or(Ok(()), |program| Err(Error::NoProgram(program.clone())))?;
        Ok(Self { trieline, trielined })
    }

    /// Those that [`binary`] finds, for tests.
    pub fn built() -> Self {
        Self { trieline: binary("trieline"), trielined: binary("trielined") }
    }

    /// The document that `trieline -j WORDS` prints about a namespace; none when it fails.
    pub fn ask(&self, namespace: &str, words: &[&str]) -> Option<Value> {
        let trieline = self.trieline.to_string_lossy();
        let answer = command::output(&trieline, &[&["-n", namespace, "-j"], words].concat()).ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// Takes the forwarding in a namespace down.
    pub fn detach(&self, namespace: &str) -> Result<()> {
        let trieline = self.trieline.to_string_lossy();
        command::output(&trieline, &["-n", namespace, "node", "detach"]).map(drop)
    }
}

/// A running daemon in a namespace. Dropping it kills the process and removes its forwarding.
pub struct Daemon {
    programs: Programs,
    child: Child,
    namespace: String,
    log: PathBuf,
    notify: Option<UnixDatagram>,
    started: Instant,
    started_ns: u64,
    _directory: tempfile::TempDir,
}

/// Whether each daemon of a test attaches in generic mode (`TRIELINE_TEST_MODE=generic`).
pub fn is_generic() -> bool {
    std::env::var_os("TRIELINE_TEST_MODE").is_some_and(|mode| mode == "generic")
}

/// The words of a daemon's arguments.
fn words(args: &str) -> impl Iterator<Item = &str> {
    let flag = (is_generic() && !args.contains("--generic")).then_some("--generic");
    args.split_whitespace().chain(flag)
}

/// Lines of the daemon's log that an error quotes.
const LOG_LINES: usize = 20;

impl Daemon {
    /// Starts `trielined -n NAMESPACE ARGS` and waits for nothing. `prepare` may change the command.
    pub fn launch(
        programs: Programs,
        namespace: &Namespace,
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self> {
        let cannot = |what: &'static str| move || format!("cannot make the daemon's {what}");
        let directory = tempfile::tempdir().during(cannot("folder"))?;
        let notify_path = directory.path().join("notify");
        let notify = UnixDatagram::bind(&notify_path).during(cannot("notification socket"))?;
        notify.set_read_timeout(Some(Duration::from_millis(50))).during(cannot("timeout"))?;
        let log = directory.path().join("log");
        let stderr = std::fs::File::create(&log).during(cannot("log"))?;
        let mut command = Command::new(&programs.trielined);
        command
            .args(["-n", namespace.name()])
            .env("NOTIFY_SOCKET", &notify_path)
            .env("STATE_DIRECTORY", namespace.state()?)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        prepare(&mut command);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let (started, started_ns) = (Instant::now(), now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64);
        let child = command.spawn().during(|| format!("cannot start {}", programs.trielined.display()))?;
        let namespace = namespace.name().to_owned();
        Ok(Self {
            programs,
            child,
            namespace,
            log,
            notify: Some(notify),
            started,
            started_ns,
            _directory: directory,
        })
    }

    /// Starts `trielined -n NAMESPACE ARGS` and waits until it says (`sd_notify`) that it forwards.
    #[track_caller]
    pub fn start(namespace: &Namespace, args: &str) -> Self {
        Self::start_of(Programs::built(), namespace, args)
    }

    /// The same with other programs than those of this build.
    #[track_caller]
    pub fn start_of(programs: Programs, namespace: &Namespace, args: &str) -> Self {
        let arguments = |command: &mut Command| {
            command.args(words(args));
        };
        let patience = Duration::from_secs_f64(60.0 * patience());
        Self::launch(programs, namespace, arguments)
            .and_then(|mut daemon| daemon.ready(patience, || true).map(|()| daemon))
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// Waits until it says (`sd_notify`) that it forwards, as long as `go_on` says so (it is asked twenty times a second).
    ///
    /// # Errors
    /// With the end of its log if it ends before that, if `patience` is over, or if `go_on` says no.
    pub fn ready(&mut self, patience: Duration, go_on: impl Fn() -> bool) -> Result<()> {
        let end = Instant::now() + patience;
        let mut message = [0u8; 512];
        loop {
            let length = match &self.notify {
                Some(notify) => notify.recv(&mut message).unwrap_or(0),
                None => return Err(self.failed("the notifications of trielined are read elsewhere".into())),
            };
            if String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1") {
                return Ok(());
            }
            self.check()?;
            if Instant::now() >= end || !go_on() {
                return Err(self.failed("trielined is not ready".into()));
            }
        }
    }

    /// Starts it and waits for nothing; what it notifies can be read from the socket.
    #[track_caller]
    pub fn spawn(namespace: &Namespace, args: &str) -> (Self, UnixDatagram) {
        let arguments = |command: &mut Command| {
            command.args(words(args));
        };
        let daemon = Self::launch(Programs::built(), namespace, arguments);
        let mut daemon = daemon.unwrap_or_else(|error| panic!("{error}"));
        let notify = daemon.notify.take().expect("a socket");
        (daemon, notify)
    }

    /// Starts a daemon that is expected to refuse: runs it to its end.
    #[track_caller]
    pub fn refused(namespace: &Namespace, args: &str) -> Answer {
        let seconds = (20.0 * crate::patience()).to_string();
        let state = namespace.state().expect("a folder");
        let state = format!("STATE_DIRECTORY={}", state.display());
        let mut line = vec![state.as_str(), "timeout", "-k", "2", &seconds];
        let program = binary_path("trielined");
        line.extend([program.as_str(), "-n", namespace.name()]);
        line.extend(words(args));
        run_with("env", &line, "")
    }

    /// The daemon's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
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
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        Error::Daemon { what, stderr: lines[lines.len().saturating_sub(LOG_LINES)..].join("\n") }
    }

    /// `trieline -j node status`; none when it does not answer.
    pub fn status(&self) -> Option<Value> {
        self.programs.ask(&self.namespace, &["node", "status"])
    }

    fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Kills the process as `kill -9` does; forwarding stays.
    pub fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        self.namespace.clear();
    }

    /// Makes it read its configuration and the files that this names (SIGHUP).
    pub fn reload(&self) {
        self.signal(Signal::HUP);
    }

    /// Asks the process to end (SIGTERM) and returns what it logged; forwarding stays.
    #[track_caller]
    pub fn stop(self) -> String {
        self.end().unwrap_or_else(|error| panic!("{error}"))
    }

    /// Likewise, with an error if it does not end, or not well.
    pub fn end(mut self) -> Result<String> {
        self.signal(Signal::TERM);
        let end = Instant::now() + Duration::from_secs_f64(10.0 * patience());
        loop {
            match self.child.try_wait().during(|| "cannot wait for trielined".into())? {
                Some(status) if status.success() => {
                    self.namespace.clear();
                    return Ok(self.log());
                }
                Some(status) => return Err(self.failed(format!("trielined ended with {status}"))),
                None if Instant::now() >= end => return Err(self.failed("trielined does not end".into())),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.namespace.is_empty() {
            return;
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            println!("--- log of trielined\n{}", self.log());
        }
        if let Err(error) = self.programs.detach(&self.namespace) {
            tracing::warn!(%error, "forwarding not taken down");
        }
    }
}

/// `trieline -n NAMESPACE ARGS`.
#[track_caller]
pub fn trieline(namespace: &Namespace, args: &str) -> Answer {
    trieline_with(namespace, args, "")
}

/// The same with `input` on standard input.
#[track_caller]
pub fn trieline_with(namespace: &Namespace, args: &str, input: &str) -> Answer {
    let program = binary_path("trieline");
    let mut words = vec!["-n", namespace.name()];
    words.extend(args.split_whitespace());
    run_with(&program, &words, input)
}

/// `trieline -j node status` as JSON.
#[track_caller]
pub fn status(namespace: &Namespace) -> Value {
    trieline(namespace, "-j node status").json()
}

/// Removes the leftovers of an ended daemon, when dropped.
pub struct Leftovers<'a>(pub &'a Namespace);

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        let _ = trieline(self.0, "node detach");
    }
}
