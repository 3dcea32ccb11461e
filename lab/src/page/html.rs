//! The page as one HTML file, which loads nothing: its style and its pictures are in it, and it has no script.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    contents::{Entry, Page},
    figures::{FIGURES, Figure},
};
use crate::{
    Result,
    report::{Picture, Table},
};

const STYLE: &str = include_str!("style.css");
/// Nothing is loaded, from anywhere.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

impl Page {
    /// The page as HTML.
    ///
    /// # Errors
    /// A file of published numbers is invalid.
    pub fn html(&self) -> Result<String> {
        let title = self.title();
        let sections: Vec<Markup> =
            FIGURES.iter().map(|figure| self.figure(figure)).collect::<Result<_>>()?;
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    title { (title) " – trieline" }
                    link rel="icon" href="data:,";
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    a.skip href="#main" { "Skip to the figures" }
                    header {
                        h1 { (title) }
                        p { (self.summary()) " Ratios mean more than rates: veth is not a network card." }
                    }
                    nav aria-label="Figures and experiments" { (self.contents()) }
                    main id="main" tabindex="-1" {
                        @for section in &sections { (section) }
                        section id="experiments" aria-labelledby="experiments-title" {
                            h2 id="experiments-title" { "The experiments, whole" }
                            @for entry in &self.entries { (entry.html()) }
                        }
                    }
                    footer { p.quiet { "Written by " code { "trieline lab report" } "." } }
                }
            }
        };
        Ok(page.into_string())
    }

    fn contents(&self) -> Markup {
        html! {
            ol {
                @for (figure, state) in FIGURES.iter().zip(self.states()) {
                    li {
                        a href={ "#" (figure.number) } { (figure.number) " " (figure.title) }
                        @if !state.measured { span.quiet { " (not measured)" } }
                    }
                }
                li { a href="#experiments" { "The experiments, whole" } }
            }
        }
    }

    fn figure(&self, figure: &Figure) -> Result<Markup> {
        let entry = self.entry(figure.experiment);
        let compared = figure.compared(entry.map_or(&serde_json::Value::Null, |entry| &entry.document))?;
        Ok(html! {
            section id=(figure.number) aria-labelledby={ (figure.number) "-title" } {
                h2 id={ (figure.number) "-title" } {
                    (figure.number) ": " (entry.map_or("", Entry::mark)) (figure.title)
                }
                p { (figure.shows) }
                @match entry {
                    Some(entry) => {
                        @for picture in entry.pictures_of(figure) { (show(picture)) }
                    }
                    None => (self.no_document(figure))
                }
                @if !compared.rows.is_empty() { (rows(&compared, figure.title)) }
                @if let Some(entry) = entry {
                    (entry.origin_list())
                    p { a href={ "#experiment-" (figure.experiment) } { "All rows of " (figure.experiment) } }
                }
            }
        })
    }

    fn no_document(&self, figure: &Figure) -> Markup {
        let missing = self.missing(figure);
        html! {
            p.missing {
                (missing.why)
                @if let Some(command) = missing.command { " This command makes it: " code { (command) } }
            }
        }
    }
}

impl Entry {
    fn html(&self) -> Markup {
        let name = self.finished.experiment();
        html! {
            section id={ "experiment-" (name) } aria-labelledby={ "experiment-" (name) "-title" } {
                h3 id={ "experiment-" (name) "-title" } { (self.finished.title()) }
                (self.origin_list())
                @for picture in self.other_pictures() { (show(picture)) }
                @for table in self.finished.tables() {
                    @if !table.rows.is_empty() {
                        details {
                            summary {
                                @if table.title.is_empty() { "Rows" } @else { (table.title) }
                                " (" (table.rows.len()) ")"
                            }
                            (rows(&table, name))
                        }
                    }
                }
                pre { (self.finished.notes()) }
                @for refusal in self.finished.refused() {
                    p { "No rows of " (refusal.rival) " (" (refusal.case) "): " (refusal.reason) "." }
                }
            }
        }
    }

    fn origin_list(&self) -> Markup {
        html! {
            dl {
                @for (name, text) in self.origin() {
                    dt { (name) }
                    dd { @if name == "Command" { code { (text) } } @else { (text) } }
                }
            }
        }
    }
}

/// A picture, which scrolls inside its box where the screen is narrow. Its own title and description are in it.
fn show(picture: &Picture) -> Markup {
    html! {
        figure {
            div.box tabindex="0" role="group" aria-label={ "Picture: " (PreEscaped(picture.title().replace('"', "&quot;"))) } { (PreEscaped(&picture.svg)) }
            figcaption { (PreEscaped(picture.title())) }
        }
    }
}

/// A table, which scrolls inside its box; `of` says whose it is where it has no title.
fn rows(table: &Table, of: &str) -> Markup {
    let caption = if table.title.is_empty() { of } else { table.title };
    let class = |column: usize| (column < table.left).then_some("word");
    html! {
        div.box tabindex="0" role="group" aria-label={ "Table: " (caption) } {
            table {
                caption { (caption) }
                thead {
                    tr {
                        @for (column, heading) in table.heading.iter().enumerate() {
                            th scope="col" class=[class(column)] { (heading) }
                        }
                    }
                }
                tbody {
                    @for cells in &table.rows {
                        tr {
                            @for (column, cell) in cells.iter().enumerate() {
                                @if column == 0 {
                                    th scope="row" class=[class(column)] { (cell) }
                                } @else {
                                    td class=[class(column)] { (cell) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
