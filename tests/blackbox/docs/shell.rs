//! A reader's shell: a real one, in a network namespace of its own, with files, pins and sockets of its own.

use std::fs;
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use trieline_testbed::command::{Answer, binary_path, run_with};
use trieline_testbed::eventually;

/// Longest time that a command may take.
const SECONDS: f64 = 90.0;

/// The surroundings of every page: an empty /run, and changes to files that end with the shell. A BPF file system of its own keeps the pins.
const WORLD: &str = "
mount -t tmpfs none /run
mkdir -p /run/netns
for folder in /etc /usr/sbin /var/lib /var/log; do
  mkdir -p /run/changes$folder/upper /run/changes$folder/work
  mount -t overlay none -o lowerdir=$folder,upperdir=/run/changes$folder/upper,workdir=/run/changes$folder/work $folder
done
mkdir -p /etc/trieline /var/lib/trieline /var/log/trieline
mount -t bpf none /sys/fs/bpf
ip link set lo up
sudo() { \"$@\"; }
";

/// A shell that reads commands one by one, and keeps variables, background jobs and the current folder between them.
pub struct Shell {
    bash: Child,
    commands: ChildStdin,
    folder: tempfile::TempDir,
    ready: UnixDatagram,
    count: usize,
    end: &'static str,
}

impl Shell {
    /// Starts it, and lets it make the page's own surroundings.
    #[track_caller]
    pub fn start(bed: &str, end: &'static str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["work", "log"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let ready = UnixDatagram::bind(folder.path().join("notify")).expect("a socket for READY=1");
        ready.set_nonblocking(true).expect("a socket that does not wait");
        let log = fs::File::create(folder.path().join("log/shell")).expect("a log");
        let programs = Path::new(&binary_path("trieline")).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        // A session of its own: all that it starts can be found and ended.
        let bash = Command::new("setsid")
            .args(["unshare", "--mount", "--net", "bash", "--noprofile", "--norc"])
            .env("PATH", format!("{programs}:{path}:/usr/sbin:/sbin"))
            .env("PROGRAMS", &programs)
            .env("REPOSITORY", super::page::root())
            .env("NOTIFY_SOCKET", folder.path().join("notify"))
            .env("HOME", folder.path().join("work"))
            .env("NO_COLOR", "1")
            .env("LC_ALL", "C.UTF-8")
            .current_dir(folder.path().join("work"))
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("the log twice"))
            .stderr(log)
            .spawn();
        let mut bash = bash.expect("setsid, unshare and bash are installed");
        let commands = bash.stdin.take().expect("its input");
        let mut shell = Self { bash, commands, folder, ready, count: 0, end };
        // With job control a command in the background can be interrupted.
        shell.setup(&format!("set -m\nset -e\n{WORLD}\n{bed}\nset +e"));
        shell
    }

    /// Commands that no page shows; they must succeed.
    #[track_caller]
    pub fn setup(&mut self, script: &str) {
        let answer = self.run(script, None);
        assert!(answer.code == 0, "the bed: {answer:?}");
    }

    /// Runs a command to its end, or presses Ctrl-C as soon as the script `until` succeeds.
    #[track_caller]
    pub fn run(&mut self, command: &str, until: Option<&str>) -> Answer {
        self.count += 1;
        let at = self.log(&self.count.to_string()).display().to_string();
        fs::write(format!("{at}.sh"), command).expect("the command's file");
        let ended = |result: &str| format!("echo {result} >{at}.new; mv {at}.new {at}.code");
        let line = match until {
            None => format!(". {at}.sh </dev/null >{at}.out 2>&1; {}", ended("$?")),
            // The shell around the command outlives the signal, and has its exit code.
            Some(_) => {
                let inner = format!("trap : INT; . {at}.sh; {}", ended("$?"));
                format!(
                    "( {inner} ) </dev/null >{at}.out 2>&1 & echo $! >{at}.new; mv {at}.new {at}.pid; wait $!"
                )
            }
        };
        let sent = writeln!(self.commands, "{line}").and_then(|()| self.commands.flush());
        let printed = || fs::read_to_string(format!("{at}.out")).unwrap_or_default();
        let code = || fs::read_to_string(format!("{at}.code")).ok();
        let mut problem = sent.err().map(|error| error.to_string());
        if let (Some(until), None) = (until, &problem) {
            let enough = eventually(SECONDS, || code().is_some() || self.inside(until).code == 0);
            problem = (!enough).then(|| format!("expected while it runs: {until}"));
            let process = fs::read_to_string(format!("{at}.pid")).unwrap_or_default();
            if code().is_none() && !process.is_empty() {
                run_with("kill", &["-INT", "--", &format!("-{}", process.trim())], "");
            }
        }
        let has_ended = eventually(SECONDS, || {
            code().is_some() || problem.is_none() && self.bash.try_wait().is_ok_and(|status| status.is_some())
        });
        if !has_ended {
            problem.get_or_insert_with(|| format!("it does not end within {SECONDS} s"));
        }
        let code = code().and_then(|code| code.trim().parse().ok());
        Answer {
            command: command.to_owned(),
            code: if problem.is_some() { -1 } else { code.unwrap_or(-1) },
            stdout: printed(),
            stderr: problem.unwrap_or_default(),
        }
    }

    /// Runs a script next to the shell, in its namespaces and in the folder that it began in.
    pub fn inside(&self, script: &str) -> Answer {
        let process = self.bash.id().to_string();
        let script = format!("cd {}\n{script}", self.work().display());
        let mut variables = self.variables().to_vec();
        variables.push(format!("OUTPUT={}", self.log(&format!("{}.out", self.count)).display()));
        let mut words = vec!["--target", process.as_str(), "--mount", "--net", "env"];
        words.extend(variables.iter().map(String::as_str));
        words.extend(["bash", "-c", script.as_str()]);
        run_with("nsenter", &words, "")
    }

    fn variables(&self) -> [String; 2] {
        let programs = binary_path("trieline");
        let programs = Path::new(&programs).parent().expect("a folder").display().to_string();
        let path = std::env::var("PATH").unwrap_or_default();
        [format!("PATH={programs}:{path}:/usr/sbin:/sbin"), format!("PROGRAMS={programs}")]
    }

    /// Waits until a daemon that a command has started forwards.
    pub fn daemon_is_ready(&self) -> bool {
        let mut message = [0; 512];
        eventually(60.0, || match self.ready.recv(&mut message) {
            Ok(length) => String::from_utf8_lossy(&message[..length]).lines().any(|line| line == "READY=1"),
            Err(_) => false,
        })
    }

    /// The folder that the shell began in.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// All that commands have printed so far, those in the background too.
    pub fn printed(&self) -> String {
        let outputs = (0..=self.count).filter_map(|n| fs::read_to_string(self.log(&format!("{n}.out"))).ok());
        outputs.collect()
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.path().join("log").join(name)
    }

    /// Processes of its session.
    fn processes(&self) -> Vec<i32> {
        let session = self.bash.id().to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let is_ours = |process: &i32| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // Behind the name: state, parent, group, session.
            let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
            let words: Vec<&str> = behind.split_whitespace().collect();
            words.get(3) == Some(&session.as_str()) && words.first() != Some(&"Z")
        };
        numbers.filter(is_ours).collect()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The shell itself comes last: it waits for those that it started. Some may start others meanwhile.
        let shell = self.bash.id() as i32;
        for _ in 0..100 {
            let mut processes = self.processes();
            if processes.is_empty() {
                break;
            }
            if processes.len() > 1 {
                processes.retain(|process| *process != shell);
            }
            for process in processes.into_iter().filter_map(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.bash.wait();
        if !self.end.is_empty() {
            let script = format!("SHELL_PROCESS={}\n{}", self.bash.id(), self.end);
            run_with("sh", &["-c", &script], "");
        }
    }
}
