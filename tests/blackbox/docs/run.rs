//! Runs a page: each command in order, as its reader would type it, with the output compared where the page shows it.

use super::output::missing;
use super::page::{Shown, Step, root, steps};
use super::shell::Shell;
use std::fs;
use std::path::Path;
use std::time::Instant;
use trieline_testbed::{eventually, skip};

/// Lines of output that a failure shows.
const LINES: usize = 40;

/// The knowledge of a page's test beyond the page's text. Each pair begins with the first words of a command.
#[derive(Default)]
pub struct Page {
    /// Programs that its reader has, beyond those that every test needs.
    pub needs: &'static [&'static str],
    /// The surroundings that its reader has already: scripts that run before the page.
    pub bed: &'static [&'static str],
    /// Commands that last until Ctrl-C: the script that succeeds when there was enough to see.
    pub until: &'static [(&'static str, &'static str)],
    /// Commands whose exit code may be another than 0.
    pub codes: &'static [(&'static str, &'static [i32])],
    /// Commands that measure, and measure again if the machine was busy: they have three attempts.
    pub attempts: &'static [&'static str],
    /// Words of commands that others stand for, so that they take less time.
    pub instead: &'static [(&'static str, &'static str, &'static str)],
    /// Scripts that run before a command: what happens on the reader's machine meanwhile.
    pub before: &'static [(&'static str, &'static str)],
    /// Scripts that must succeed within some seconds after a command: its effect. `$OUTPUT` is the file that it printed to.
    pub effects: &'static [(&'static str, &'static str)],
    /// A script that tidies up after all processes of the page have ended.
    pub end: &'static str,
}

fn of<T: Copy>(pairs: &[(&'static str, T)], command: &str) -> Vec<T> {
    pairs.iter().filter(|(begin, _)| command.starts_with(begin)).map(|(_, value)| *value).collect()
}

/// Whether a command leaves a daemon in the background.
fn starts_daemon(command: &str) -> bool {
    let parts = command.split(['\n', ';', '|']).map(|part| part.trim().trim_start_matches("sudo "));
    parts.into_iter().any(|part| part.starts_with("trielined ") && !part.contains("--check"))
}

/// The last lines of a text.
fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

impl Page {
    /// Runs the page of this name, README.md or one in docs/.
    pub fn run(&self, name: &str) {
        if !trieline_testbed::root() {
            return;
        }
        let is_there = |program: &&&str| {
            let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
            path.split(':').any(|folder| Path::new(folder).join(program).is_file())
        };
        if let Some(missing) = self.needs.iter().find(|program| !is_there(program)) {
            return skip(&format!("{missing} is not installed (./dev setup)"));
        }
        let path = if name == "README.md" { name.to_owned() } else { format!("docs/{name}") };
        let text = fs::read_to_string(root().join(&path)).expect("the page can be read");
        let steps = steps(&text);
        let known = |begin: &str| {
            let mut commands = steps.iter().filter_map(|step| match step {
                Step::Command(shown) => Some(&shown.text),
                _ => None,
            });
            commands.any(|text| text.starts_with(begin))
        };
        let pairs = [self.until, self.before, self.effects].concat();
        let begins = pairs.iter().map(|(begin, _)| begin).chain(self.codes.iter().map(|(begin, _)| begin));
        let begins = begins.chain(self.instead.iter().map(|(begin, ..)| begin)).chain(self.attempts);
        for begin in begins {
            assert!(known(begin), "{path}: the test expects a command that begins with: {begin}");
        }
        let mut shell = Shell::start(&self.bed.concat(), self.end);
        for step in &steps {
            let begin = Instant::now();
            let (line, problem) = match step {
                Step::File { path, text } => {
                    shell.setup(&format!("cat >{path} <<'END OF THE FILE'\n{text}END OF THE FILE"));
                    continue;
                }
                Step::Printed { line, lines } => {
                    let printed = shell.printed();
                    let missing = missing(lines, &printed, true);
                    (
                        *line,
                        missing.map(|missing| format!("expected this line: {missing}\nprinted:\n{printed}")),
                    )
                }
                Step::Command(shown) => {
                    let again = self.attempts.iter().any(|begin| shown.text.starts_with(begin));
                    let mut problem = self.command(&mut shell, shown).err();
                    for _ in 0..if again { 2 } else { 0 } {
                        problem = problem.and_then(|_| self.command(&mut shell, shown).err());
                    }
                    (shown.line, problem.map(|problem| format!("`{}`: {problem}", shown.text)))
                }
            };
            if let Some(problem) = problem {
                panic!("{path}:{line}: {problem}");
            }
            println!("{path}:{line}: {:.1} s", begin.elapsed().as_secs_f64());
        }
    }

    fn command(&self, shell: &mut Shell, shown: &Shown) -> Result<(), String> {
        let text = &shown.text;
        for script in of(self.before, text) {
            shell.setup(script);
        }
        let until = of(self.until, text).first().copied();
        if text.contains("until Ctrl-C") && until.is_none() {
            return Err("the test has no entry that says when to press Ctrl-C".into());
        }
        let mut command = text.clone();
        for (_, words, others) in self.instead.iter().filter(|(begin, ..)| text.starts_with(begin)) {
            command = command.replacen(words, others, 1);
        }
        // Other tests run beside this one. A reader's machine is quiet.
        let command = command.replace("trieline lab run ", "trieline lab run --busy ");
        let answer = shell.run(&command, until);
        let codes = of(self.codes, text).first().copied().unwrap_or(&[0]);
        if !codes.contains(&answer.code) {
            return Err(format!("expected exit code {codes:?}: {answer:?}"));
        }
        if starts_daemon(text) && !shell.daemon_is_ready() {
            return Err(format!("trielined does not forward:\n{}", shell.printed()));
        }
        if let Some(missing) = shown.output.as_ref().and_then(|lines| missing(lines, &answer.stdout, false)) {
            return Err(format!("the page shows: {missing}\nprinted:\n{}", answer.stdout));
        }
        for script in of(self.effects, text) {
            let mut answer = None;
            let works = eventually(30.0, || answer.insert(shell.inside(script)).code == 0);
            if let Some(answer) = answer.filter(|_| !works) {
                let answer = last(&(answer.stdout + &answer.stderr));
                let printed = last(&shell.printed());
                return Err(format!("expected after it: {script}\n{answer}\nprinted until then:\n{printed}"));
            }
        }
        Ok(())
    }
}
