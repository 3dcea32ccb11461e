//! The screen of `top` as a function of the last picture and of the keys so far.

use super::picture::{Egress, Picture, Rate, UNCOUNTED, cannot_know};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

/// Columns of a name.
const NAME: usize = 26;

/// The state of a screen without counts.
const NO_COUNTS: &str = "no counts; trying again";

/// Order of the rows of each section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sort {
    /// The highest rate first.
    Rate,
    /// The most packets first.
    Packets,
    /// By name.
    Name,
}

impl Sort {
    fn next(self) -> Self {
        match self {
            Self::Rate => Self::Packets,
            Self::Packets => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Packets => "packets",
            Self::Name => "name",
        }
    }
}

/// The effect of a key on the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    /// To go on.
    None,
    /// To end.
    Quit,
    /// To stop until `fg`.
    Suspend,
}

/// The shown figures, and their sorting, filter and place.
#[derive(Debug)]
pub(super) struct View {
    pub(super) picture: Option<Picture>,
    /// The daemon's state, or why there are no counts.
    pub(super) state: Result<String, String>,
    pub(super) colour: bool,
    sort: Sort,
    filter: String,
    /// The filter is being typed.
    typing: bool,
    /// Name of the device that is shown alone.
    device: Option<String>,
    scroll: usize,
    /// Lines of the last drawn body.
    page: usize,
}

impl View {
    pub(super) fn new(state: String, colour: bool) -> Self {
        let (sort, filter) = (Sort::Rate, String::new());
        Self {
            picture: None,
            state: Ok(state),
            colour,
            sort,
            filter,
            typing: false,
            device: None,
            scroll: 0,
            page: 1,
        }
    }

