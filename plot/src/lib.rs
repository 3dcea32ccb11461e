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

    /// Writes `directory/NAME.svg`; its path.
    pub fn save(&self, directory: &Path) -> io::Result<PathBuf> {
        let path = directory.join(format!("{}.svg", self.name));
        fs::write(&path, &self.svg)?;
        Ok(path)
    }
}
