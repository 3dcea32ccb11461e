//! The screen at several sizes, after several keys.

use super::super::picture::{Cpu, Device, Egress};
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn rate(kind: &str, name: &str, packets: u64, rate: f64) -> Rate {
    Rate { name: name.into(), kind: kind.into(), packets, rate }
}

/// Two devices and 72 verdicts; the verdict of the highest number has the highest rate and the fewest packets.
fn view() -> View {
    let device = |dev: &str, forward| Device {
        dev: dev.into(),
        vlan: None,
        forward,
        pass: 1.0,
        drop: 0.0,
        verdicts: vec![rate("forward", &format!("only_{dev}"), 9, forward)],
        cpus: vec![
            Cpu { cpu: 0, rate: forward / 4.0, share: 0.25 },
            Cpu { cpu: 3, rate: forward * 3.0 / 4.0, share: 0.75 },
        ],
    };
    let verdicts = (0..72)
        .map(|number| rate("pass", &format!("verdict{number:02}"), 1000 - number, number as f64))
        .collect();
    let mut view = View::new("trielined runs".into(), false);
    view.picture = Some(Picture {
        seconds: 1.0,
        devices: vec![device("eth0", 100.0), device("eth1", 900.0)],
        egress: vec![Egress {
            dev: "eth1".into(),
            rates: vec![rate("sent", "", 90, 900.0), rate("drop", "ring_full", 10, 100.0)],
        }],
        egress_unknown: None,
        verdicts,
        filters: vec![rate("drop", "threats", 7, 1.0)],
        sids: vec![rate("End.DT6", "fd00:1234:5678:9abc:def0:1234:5678:9abc", 5, 2.0)],
    });
    view
}

fn press(view: &mut View, codes: &[KeyCode]) {
    for code in codes {
        assert_eq!(view.key(KeyEvent::from(*code)), Wish::None);
    }
}

fn screen(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| view.draw(frame)).expect("a picture");
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn every_line_is_reached_at_80_columns_and_24_lines() {
    let mut view = view();
    let first = screen(&mut view, 80, 24);
    assert_eq!(first[0], "trieline top: all devices, by rate  trielined runs");
    assert_eq!(first[1], "packets a second                forward         pass         drop  busiest CPU");
    assert_eq!(first[2], "eth1                                900            1            0    75 % cpu3");
    assert_eq!(first[4], "after redirect                     rate      packets");
    assert_eq!(first[5], "sent eth1                           900           90");
    assert_eq!(first[6], "drop eth1 ring_full                 100           10");
    assert!(first[8].starts_with("pass verdict71"), "{first:#?}");
    assert!(first[23].starts_with("lines 1-22 of 83 "), "{first:#?}");
    let mut seen = first.join("\n");
    for _ in 0..4 {
        press(&mut view, &[KeyCode::PageDown]);
        seen += &screen(&mut view, 80, 24).join("\n");
    }
    for number in 0..72 {
        assert!(seen.contains(&format!("pass verdict{number:02} ")), "{number} is on no page: {seen}");
    }
    assert!(seen.contains("End.DT6 fd00:…34:5678:9abc "), "a long name loses its middle: {seen}");
    // Two keys may come before one picture.
    press(&mut view, &[KeyCode::End, KeyCode::Down, KeyCode::PageDown]);
    assert!(screen(&mut view, 80, 24)[23].starts_with("lines 62-83 of 83"));
    press(&mut view, &[KeyCode::Up]);
    assert!(screen(&mut view, 80, 24)[23].starts_with("lines 61-82 of 83"));
}