    /// Follows a key.
    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Wish::Quit,
                KeyCode::Char('z') => Wish::Suspend,
                _ => Wish::None,
            };
        }
        if self.typing {
            match key.code {
                KeyCode::Enter => self.typing = false,
                KeyCode::Esc => (self.typing, self.filter) = (false, String::new()),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(char) => self.filter.push(char),
                _ => {}
            }
            self.scroll = 0;
            return Wish::None;
        }
        match key.code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc => (self.filter, self.device, self.scroll) = (String::new(), None, 0),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Char('/') => (self.typing, self.filter) = (true, String::new()),
            KeyCode::Char('d') | KeyCode::Tab => self.next_device(),
            KeyCode::Up | KeyCode::Char('k') => self.scroll = self.scroll.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll = self.scroll.saturating_add(1),
            KeyCode::PageUp => self.scroll = self.scroll.saturating_sub(self.page),
            KeyCode::PageDown => self.scroll = self.scroll.saturating_add(self.page),
            KeyCode::Home => self.scroll = 0,
            // Drawing brings it back to the last page.
            KeyCode::End => self.scroll = usize::MAX,
            _ => {}
        }
        Wish::None
    }

    /// All devices, then each one, then all again.
    fn next_device(&mut self) {
        let mut names: Vec<String> = Vec::new();
        if let Some(picture) = &self.picture {
            names = picture.devices.iter().map(super::picture::Device::title).collect();
            names.sort();
        }
        let next = match &self.device {
            None => 0,
            Some(device) => names.iter().position(|name| name == device).map_or(names.len(), |at| at + 1),
        };
        self.device = names.get(next).cloned();
        self.scroll = 0;
    }

    /// Draws everything.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)]);
        let [head, body, foot] = areas.areas(frame.area());
        let shown = self.device.as_deref().unwrap_or("all devices");
        let title = format!("trieline top: {shown}, by {}", self.sort.name());
        let (state, style) = match &self.state {
            Ok(state) => (&state.as_str(), self.bold()),
            // The reason needs more room than this line has.
            Err(_) => (&NO_COUNTS, self.bold().patch(self.paint(Color::Red))),
        };
        frame.render_widget(
            Line::from(vec![Span::styled(format!("{title}  "), self.bold()), Span::styled(*state, style)]),
            head,
        );
        let lines = self.lines();
        self.page = usize::from(body.height).max(1);
        self.scroll = self.scroll.min(lines.len().saturating_sub(self.page));
        let end = lines.len().min(self.scroll + self.page);
        let keys = if self.typing {
            format!("filter: {}_  Enter done  Esc clear", self.filter)
        } else {
            let filter = if self.filter.is_empty() { String::new() } else { format!(" [{}]", self.filter) };
            let first = (self.scroll + 1).min(end);
            format!("lines {first}-{end} of {}  s sort  / filter{filter}  d device  q quit", lines.len())
        };
        let visible: Vec<Line<'_>> = lines.into_iter().skip(self.scroll).take(self.page).collect();
        let body_text = Paragraph::new(visible);
        // Rows are cut at the edge, so that columns stay columns; a reason is wrapped.
        let body_text = if self.picture.is_none() { body_text.wrap(Wrap { trim: true }) } else { body_text };
        frame.render_widget(body_text, body);
        frame.render_widget(Line::from(keys), foot);
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        let Some(picture) = &self.picture else {
            return vec![Line::from(self.state.clone().err().unwrap_or_else(|| "counting …".into()))];
        };
        let alone =
            self.device.as_ref().map(|name| picture.devices.iter().find(|device| device.title() == *name));
        match alone {
            None => {
                self.devices(picture, &mut lines);
                let after = picture.egress.iter().flat_map(Egress::titled);
                self.after_redirect(picture, after.collect(), &mut lines);
                for (title, rates) in
                    [("verdict", &picture.verdicts), ("filter", &picture.filters), ("SID", &picture.sids)]
                {
                    self.section(title, titled(rates), &mut lines);
                }
            }
            Some(None) => lines.push(Line::from("this device has no counters now; d shows another")),
            Some(Some(device)) => {
                self.section("verdict", titled(&device.verdicts), &mut lines);
                let after = picture.egress.iter().filter(|egress| egress.dev == device.dev);
                self.after_redirect(picture, after.flat_map(Egress::titled).collect(), &mut lines);
                self.heading("CPU", &["rate", "share"], &mut lines);
                for cpu in &device.cpus {
                    let share = format!("{:.1} %", cpu.share * 100.0);
                    lines.push(row(&format!("cpu{}", cpu.cpu), &[format!("{:.0}", cpu.rate), share]));
                }
                if device.cpus.is_empty() {
                    lines.push(Line::from("no packets in this interval"));
                }
            }
        }
        lines
    }

    fn devices(&self, picture: &Picture, lines: &mut Vec<Line<'static>>) {
        self.heading("packets a second", &["forward", "pass", "drop", "busiest CPU"], lines);
        let mut devices: Vec<_> =
            picture.devices.iter().filter(|device| device.title().contains(&self.filter)).collect();
        let total =
            |device: &super::picture::Device| device.verdicts.iter().map(|rate| rate.packets).sum::<u64>();
        match self.sort {
            Sort::Rate => {
                let rate = |device: &super::picture::Device| device.forward + device.pass + device.drop;
                devices.sort_by(|one, two| rate(two).total_cmp(&rate(one)));
            }
            Sort::Packets => devices.sort_by_key(|device| std::cmp::Reverse(total(device))),
            Sort::Name => devices.sort_by_key(|device| device.title()),
        }
        for device in devices {
            let busiest = device.cpus.iter().max_by(|one, two| one.share.total_cmp(&two.share));
            let busiest = busiest.map(|cpu| format!("{:.0} % cpu{}", cpu.share * 100.0, cpu.cpu));
            let rates = [device.forward, device.pass, device.drop].map(|rate| format!("{rate:.0}"));
            lines.push(row(&device.title(), &[&rates[..], &[busiest.unwrap_or_default()]].concat()));
        }
    }

    /// Fates of forwarded packets, and which of them nothing counts.
    fn after_redirect(&self, picture: &Picture, fates: Vec<(String, &Rate)>, lines: &mut Vec<Line<'static>>) {
        const TITLE: &str = "after redirect";
        let before = lines.len();
        self.section(TITLE, fates, lines);
        let Some(why) = picture.egress_unknown.as_ref().filter(|_| UNCOUNTED.contains(&self.filter)) else {
            return;
        };
        if lines.len() == before {
            self.heading(TITLE, &["rate", "packets"], lines);
        }
        lines.push(row(UNCOUNTED, &["unknown".into(), "unknown".into()]));
        lines.push(Line::from(cannot_know(why)));
    }

    fn section(&self, title: &str, mut rates: Vec<(String, &Rate)>, lines: &mut Vec<Line<'static>>) {
        rates.retain(|(name, _)| name.contains(&self.filter));
        if rates.is_empty() {
            return;
        }
        match self.sort {
            Sort::Rate => rates.sort_by(|one, two| two.1.rate.total_cmp(&one.1.rate)),
            Sort::Packets => rates.sort_by_key(|(_, rate)| std::cmp::Reverse(rate.packets)),
            Sort::Name => rates.sort_by(|one, two| (&one.1.name, &one.0).cmp(&(&two.1.name, &two.0))),
        }
        self.heading(title, &["rate", "packets"], lines);
        for (name, rate) in rates {
            let line = row(&name, &[format!("{:.0}", rate.rate), rate.packets.to_string()]);
            let is_dropping = rate.kind == "drop" && rate.rate > 0.0;
            lines.push(if is_dropping { line.style(self.paint(Color::Red)) } else { line });
        }
    }

    fn heading(&self, title: &str, columns: &[&str], lines: &mut Vec<Line<'static>>) {
        let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
        lines.push(row(title, &columns).style(self.bold()));
    }

    fn bold(&self) -> Style {
        if self.colour { Style::new().add_modifier(Modifier::BOLD) } else { Style::new() }
    }

    fn paint(&self, colour: Color) -> Style {
        if self.colour { Style::new().fg(colour) } else { Style::new() }
    }
}

/// Rates by kind and name.
fn titled(rates: &[Rate]) -> Vec<(String, &Rate)> {
    rates.iter().map(|rate| (format!("{} {}", rate.kind, rate.name), rate)).collect()
}

/// A row of 80 columns at most. A name that is too long loses its middle: both ends of an address tell more.
fn row(name: &str, columns: &[String]) -> Line<'static> {
    let chars: Vec<char> = name.chars().collect();
    let name: String = if chars.len() > NAME {
        let half = NAME / 2;
        chars[..half].iter().chain(['…'].iter()).chain(&chars[chars.len() - (NAME - half - 1)..]).collect()
    } else {
        name.to_owned()
    };
    let columns: String = columns.iter().map(|column| format!("{column:>13}")).collect();
    Line::from(format!("{name:<NAME$}{columns}"))
}

#[cfg(test)]
mod tests;
