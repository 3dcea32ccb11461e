//! A picture as SVG: dark on white, with generic fonts.

use super::drawing::{Align, EDGE, Rect, Shape, TEXT, TITLE, drawing};
use super::{Scene, Step, Style};
use std::fmt::Write as _;

/// Radius of a node's corners.
const ROUND: f64 = 4.0;

/// The whole file. O(n).
pub fn write(scene: &Scene) -> String {
    let drawing = drawing(scene);
    let (width, height) = (drawing.width.ceil(), drawing.height.ceil());
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>{}</title>\n\
         <style>text {{ font-family: monospace; font-size: {}px; fill: #1a1a1a }} .edge {{ font-size: {}px }} \
         .title {{ font-size: {}px; font-weight: bold }}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n",
        escaped(&scene.title),
        TEXT.size,
        EDGE.size,
        TITLE.size
    );
    drawing.shapes.iter().for_each(|shape| shape.write(&mut svg));
    svg += "</svg>\n";
    svg
}

impl Shape {
    fn write(&self, svg: &mut String) {
        let _ = match self {
            Self::Edge { points, step } => {
                let points: Vec<String> =
                    points.iter().map(|(x, y)| format!("{},{}", number(*x), number(*y))).collect();
                let stroke = match step {
                    None => "stroke=\"#6b6b6b\"".to_owned(),
                    Some(step @ Step::Down) => format!("stroke=\"{}\" stroke-width=\"2.5\"", step.colour()),
                    Some(step) => {
                        format!("stroke=\"{}\" stroke-width=\"2.5\" stroke-dasharray=\"6 3\"", step.colour())
                    }
                };
                writeln!(svg, "<polyline points=\"{}\" fill=\"none\" {stroke}/>", points.join(" "))
            }
            Self::Box { rect, look, step } => {
                let (fill, stroke, round) = match look {
                    Style::Empty => ("#ffffff", "#8a8a8a", rect.width / 2.0),
                    Style::Dot => ("#e6edf5", "#4a5a6a", rect.width / 2.0),
                    Style::Node => ("#eef3f9", "#4a5a6a", ROUND),
                    Style::Leaf => ("#edf6ec", "#3f6b3f", 0.0),
                };
                let stroke = step.map_or(format!("stroke=\"{stroke}\""), |step| {
                    format!("stroke=\"{}\" stroke-width=\"2.5\"", step.colour())
                });
                writeln!(svg, "<rect {} rx=\"{round}\" fill=\"{fill}\" {stroke}/>", rect.attributes())
            }
            Self::Mark { rect, step } => {
                writeln!(
                    svg,
                    "<rect {} fill=\"{}\" fill-opacity=\"0.18\"/>",
                    rect.attributes(),
                    step.colour()
                )
            }
            Self::Text { text, .. } if text.is_empty() => Ok(()),
            Self::Text { rect, align, text, font, step, is_bold } => {
                let class = if *font == TEXT { String::new() } else { format!(" class=\"{}\"", font.class) };
                let bold = if *is_bold { " font-weight=\"bold\"" } else { "" };
                let colour = step.map_or(String::new(), |step| format!(" style=\"fill: {}\"", step.colour()));
                let (x, anchor) = match align {
                    Align::Start => (rect.x, ""),
                    Align::Middle => (rect.x + rect.width / 2.0, " text-anchor=\"middle\""),
                    Align::End => (rect.x + rect.width, " text-anchor=\"end\""),
                };
                // The line of the letters' feet.
                let (x, y) = (number(x), number(rect.y + rect.height / 2.0 + font.size * 0.34));
                writeln!(
                    svg,
                    "<text x=\"{x}\" y=\"{y}\"{anchor}{class}{bold}{colour}>{}</text>",
                    escaped(text)
                )
            }
        };
    }
}

impl Rect {
    fn attributes(&self) -> String {
        let [x, y, width, height] = [self.x, self.y, self.width, self.height].map(number);
        format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
    }
}

/// Tenths of a pixel.
fn number(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Item;

    #[test]
    fn names_cannot_break_the_picture() {
        let item = Item { look: Style::Leaf, lines: vec!["<&>".into()], ..Item::default() };
        let svg = write(&Scene { title: "a & b".into(), items: vec![item], ..Scene::default() });
        assert!(svg.contains("<title>a &amp; b</title>") && svg.contains(">&lt;&amp;&gt;</text>"), "{svg}");
        assert!(write(&Scene::default()).ends_with("</svg>\n"));
    }
}
