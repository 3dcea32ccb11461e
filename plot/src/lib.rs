//! Pictures of measured figures, as SVG: lines with their spread, bars, curves over sizes, figures over thresholds.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

pub mod bars;
pub mod curve;
mod draw;
pub mod lines;
pub mod thresholds;

/// A picture could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("drawing the picture: {0}")]
pub struct Error(String);

/// The result of drawing.
pub type Result<T> = std::result::Result<T, Error>;

/// A picture that has a name.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Its file's name without `.svg`.
    pub name: String,
    /// The picture.
    pub svg: String,
}

impl Picture {
    /// Its title, as XML.
    pub fn title(&self) -> &str {
        let title = self.svg.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
        title.map_or(self.name.as_str(), |(title, _)| title)
    }

    /// With a mark before its title, in the picture and for screen readers.
    pub fn marked(mut self, mark: &str) -> Picture {
        let title = self.title().to_owned();
        for (before, behind) in [("<title>", "</title>"), (">\n", "\n</text>")] {
            let with = |title: &str| format!("{before}{title}{behind}");
            self.svg = self.svg.replacen(&with(&title), &with(&format!("{mark}{title}")), 1);
        }
        self
    }

    /// Writes `directory/NAME.svg`; its path.
    pub fn save(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join(format!("{}.svg", self.name));
        fs::write(&path, &self.svg)?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_before_the_title_that_is_seen_and_the_one_that_is_read_out() {
        let line =
            lines::Line { label: "a".into(), value: 2.0, min: 1.0, max: 3.0, series: 0, note: "b".into() };
        let picture = lines::times("x", "Forwarding, <time> & more", "here", &[line]).unwrap();
        let marked = picture.clone().marked("BUSY: ");
        assert_eq!(marked.title(), format!("BUSY: {}", picture.title()));
        assert_eq!(marked.svg.matches("BUSY: Forwarding").count(), 2, "{}", marked.svg);
        assert_eq!(picture.clone().marked("").svg, picture.svg);
    }
}