#[test]
fn drops_that_cannot_be_known_are_not_0() {
    let mut view = view();
    let picture = view.picture.as_mut().expect("a picture");
    picture.egress_unknown = Some("the kernel has no BTF".into());
    let known = [
        "after redirect                     rate      packets",
        "sent eth1                           900           90",
    ];
    let unknown =
        ["other drops                     unknown      unknown", "cannot know: the kernel has no BTF"];
    let with_counts = screen(&mut view, 80, 24);
    assert_eq!(
        [&with_counts[4], &with_counts[5], &with_counts[7], &with_counts[8]],
        [known[0], known[1], unknown[0], unknown[1]]
    );
    // Nothing is counted at all.
    view.picture.as_mut().expect("a picture").egress.clear();
    let without = screen(&mut view, 80, 24);
    assert_eq!(without[4..7], [known[0], unknown[0], unknown[1]].map(str::to_owned), "{without:#?}");
    // One device alone has the lines, too; a filter may hide them.
    press(&mut view, &[KeyCode::Tab]);
    assert!(screen(&mut view, 80, 24).contains(&unknown[0].to_owned()));
    press(
        &mut view,
        &[
            KeyCode::Esc,
            KeyCode::Char('/'),
            KeyCode::Char('v'),
            KeyCode::Char('e'),
            KeyCode::Char('r'),
            KeyCode::Enter,
        ],
    );
    assert!(!screen(&mut view, 80, 24).contains(&unknown[0].to_owned()));
}

#[test]
fn keys_sort_filter_and_choose_a_device() {
    let mut view = view();
    press(&mut view, &[KeyCode::Char('s')]);
    assert!(screen(&mut view, 80, 24)[8].starts_with("pass verdict00"), "by packets");
    press(&mut view, &[KeyCode::Char('s')]);
    let by_name = screen(&mut view, 80, 24);
    assert!(by_name[0].contains("by name") && by_name[2].starts_with("eth0"), "{by_name:#?}");
    press(&mut view, &[KeyCode::Char('/')]);
    // Letters that are keys elsewhere belong to the filter while it is typed.
    press(&mut view, &"threatsq".chars().map(KeyCode::Char).collect::<Vec<_>>());
    press(&mut view, &[KeyCode::Backspace, KeyCode::Enter]);
    let filtered = screen(&mut view, 80, 24).join("\n");
    assert!(filtered.contains("drop threats") && !filtered.contains("verdict0"), "{filtered}");
    press(&mut view, &[KeyCode::Esc, KeyCode::Tab]);
    let device = screen(&mut view, 80, 24).join("\n");
    assert!(
        device.contains("top: eth0") && device.contains("only_eth0") && !device.contains("eth1"),
        "{device}"
    );
    assert!(device.contains("cpu3                                 75       75.0 %"), "{device}");
    press(&mut view, &[KeyCode::Char('d')]);
    let device = screen(&mut view, 80, 24).join("\n");
    assert!(device.contains("top: eth1") && device.contains("drop eth1 ring_full"), "{device}");
    press(&mut view, &[KeyCode::Char('d')]);
    assert!(screen(&mut view, 80, 24)[0].contains("all devices"));
    let control = |char| KeyEvent::new(KeyCode::Char(char), KeyModifiers::CONTROL);
    assert_eq!((view.key(control('c')), view.key(control('z'))), (Wish::Quit, Wish::Suspend));
}

#[test]
fn any_size_is_drawn_and_colours_only_if_wanted() {
    for colour in [false, true] {
        let mut view = view();
        view.colour = colour;
        for (width, height) in [(1, 1), (3, 2), (20, 3), (80, 24), (300, 100)] {
            screen(&mut view, width, height);
        }
        view.state = Err("cannot open the tables".into());
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("a terminal");
        terminal.draw(|frame| view.draw(frame)).expect("a picture");
        let plain = |cell: &ratatui::buffer::Cell| cell.fg == Color::Reset && cell.modifier.is_empty();
        assert_eq!(terminal.backend().buffer().content.iter().all(plain), !colour);
    }
}

#[test]
fn a_long_reason_is_wrapped() {
    let mut view = view();
    (view.picture, view.state) = (None, Err(format!("cannot open {}: gone", "a/long path/".repeat(12))));
    let shown = screen(&mut view, 80, 24);
    assert!(shown[0].ends_with("no counts; trying again"), "{shown:#?}");
    assert!(shown[1..4].join(" ").ends_with(": gone"), "{shown:#?}");
}
