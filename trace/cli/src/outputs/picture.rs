//! The distribution of T2 as a picture: a curve for each stage, the axis of quantiles stretched towards 100 %, as HdrHistogram plots it.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use trieline_plot::curve::{self, Curve, Marks, Point, Stroke, Words};
use trieline_trace::{Part, Stage, Summary};

use crate::errors::cannot_write;
use crate::report::{c_point, stage_name};

/// Steps for each halving of what is left to 100 %.
const TICKS: u32 = 12;

/// Draws it. `source`: how it was measured, at most two lines.
pub fn write(path: &Path, summary: &Summary, source: &str) -> Result<()> {
    let mut curves = Vec::new();
    for (series, (stage, times)) in summary.stages().enumerate() {
        let most = times.len() as f64;
        let points = times.iter_quantiles(TICKS).map(|step| {
            let left = (1.0 - step.quantile_iterated_to()).max(1.0 / most);
            // Of less than a nanosecond the clock knows nothing; such an axis has no 0.
            let time = step.value_iterated_to().max(1) as f64 / 1e3;
            Point { x: 1.0 / left, y: time, least: time, most: time }
        });
        curves.push(Curve {
            label: label(stage),
            points: points.collect(),
            // The first colour is grey.
            series: series + 1,
            stroke: Stroke::Plain,
        });
    }
    let is_inside = summary.stages().all(|(stage, _)| stage.part == Part::INSIDE);
    let words = Words {
        title: if is_inside { "T2: from the receive to C" } else { "Times of messages, by stage" },
        x: "percentile of messages, stretched towards 100 %",
        marks: Marks::Quantiles,
        y: "microseconds",
        source,
    };
    fs::write(path, curve::picture(words, &curves)?).with_context(|| cannot_write(path))
}

/// A stage's name where there is little room: what goes back by its socket leaves as what it came as.
fn label(stage: &Stage) -> String {
    if stage.is_reply {
        format!("{}, same socket, {}", stage.from, c_point(stage))
    } else {
        stage_name(stage)
    }
}
