//! Commands that change a node, as text: what the walk invents, replays, shortens and prints is always the same.

use std::fmt;

/// Where a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The node itself.
    Node,
    /// The namespace at the other end of the node's links.
    Far,
    /// The namespace that devices are moved to.
    Store,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Where it runs.
    pub(crate) place: Place,
    /// `ip` with its words, `sysctl KEY VALUE`, or `sh` with a line for the shell. `@node` and `@store` stand for namespaces.
    pub(crate) text: String,
}

/// A command of the node.
pub(crate) fn node(text: impl Into<String>) -> Command {
    Command { place: Place::Node, text: text.into() }
}

/// A command at the other end of the node's links.
pub(crate) fn far(text: impl Into<String>) -> Command {
    Command { place: Place::Far, text: text.into() }
}

/// A command where devices are that were moved away.
pub(crate) fn store(text: impl Into<String>) -> Command {
    Command { place: Place::Store, text: text.into() }
}

/// As an operator types it, in namespaces `node`, `far` and `store`.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.place {
            Place::Node => "node",
            Place::Far => "far",
            Place::Store => "store",
        };
        let text = self.text.replace("@node", "node").replace("@store", "store");
        match text.split_once(' ') {
            Some(("ip", words)) => write!(f, "ip -n {place} {words}"),
            Some(("sysctl", words)) => {
                let (key, value) = words.split_once(' ').unwrap_or((words, ""));
                write!(f, "ip netns exec {place} sysctl -qw {key}={value}")
            }
            Some(("sh", line)) => write!(f, "ip netns exec {place} sh -c '{line}'"),
            _ => f.write_str(&text),
        }
    }
}

/// Commands that were given together, after which frames were sent.
pub(crate) type Step = Vec<Command>;

/// A command as [`Command`] is printed; none when the line is something else.
fn parse(line: &str) -> Option<Command> {
    let words = line.strip_prefix("ip ")?;
    let (words, is_program) = match words.strip_prefix("netns exec ") {
        Some(words) => (words, true),
        None => (words.strip_prefix("-n ")?, false),
    };
    let (place, words) = words.split_once(' ')?;
    let place = match place {
        "node" => Place::Node,
        "far" => Place::Far,
        "store" => Place::Store,
        _ => return None,
    };
    let text = if let Some(setting) = words.strip_prefix("sysctl -qw ").filter(|_| is_program) {
        format!("sysctl {}", setting.replacen('=', " ", 1))
    } else if let Some(line) = words.strip_prefix("sh -c '").filter(|_| is_program) {
        format!("sh {}", line.trim_end_matches('\''))
    } else {
        format!("ip {words}")
    };
    let text = text.replace(" netns node", " netns @node").replace(" netns store", " netns @store");
    Some(Command { place, text })
}

/// The steps of a report. `sleep` stands between them.
pub(crate) fn read(report: &str) -> Vec<Step> {
    let mut steps = vec![Step::new()];
    for line in report.lines() {
        if line.starts_with("sleep ") {
            steps.push(Step::new());
        } else if let (Some(command), Some(last)) = (parse(line), steps.last_mut()) {
            last.push(command);
        }
    }
    steps
}
