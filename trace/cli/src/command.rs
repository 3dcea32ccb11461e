//! A command that is traced: started, and waited for with all that it leaves running. It outlives the trace unless the user asks otherwise.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, wait};

/// How long a command may take to end after SIGTERM (`--end-command`), and after the terminal's SIGINT before the tracer leaves it.
const PATIENCE: Duration = Duration::from_secs(2);

/// A command that this process started.
#[derive(Debug)]
pub struct Traced {
    child: Child,
    status: Option<ExitStatus>,
}

impl Traced {
    /// Starts it. Processes that it leaves in the background become children of this process, and so stay descendants.
    pub fn start(program: &str, arguments: &[String]) -> anyhow::Result<Traced> {
        set_child_subreaper(Some(getpid())).context("cannot adopt the command's processes")?;
        let child = Command::new(program)
            .args(arguments)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        Ok(Traced { child, status: None })
    }

    /// Whether it has ended, and all that it has left.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        let has_children = self.reap()?;
        Ok(self.status.is_some() && !has_children)
    }

    fn has_status(&mut self) -> anyhow::Result<bool> {
        self.reap()?;
        Ok(self.status.is_some())
    }

    /// Takes leave of all children that have ended, also of those that the command left to this process. Else they would stay in the
    /// table of processes for as long as the command runs. Returns whether there are others.
    fn reap(&mut self) -> anyhow::Result<bool> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((process, status))) => {
                    if process == Pid::from_child(&self.child) {
                        self.status = Some(ExitStatus::from_raw(status.as_raw()));
                    }
                }
                Ok(None) => return Ok(true),
                Err(Errno::CHILD) => return Ok(false),
                Err(error) => return Err(error).context("cannot wait for the command"),
            }
        }
    }

    /// Sends SIGTERM to the command and waits for it; kills one that does not end. Its background processes run on.
    pub fn end(&mut self) -> anyhow::Result<()> {
        if !self.has_status()? {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        self.wait()?;
        if !self.has_status()? {
            eprintln!(
                "trieline: the command did not end within {} s of SIGTERM; trieline kills it",
                PATIENCE.as_secs()
            );
            kill_process(Pid::from_child(&self.child), Signal::KILL)?;
            while !self.has_status()? {
                sleep(Duration::from_millis(5));
            }
        }
        self.leave()
    }

    /// Waits a moment for a command that has got the terminal's SIGINT as well.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !self.has_status()? && Instant::now() < until {
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Prints how the command ended, or that it runs on.
    pub fn leave(&mut self) -> anyhow::Result<()> {
        if !self.has_status()? {
            eprintln!(
                "trieline: the trace has ended; the command runs on as process {} (--end-command ends it with the trace)",
                self.child.id()
            );
            return Ok(());
        }
        if let Some(status) = self.status.filter(|status| !status.success()) {
            eprintln!("trieline: the command ended with {status}");
        }
        if self.reap()? {
            eprintln!("trieline: background processes of the command run on");
        }
        Ok(())
    }
}
