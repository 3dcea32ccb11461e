//! `trieline top` on a terminal (tmux): its screen, its keys, and the terminal that it leaves.

use std::path::PathBuf;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary_path, run, run_with};
use trieline_testbed::daemon::{Daemon, trieline};
use trieline_testbed::{eventually, needs_root};

/// A terminal with a shell in it.
struct Terminal {
    socket: PathBuf,
    _folder: tempfile::TempDir,
}

impl Terminal {
    fn new(width: u32, height: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let terminal = Self { socket: folder.path().join("tmux"), _folder: folder };
        let size = [width, height].map(|length| length.to_string());
        let shell = "env -u NO_COLOR PS1=ready: bash --norc --noprofile";
        terminal.tmux(&["-f", "/dev/null", "new-session", "-d", "-x", &size[0], "-y", &size[1], shell]).ok();
        terminal.shows("ready:");
        terminal
    }

    fn tmux(&self, args: &[&str]) -> Answer {
        let socket = self.socket.to_string_lossy();
        run_with("tmux", &[&["-S", &*socket], args].concat(), "")
    }

    fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat()).ok();
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"]).ok()
    }

    #[track_caller]
    fn becomes(&self, what: &str, condition: impl Fn(&str) -> bool) {
        assert!(eventually(15.0, || condition(&self.screen())), "{what}:\n{}", self.screen());
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        self.becomes(text, |screen| screen.contains(text));
    }

    /// The shell has its terminal again: no screen of `top`, lines are edited and echoed, and the cursor is seen.
    #[track_caller]
    fn is_given_back(&self, exit_code: &str) {
        self.becomes("the shell's screen", |screen| !screen.contains("trieline top: "));
        self.keys(&["clear; echo was=${code}.", "Enter"]);
        self.shows(&format!("was={exit_code}."));
        self.keys(&[
            "clear; stty -a | tr ' ' '\\n' | grep -xE 'icanon|echo|isig' | wc -l | sed s/^/modes=/",
            "Enter",
        ]);
        self.shows("modes=3");
        assert_eq!(
            self.tmux(&["display-message", "-p", "#{cursor_flag} #{alternate_on}"]).ok().trim(),
            "1 0"
        );
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// The process of `top` in a namespace.
fn process(bed: &Bed) -> String {
    let args = format!("-n {} top", bed.node.name());
    let found = run("pgrep -x trieline -a").ok();
    let line =
        found.lines().find(|line| line.contains(&args)).unwrap_or_else(|| panic!("{args}: not in {found}"));
    line.split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn top_fits_a_terminal_and_gives_it_back() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    bed.send("10.50.1.1:9", "for top", 5);
    let terminal = Terminal::new(80, 24);
    let command = format!("{} -n {} top --interval 0.2; code=$?", binary_path("trieline"), bed.node.name());
    // (1) the first and the last line, keys, another size
    terminal.keys(&[&command, "Enter"]);
    terminal.shows("packets a second");
    let screen = terminal.screen();
    let lines: Vec<&str> = screen.lines().collect();
    assert!(
        lines.len() == 24 && lines[0].starts_with("trieline top: all devices, by rate  trielined "),
        "{screen}"
    );
    assert!(lines[23].starts_with("lines 1-") && screen.contains("forward ipv4"), "{screen}");
    terminal.keys(&["s", "s"]);
    terminal.becomes("sorted by name", |screen| {
        let at = |dev: &str| screen.find(&format!("\n{dev} "));
        screen.contains("by name") && at("n0").is_some() && at("n0") < at("n1") && at("n1") < at("n2")
    });
    terminal.keys(&["Tab"]);
    terminal.shows("top: n0");
    let counted = eventually(15.0, || {
        bed.send("10.50.1.1:9", "for top", 5);
        terminal.screen().lines().any(|line| line.starts_with("cpu") && line.ends_with(" %"))
    });
    assert!(counted, "{}", terminal.screen());
    terminal.keys(&["Escape"]);
    terminal.shows("all devices");
    terminal.keys(&["/", "ipv4", "Enter"]);
    terminal.becomes("filtered", |screen| screen.contains("[ipv4]") && !screen.contains("\nn0 "));
    terminal.tmux(&["resize-window", "-x", "60", "-y", "8"]).ok();
    terminal.becomes("the new size", |screen| {
        screen.lines().count() == 8 && screen.lines().last().is_some_and(|line| line.starts_with("lines "))
    });
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]).ok();
    terminal.keys(&["Escape"]);
    // (2) the daemon goes away and comes back, then its tables, too
    daemon.stop();
    terminal.shows("no trielined; its tables are in force");
    trieline(&bed.node, "node detach").ok();
    terminal.becomes("nothing to count", |screen| screen.contains("no counts; trying again"));
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    terminal
        .becomes("the new daemon", |screen| screen.contains(" runs, process ") && screen.contains("\nn0 "));
    // (3) Ctrl-Z and fg
    terminal.keys(&["C-z"]);
    terminal.shows("Stopped");
    // 128 and the number of SIGSTOP: the process has stopped, not ended.
    terminal.is_given_back("147");
    terminal.keys(&["fg; code=$?", "Enter"]);
    terminal.shows("packets a second");
    // (4) stopped by force, which no program can prepare for, and continued
    run(&format!("kill -STOP {}", process(&bed))).ok();
    terminal.keys(&["", "Enter"]);
    terminal.keys(&["reset; fg; code=$?", "Enter"]);
    terminal.shows("packets a second");
    terminal.keys(&["Tab"]);
    terminal.shows("top: n0");
    // (5) each end
    let ends: [(&str, &dyn Fn()); 5] = [
        ("q", &|| terminal.keys(&["q"])),
        ("Ctrl-C", &|| terminal.keys(&["C-c"])),
        ("SIGTERM", &|| drop(run(&format!("kill -TERM {}", process(&bed))).ok())),
        ("SIGINT", &|| drop(run(&format!("kill -INT {}", process(&bed))).ok())),
        ("SIGHUP", &|| drop(run(&format!("kill -HUP {}", process(&bed))).ok())),
    ];
    for (name, end) in ends {
        end();
        terminal.becomes(name, |screen| !screen.contains("trieline top: "));
        terminal.is_given_back("0");
        terminal.keys(&[&command, "Enter"]);
        terminal.shows("packets a second");
    }
    // (6) a terminal that is gone: no process stays behind
    let process = format!("/proc/{}", process(&bed));
    terminal.tmux(&["kill-server"]).ok();
    assert!(
        eventually(10.0, || !std::path::Path::new(&process).exists()),
        "{process} stays without a terminal"
    );
}

