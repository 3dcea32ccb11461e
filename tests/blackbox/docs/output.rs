//! The output that a page shows against the output that came: the same lines and words; numbers may differ.

/// A line with `N` for each number, and one unit for all.
///
/// Names (`eth2`, `p99`), addresses and prefixes stay.
pub fn masked(line: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        let is_unit = ["ns", "µs", "ms", "s", "B", "bytes", "KiB", "MiB", "GiB"]
            .contains(&word.trim_end_matches([',', ';', ')']));
        let after_number = words.last().is_some_and(|last| last.ends_with('N'));
        if is_unit && after_number {
            let rest = word.trim_start_matches(|c: char| c.is_alphabetic());
            words.push(format!("UNIT{rest}"));
        } else if is_mac(word) && !word.starts_with("02:00:00:") {
            // Only those that a test has given are the same at each run.
            words.push("MAC".to_owned());
        } else if is_address(word) || !starts_with_number(word) {
            words.push(word.to_owned());
        } else {
            words.push(without_numbers(word));
        }
    }
    words.join(" ")
}

fn starts_with_number(word: &str) -> bool {
    let inside = word.trim_start_matches(['+', '-', '(', '[', '−', '~']);
    // Not the name that begins with a digit, such as a MAC address.
    inside.starts_with(|c: char| c.is_ascii_digit())
}

fn is_mac(word: &str) -> bool {
    let word = word.trim_end_matches(']');
    word.len() == 17 && word.split(':').count() == 6
}

fn is_address(word: &str) -> bool {
    let word = word.trim_matches(['(', ')', '[', ']', ',', ';', ':']);
    let address = word.split_once('/').map_or(word, |(address, _)| address);
    is_mac(word) || address.parse::<std::net::IpAddr>().is_ok()
}

/// Each run of digits, with the points, commas and slashes between them, becomes `N`.
fn without_numbers(word: &str) -> String {
    let (mut all, mut number) = (String::new(), false);
    for c in word.chars() {
        if c.is_ascii_digit() {
            if !number {
                all.push('N');
            }
            number = true;
        } else if !(number && ['.', '\''].contains(&c)) {
            number = false;
            all.push(c);
        }
    }
    all.replace(['+', '-'], "")
}

/// The first shown line that did not come, in the order of the page. A shown line `…` stands for any lines.
///
/// With `excerpt`, other lines may come between the shown ones.
pub fn missing<'a>(shown: &'a [String], printed: &str, excerpt: bool) -> Option<&'a str> {
    // Progress is there as long as it lasts.
    let counts = |line: &&str| !line.trim().is_empty() && !line.ends_with(" …");
    let came: Vec<String> = printed.lines().filter(counts).map(masked).collect();
    let shown: Vec<&'a String> = shown.iter().filter(|line| !line.trim().is_empty()).collect();
    let (mut at, mut any) = (0, excerpt);
    for &line in &shown {
        if line.trim() == "…" {
            any = true;
            continue;
        }
        let wanted = masked(line);
        let found = came[at..].iter().position(|line| *line == wanted);
        match found {
            Some(steps) if any || steps == 0 => at += steps + 1,
            _ => return Some(line),
        }
        any = excerpt;
    }
    let last = shown.last().map_or("the end, without output", |line| line.as_str());
    (at < came.len() && !any).then_some(last)
}

#[test]
fn numbers_may_differ_and_words_may_not() {
    for (one, other) in [
        ("udp  +322 [313..328]  16 of 16", "udp +1322 [3.5..8] 6 of 16"),
        ("image 2.9 MiB, file 6.0 MiB; read in 47 ms", "image 3 KiB, file 12 B; read in 1.5 µs"),
        ("B→C    tcp  20002  1.06", "B→C tcp 7 11"),
    ] {
        assert_eq!(masked(one), masked(other));
    }
    for (one, other) in [
        ("8.8.8.8 in 8.0.0.0/9 us", "8.8.8.8 in 8.0.0.0/8 us"),
        ("forward out eth2 02:00:00:00:00:02", "forward out eth1 02:00:00:00:00:02"),
        ("forward out eth2 02:00:00:00:00:02", "forward out eth2 02:00:00:00:00:01"),
        ("p50 p99", "p50 p90"),
        ("6 forward ipv4", "6 pass ipv4"),
    ] {
        assert_ne!(masked(one), masked(other));
    }
    let shown = ["a 1", "…", "b"].map(str::to_owned);
    assert_eq!(missing(&shown, "a 2\nc\nd\nb\n", false), None);
    assert_eq!(missing(&shown, "c\na 2\nb\n", false), Some("a 1"));
    assert_eq!(missing(&shown, "c\na 2\nb\nd\n", true), None);
    assert_eq!(missing(&shown, "a 2\nb\nd\n", false), Some("b"));
    assert_eq!(missing(&shown, "b\na 2\n", true), Some("b"));
    assert_eq!(missing(&[], "came\n", false), Some("the end, without output"));
}
