//! The events of a node during a trial of `churn`: routes are replaced, status is asked, trielined is killed.

use std::{
    fmt::Write as _,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use trieline_lpm::Prefix;

use crate::{
    Context, Result,
    error::During,
    experiments::forked::{Asker, Node},
    netlink::{Change, Netlink, NextHop},
};

/// Between two questions for the status.
const ASK: Duration = Duration::from_millis(100);
/// Between a reload, or a restart, and the next.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a reload may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The work done.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq)]
pub struct Done {
    /// Routes replaced.
    pub changes: u64,
    /// Answers to `trieline node status`.
    pub asked: u64,
    /// Reloads: each put another list into force.
    pub reloaded: u64,
    /// Kills: after each, trielined was started again until it forwarded.
    pub killed: u64,
    /// Upgrades: a stop, and a start until it forwarded.
    pub upgraded: u64,
}

impl Done {
    /// Both together.
    pub(super) fn and(self, other: Done) -> Done {
        Done {
            changes: self.changes + other.changes,
            asked: self.asked + other.asked,
            reloaded: self.reloaded + other.reloaded,
            killed: self.killed + other.killed,
            upgraded: self.upgraded + other.upgraded,
        }
    }
}

/// Replaces the routes in turn by the next hop of `ways` (A, B) that they do not have, again and again. `turns` counts on from trial to
/// trial. How many.
pub(super) fn replace(
    netlink: &mut Netlink,
    ways: [NextHop; 2],
    moving: &[Prefix<u32>],
    turns: &mut usize,
    per_second: u32,
    go_on: impl Fn() -> bool,
) -> Result<u64> {
    let count = moving.len().max(1);
    let begin = *turns;
    let changes = (begin..).map(|turn| {
        // All were by A at first.
        let [a, b] = ways;
        Change::Route(moving[turn % count], if (turn / count).is_multiple_of(2) { b } else { a }, 0)
    });
    let made = netlink.make_paced(changes, per_second, |_| go_on())?;
    *turns += made as usize;
    Ok(made)
}

/// Asks for the status ten times a second; how many answers came.
pub(super) fn ask(asker: &Asker, go_on: impl Fn(u64) -> bool) -> u64 {
    let (mut asked, mut next) = (0, Instant::now());
    while go_on(asked) {
        asked += u64::from(asker.ask(&["node", "status"]).is_some());
        next = (next + ASK).max(Instant::now());
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    asked
}

/// The lists of the filter. Each holds the one address that packets are sent to and may never pass.
pub(super) struct Lists {
    file: PathBuf,
    listed: Ipv4Addr,
    next: usize,
}

impl Lists {
    /// The configuration beside the list.
    pub(super) const CONFIGURATION: &'static str =
        "[[filter]]\nname = \"churn\"\nfile = \"churn.txt\"\nmatch = \"destination\"\naction = \"drop\"\n";
    /// Other addresses in the lists, in turn. All lie in a network that no other packet is sent to.
    const LENGTHS: [usize; 2] = [10_000, 20_000];

    /// Writes the first list into the configuration's folder.
    pub(super) fn begin(folder: &Path, listed: Ipv4Addr) -> Result<Lists> {
        let mut lists = Lists { file: folder.join("churn.txt"), listed, next: 0 };
        lists.write()?;
        Ok(lists)
    }

    /// Writes the next list; how many addresses it has.
    fn write(&mut self) -> Result<usize> {
        let others = Self::LENGTHS[self.next % Self::LENGTHS.len()];
        self.next += 1;
        let mut text = format!("{}\n", self.listed);
        for other in 0..others {
            let _ = writeln!(text, "{}", Ipv4Addr::from(0xc612_0000 + other as u32));
        }
        // trielined may read it at any time: it gets one list or the other, whole.
        let aside = self.file.with_extension("new");
        fs::write(&aside, text).during(|| format!("cannot write {}", aside.display()))?;
        fs::rename(&aside, &self.file).during(|| format!("cannot replace {}", self.file.display()))?;
        Ok(others + 1)
    }

    /// Puts the next list into force by SIGHUP, and waits until it is.
    pub(super) fn reload(&mut self, node: &mut Node, asker: &Asker) -> Result<()> {
        let addresses = self.write()? as u64;
        node.reload();
        let since = Instant::now();
        loop {
            let shown = asker.ask(&["filter", "show"]);
            if shown.as_ref().is_some_and(|shown| shown[0]["prefixes4"] == addresses) {
                std::thread::sleep(PAUSE);
                return Ok(());
            }
            node.check()?;
            if since.elapsed() > PATIENCE {
                let what = format!("a list of {addresses} addresses is not in force after SIGHUP: {shown:?}");
                return Err(node.failed(what));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Kills trielined and starts it again until it forwards.
pub(super) fn kill(node: &mut Node) -> Result<()> {
    node.check()?;
    node.kill();
    node.start()?;
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Stops trielined and starts it again, as a package's upgrade does: until it forwards.
pub(super) fn upgrade(node: &mut Node) -> Result<()> {
    node.end()?;
    node.start()?;
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Until when a trial lasts.
pub(super) struct Clock<'c> {
    pub(super) until: Instant,
    pub(super) context: &'c Context<'c>,
}

impl Clock<'_> {
    /// Whether it still lasts.
    pub(super) fn runs(&self) -> bool {
        Instant::now() < self.until && !self.context.interrupted()
    }
}
