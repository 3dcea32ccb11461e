//! `trieline lab report` on documents that were measured just now, and the page in a browser.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use trieline_lab::{
    experiments::LIST,
    page::{FIGURES, Page},
};
use trieline_testbed::{needs_root, skip};

/// The shortest run of each experiment that a figure needs.
const RUNS: [&[&str]; 6] = [
    &["map-ops", "--entries", "1000"],
    &["map-curve", "--entries", "1,10,100,1000"],
    &["tries"],
    &["livelock", "--rates", "20,100", "--trial", "50"],
    &["trace-overhead", "--only", "udp busy"],
    &["throughput", "--size", "64", "--plane", "kernel,xdp", "--path", "ipv4", "--flows", "1"],
];
/// Other work may keep a run from its end: then it is made again.
const ATTEMPTS: usize = 3;

fn lab(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trieline-lab")).args(words).current_dir(folder).output().unwrap()
}

#[track_caller]
fn succeed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page's DOM in a browser, and what the browser's console said; none without a browser.
fn browse(page: &Path) -> Option<(String, String)> {
    let profile = tempfile::tempdir().unwrap();
    let profile = format!("--user-data-dir={}", profile.path().display());
    let url = format!("file://{}", page.display());
    let words = [
        "60",
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        &profile,
        "--virtual-time-budget=3000",
        "--dump-dom",
        &url,
    ];
    let output = Command::new("timeout").args(words).output().unwrap();
    if output.status.code() == Some(127) {
        skip("chromium is not installed: no browser opens the page");
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let console: Vec<&str> = said.lines().filter(|line| line.contains("CONSOLE")).collect();
    Some((String::from_utf8_lossy(&output.stdout).into_owned(), console.join("\n")))
}

/// Of figures whose picture has published marks: how one is labelled.
const PUBLISHED: [(&str, &str); 4] =
    [("F1", "published"), ("F2", "lpm_trie, published"), ("F8", "paper"), ("F9", "kernel, Asama 2014")];

/// A picture of the page's upper part in a browser that is so wide, as PNG.
fn screenshot(page: &Path, width: &str, is_dark: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("page.png");
    let words = [
        "60".to_owned(),
        "chromium".into(),
        "--headless=new".into(),
        "--no-sandbox".into(),
        "--disable-gpu".into(),
        "--hide-scrollbars".into(),
        format!("--blink-settings=preferredColorScheme={}", u8::from(!is_dark)),
        format!("--user-data-dir={}", folder.path().join("profile").display()),
        format!("--window-size={width},12000"),
        format!("--screenshot={}", picture.display()),
        format!("file://{}", page.display()),
    ];
    let output = Command::new("timeout").args(words).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(&picture).unwrap()
}

/// Red, green and blue of a PNG's first pixel: no filter changes it.
fn first_pixel(png: &[u8]) -> [u8; 3] {
    let (mut at, mut compressed) = (8, Vec::new());
    while at + 8 <= png.len() {
        let length = u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        if &png[at + 4..at + 8] == b"IDAT" {
            compressed.extend_from_slice(&png[at + 8..at + 8 + length]);
        }
        at += length + 12;
    }
    let mut begin = [0; 4];
    flate2::read::ZlibDecoder::new(&compressed[..]).read_exact(&mut begin).unwrap();
    [begin[1], begin[2], begin[3]]
}

/// The width of a phone.
const PHONE: &str = "390";

/// Writes a page that holds `html` in a frame as wide as a phone. Notes how wide the frame is and how wide its content. The content itself
/// allows no script, so a copy gets one.
fn framed(html: &str, folder: &Path) -> PathBuf {
    let note = "<script>parent.postMessage(innerWidth + ' ' + document.documentElement.scrollWidth, '*')</script></body>";
    let allowed = html.replace("http-equiv=\"Content-Security-Policy\"", "name=\"was\"");
    fs::write(folder.join("inner.html"), allowed.replace("</body>", note)).unwrap();
    let outer = format!(
        "<body><script>onmessage = event => document.body.dataset.widths = event.data</script>\
         <iframe src=\"inner.html\" width=\"{PHONE}\" height=\"800\"></iframe></body>"
    );
    let path = folder.join("outer.html");
    fs::write(&path, outer).unwrap();
    path
}

/// Whether two documents have the same keys and values. Reading a number as text may change its last bit.
fn alike(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let has = |(key, value): (&String, &Value)| other.get(key).is_some_and(|same| alike(value, same));
            one.len() == other.len() && one.iter().all(has)
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| alike(one, other))
        }
        (Value::Number(one), Value::Number(other)) => {
            let [one, other] = [one, other].map(|number| number.as_f64().unwrap());
            (one - other).abs() <= 1e-12 * one.abs()
        }
        (one, other) => one == other,
    }
}

