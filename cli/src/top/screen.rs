//! The terminal of `top`: taken at the start, given back at the end, at an error, at a panic and while the program is stopped.

use super::picture::{Count, Picture, picture};
use super::view::{View, Wish};
use crate::client::Names;
use anyhow::{Context, bail};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{Event, KeyEventKind, poll, read};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Signal, getpid, kill_process};
use signal_hook::consts::{SIGCONT, SIGTSTP};
use std::io::{IsTerminal, Stdout, stdin, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;
use trieline_router::api::instance::Instance;

/// How often it is looked whether to end.
pub(super) const TICK: Duration = Duration::from_millis(50);

/// A picture with the daemon's state, or why there is none.
type News = Result<(Picture, String), String>;

/// The terminal in raw mode; dropping it gives it back.
struct Screen(Terminal<CrosstermBackend<Stdout>>);

impl Screen {
    fn take() -> anyhow::Result<Self> {
        enter()?;
        match Terminal::new(CrosstermBackend::new(stdout())) {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                leave();
                Err(error.into())
            }
        }
    }

    /// Stops this process as Ctrl-Z does, until SIGCONT.
    fn suspend(&self) -> anyhow::Result<()> {
        leave();
        // SIGTSTP has a handler here, so that it cannot stop the process.
        Ok(kill_process(getpid(), Signal::STOP)?)
    }

    /// Takes the terminal again after a stop, and forgets what it showed.
    fn resume(&mut self) -> anyhow::Result<()> {
        // After SIGSTOP the shell has changed the terminal's mode; crossterm sets raw mode only if it has left it.
        leave();
        enter()?;
        Ok(self.0.clear()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> anyhow::Result<()> {
    enable_raw_mode().context("cannot set up the terminal; use --once, or redirect the output")?;
    if let Err(error) = execute!(stdout(), EnterAlternateScreen, cursor::Hide) {
        leave();
        return Err(error.into());
    }
    Ok(())
}

/// Gives the terminal back. Nothing more can be done where that fails.
fn leave() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// Shows pictures until a key or a signal ends it.
pub(super) fn run(
    instance: Instance,
    first: Count,
    interval: Duration,
    colour: bool,
    ended: &Arc<AtomicBool>,
) -> anyhow::Result<()> {
    let [stopped, continued] = [SIGTSTP, SIGCONT].map(|signal| {
        let flag = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(signal, Arc::clone(&flag)).map(|_| flag)
    });
    let (stopped, continued) = (stopped?, continued?);
    let mut view = View::new(first.daemon.clone(), colour);
    let (sender, news) = sync_channel(1);
    // A daemon that does not answer must not keep keys waiting. This thread ends with the process.
    std::thread::Builder::new()
        .name("count".into())
        .spawn(move || count(&instance, first, interval, &sender))?;
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        leave();
        hook(panic);
    }));
    let mut screen = Screen::take()?;
    end_for_sure(Arc::clone(ended))?;
    loop {
        if ended.load(Ordering::Relaxed) {
            return Ok(());
        }
        if stopped.swap(false, Ordering::Relaxed) {
            screen.suspend()?;
        }
        if continued.swap(false, Ordering::Relaxed) {
            screen.resume()?;
        }
        hear(&mut view, &news)?;
        screen.0.draw(|frame| view.draw(frame)).context("cannot write to the terminal")?;
        match wait().context("cannot read keys from the terminal")? {
            Input::None => continue,
            Input::Gone => return Ok(()),
            Input::Some => {}
        }
        // Keys and changes of the size; the next picture has the new size.
        if let Event::Key(key) = read().context("cannot read keys from the terminal")?
            && key.kind != KeyEventKind::Release
        {
            match view.key(key) {
                Wish::None => {}
                Wish::Quit => return Ok(()),
                Wish::Suspend => stopped.store(true, Ordering::Relaxed),
            }
        }
    }
}

/// The state of the terminal as a source of keys.
enum Input {
    None,
    Some,
    /// The terminal is gone.
    Gone,
}

/// Waits a moment for keys; the next call has those that came meanwhile.
fn wait() -> anyhow::Result<Input> {
    // Without a terminal there, crossterm opens the session's own.
    if !stdin().is_terminal() {
        return Ok(if poll(TICK)? { Input::Some } else { Input::None });
    }
    // Crossterm reads a terminal that is gone without an end, so it is not asked then.
    if is_gone(Duration::ZERO)? {
        return Ok(Input::Gone);
    }
    // Its own queue may have keys, too.
    if poll(Duration::ZERO)? {
        return Ok(Input::Some);
    }
    Ok(if is_gone(TICK)? { Input::Gone } else { Input::None })
}

/// Whether the terminal is gone. Waits for keys, and at most so long.
fn is_gone(patience: Duration) -> anyhow::Result<bool> {
    let keys = stdin();
    let mut polled = [PollFd::new(&keys, PollFlags::IN)];
    match rustix::event::poll(&mut polled, Some(&Timespec::try_from(patience)?)) {
        Err(Errno::INTR) => Ok(false),
        result => result
            .map(|_| polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
            .map_err(Into::into),
    }
}

/// Ends the process two seconds after a signal asked for that, even if it still reads a terminal that is gone.
fn end_for_sure(ended: Arc<AtomicBool>) -> std::io::Result<()> {
    let watch = move || {
        while !ended.load(Ordering::Relaxed) {
            std::thread::sleep(TICK);
        }
        std::thread::sleep(Duration::from_secs(2));
        leave();
        std::process::exit(0);
    };
    std::thread::Builder::new().name("end".into()).spawn(watch).map(drop)
}

fn hear(view: &mut View, news: &Receiver<News>) -> anyhow::Result<()> {
    match news.try_recv() {
        Ok(Ok((picture, daemon))) => (view.picture, view.state) = (Some(picture), Ok(daemon)),
        // The last rates are over.
        Ok(Err(error)) => (view.picture, view.state) = (None, Err(error)),
        Err(TryRecvError::Empty) => {}
        Err(TryRecvError::Disconnected) => {
            bail!("cannot count packets any more: the counting thread has ended")
        }
    }
    Ok(())
}

/// Counts after each interval, until the screen has ended. If the tables are gone, it waits for new ones.
fn count(instance: &Instance, first: Count, interval: Duration, sender: &SyncSender<News>) {
    let mut names = Names::default();
    let mut before = Some(first);
    loop {
        std::thread::sleep(interval);
        let news = match Count::take(instance) {
            Ok(now) => {
                let news =
                    before.as_ref().map(|before| Ok((picture(before, &now, &mut names), now.daemon.clone())));
                before = Some(now);
                news
            }
            Err(error) => {
                before = None;
                Some(Err(trieline_terminal::error_text(&error)))
            }
        };
        if news.is_some_and(|news| sender.send(news).is_err()) {
            return;
        }
    }
}