#[test]
fn top_without_a_terminal_prints_text_and_no_escapes() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, "--dev n0 --dev n1 --dev n2");
    bed.send("10.50.1.1:9", "for top", 5);
    // (1) a pipe: pictures until the reader ends
    let line = format!("{} -n {} top --interval 0.1", binary_path("trieline"), bed.node.name());
    let printed = trieline_testbed::command::sh(&format!("timeout -s TERM 1 {line} | cat -v"));
    assert!(printed.matches("packets a second").count() >= 2 && !printed.contains("^["), "{printed}");
    // (2) JSON: each device's verdicts and CPUs
    let picture = trieline(&bed.node, "-j top --once --interval 0.1").json();
    let device = picture["devices"].as_array().expect("devices").iter().find(|device| device["dev"] == "n0");
    let device = device.expect("n0");
    let counted = device["verdicts"].as_array().expect("verdicts").iter().any(|verdict| {
        verdict["name"] == "ipv4" && verdict["packets"].as_u64().is_some_and(|packets| packets >= 5)
    });
    assert!(counted && device["cpus"].is_array(), "{device:#}");
    assert!(picture["egress_unknown"].is_null(), "{picture:#}");
    // (3) a terminal that cannot move its cursor, and one without colours
    let terminal = Terminal::new(80, 24);
    terminal.keys(&[&format!("TERM=dumb {line} --once; code=$?"), "Enter"]);
    terminal.shows("verdict");
    assert!(!terminal.screen().contains("q quit"), "{}", terminal.screen());
    terminal.keys(&[&format!("clear; NO_COLOR=1 {line}"), "Enter"]);
    terminal.shows("q quit");
    let escaped = terminal.tmux(&["capture-pane", "-p", "-e"]).ok();
    assert!(!escaped.contains('\x1b'), "{escaped:?}");
    terminal.keys(&["q"]);
}

/// In generic mode nothing counts what drivers drop: the screen, the text and the JSON have `unknown`, not 0.
#[test]
fn top_reports_drops_that_cannot_be_known() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, "--generic --dev n0 --dev n1");
    bed.send("10.50.1.1:9", "for top", 5);
    let text = trieline(&bed.node, "top --once --interval 0.1").ok();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(words.contains(&vec!["other", "drops", "unknown", "unknown"]), "{text}");
    assert!(text.contains("cannot know: in generic mode"), "{text}");
    let picture = trieline(&bed.node, "-j top --once --interval 0.1").json();
    assert!(
        picture["egress_unknown"].as_str().is_some_and(|why| why.contains("generic mode")),
        "{picture:#}"
    );
    let terminal = Terminal::new(80, 24);
    terminal.keys(&[&format!("{} -n {} top", binary_path("trieline"), bed.node.name()), "Enter"]);
    terminal.becomes("unknown drops", |screen| {
        screen.lines().any(|line| line.starts_with("other drops") && line.ends_with("unknown      unknown"))
    });
    terminal.keys(&["q"]);
}