#[test]
fn every_figure_has_data_of_quick_runs_and_a_browser_shows_it() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for words in RUNS {
        let words: Vec<&str> = ["run", "--busy"]
            .iter()
            .chain(words)
            .chain(&["--quick", "--rounds", "1", "--save"])
            .copied()
            .collect();
        let ends = (0..ATTEMPTS).map(|_| lab(path, &words)).find(|output| output.status.success());
        succeed(&ends.unwrap_or_else(|| lab(path, &words)));
    }

    // Each document is read back whole.
    let results = path.join("results");
    for listed in &LIST {
        let Ok(text) = fs::read_to_string(results.join(format!("{}.json", listed.name))) else { continue };
        let document: Value = serde_json::from_str(&text).unwrap();
        let again = listed.read(document.clone()).unwrap().json(true).unwrap();
        assert!(alike(&serde_json::from_str(&again).unwrap(), &document), "{}: {again}", listed.name);
    }

    let answer: Value = serde_json::from_str(&succeed(&lab(path, &["report", "-j"]))).unwrap();
    let states = answer["figures"].as_array().unwrap();
    for state in states {
        assert_eq!(state["measured"], true, "{state}");
    }
    let page = path.join("report.html");
    let html = fs::read_to_string(&page).unwrap();
    for figure in &FIGURES {
        let section = html.split_once(&format!("<section id=\"{}\"", figure.number)).unwrap().1;
        let section = section.split_once("</section>").unwrap().0;
        assert_eq!(section.matches("<svg").count(), figure.pictures.len(), "pictures of {}", figure.number);
        // The published marks beside ours: in the picture, in the table, or in words where only a picture was published.
        let has_numbers = section.contains("Published beside ours");
        assert!(has_numbers || section.contains("without numbers"), "published figures of {}", figure.number);
        let (picture, mark) =
            PUBLISHED.iter().find(|(of, _)| *of == figure.number).copied().unwrap_or_default();
        assert!(section.contains(mark), "the published mark of {picture}");
        assert!(section.contains("<circle") || section.contains("<polyline"), "{} has points", figure.number);
        assert!(section.contains("trieline lab run "), "the command of {}", figure.number);
    }

    // Markdown has the same pictures, as files.
    let text = succeed(&lab(path, &["report", "--markdown", "-o", "page.md"]));
    assert!(text.starts_with("wrote page.md and "), "{text}");
    let markdown = fs::read_to_string(path.join("page.md")).unwrap();
    let pictures = Page::read(&results).unwrap();
    for picture in pictures.pictures() {
        assert!(markdown.contains(&format!("]({}.svg)", picture.name)), "{}", picture.name);
        assert!(path.join(format!("{}.svg", picture.name)).exists(), "{}", picture.name);
    }

    let Some((dom, console)) = browse(&page) else { return };
    for (is_dark, name, paper) in [(false, "light", [0xff; 3]), (true, "dark", [0x1a; 3])] {
        for (width, of) in [("1280", "wide"), (PHONE, "phone")] {
            let picture = screenshot(&page, width, is_dark);
            assert_eq!(first_pixel(&picture), paper, "{name}, {of}");
            // To be looked at.
            if let Some(folder) = std::env::var_os("TRIELINE_SCREENSHOTS") {
                fs::write(Path::new(&folder).join(format!("report-{name}-{of}.png")), &picture).unwrap();
            }
        }
    }
    assert_eq!(console, "", "the console of the page");
    assert_eq!(dom.matches("</svg>").count(), html.matches("</svg>").count(), "the browser's pictures");
    let (dom, _) = browse(&framed(&html, path)).unwrap();
    let widths = dom.split_once("data-widths=\"").unwrap().1.split_once('"').unwrap().0;
    let (frame, content) = widths.split_once(' ').unwrap();
    let content: u32 = content.parse().unwrap();
    assert!(frame == PHONE && content <= PHONE.parse().unwrap(), "wider than a phone: {widths}");

    // A page that is broken is seen to be: the console is read.
    let broken = path.join("broken.html");
    fs::write(&broken, html.replace("</body>", "<script>fail()</script></body>")).unwrap();
    let (_, console) = browse(&broken).unwrap();
    assert!(console.contains("Content Security Policy"), "{console}");
}

#[test]
fn directories_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |words: &[&str]| {
        let output = lab(folder.path(), words);
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        assert!(!folder.path().join("report.html").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    let empty = refused(&["report", "--from", "."]);
    assert!(empty.contains("cannot read .: no document there; expected NAME.json"), "{empty}");
    fs::write(folder.path().join("rss.json"), r#"{"experiment": "rss", "version": 99}"#).unwrap();
    let other = refused(&["report", "--from", "."]);
    assert!(other.contains("rss.json: a document of version 99; this program reads version 1"), "{other}");
}
