//! Compares two documents of one experiment, and tells a change from noise. Rows are matched by the keys that name them, and a figure has changed
//! if the intervals of its medians do not overlap.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_json::Value;
use trieline_sampling::rounded;
use trieline_terminal::aligned;

use crate::{
    Error, Result,
    experiments::{Better, Compared, Figure, LIST},
    results::Saved,
};

/// Fewest rounds whose least and greatest figure are an interval: without a change, those of five and five lie apart in 1 of 126 cases.
const RANGE_MIN: u64 = 5;

/// The finding of a comparison about a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The intervals lie apart, and the second document has the better figure.
    Improved,
    /// The intervals lie apart, and the second document has the worse figure.
    Regressed,
    /// The intervals overlap.
    Noise,
    /// One of the figures has no interval: too few rounds.
    Undecided,
}

/// A figure with its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The median.
    pub value: f64,
    /// Its interval, if it is known.
    pub interval: Option<[f64; 2]>,
}

/// The keys that name a row, in the order of the experiment, with their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Name(pub Vec<(&'static str, Value)>);

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

/// A figure of a row that both documents have.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The key of the list in the documents.
    pub list: &'static str,
    /// The keys that name the row, with their values.
    pub name: Name,
    /// The figure's key.
    pub figure: &'static str,
    /// In the first document.
    pub a: Measured,
    /// In the second.
    pub b: Measured,
    /// The second over the first; none unless both are above 0.
    pub ratio: Option<f64>,
    /// The least and the greatest ratio that the intervals allow.
    pub ratio_interval: Option<[f64; 2]>,
    /// Whether that is a change.
    pub verdict: Verdict,
}

/// A document, in short.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// Its file.
    pub file: String,
    /// The commit that was measured.
    pub git: String,
    /// When.
    pub date: String,
    /// By which command.
    pub command: String,
    /// Whether other work ran on the machine.
    pub busy: bool,
}

/// Two documents of one experiment, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The experiment.
    pub experiment: String,
    /// The first document.
    pub a: Side,
    /// The second.
    pub b: Side,
    /// In what machines and parameters differ, in words: then figures may differ for that reason.
    pub differences: Vec<String>,
    /// Figures of rows that both have.
    pub rows: Vec<Row>,
    /// Names of rows that only the first has.
    pub only_in_a: Vec<Name>,
    /// Names of rows that only the second has.
    pub only_in_b: Vec<Name>,
}

/// Compares two documents.
///
/// # Errors
/// [`Error::Document`]: they are of different experiments, or of one whose documents cannot be compared; a list or a figure is not one.
pub fn compare(a: &Saved, b: &Saved) -> Result<Comparison> {
    let refuse = |why: String| Error::Document { path: b.path.clone(), why };
    if a.experiment != b.experiment {
        let (first, one, other) = (a.path.display(), &a.experiment, &b.experiment);
        return Err(refuse(format!(
            "cannot compare a document of `{other}` with {first}, which is of `{one}`"
        )));
    }
    let listed = LIST.iter().find(|listed| listed.name == a.experiment).map(|listed| listed.compared);
    let lists = listed
        .filter(|lists| !lists.is_empty())
        .ok_or_else(|| refuse(format!("this program cannot compare documents of `{}`", a.experiment)))?;
    let mut comparison = Comparison {
        experiment: a.experiment.clone(),
        a: side(a),
        b: side(b),
        differences: differences(a, b),
        rows: Vec::new(),
        only_in_a: Vec::new(),
        only_in_b: Vec::new(),
    };
    for list in lists {
        comparison.list(list, a, b)?;
    }
    Ok(comparison)
}

fn side(saved: &Saved) -> Side {
    let of = |key| saved.machine(key).to_owned();
    Side {
        file: saved.path.display().to_string(),
        git: of("git"),
        date: of("date"),
        command: of("command"),
        busy: saved.is_busy(),
    }
}

/// Machines and parameters that differ; words that only explain are alike in one version.
fn differences(a: &Saved, b: &Saved) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |object: &str, key: &str| {
        let [one, other] = [a, b].map(|saved| &saved.document[object][key]);
        if one != other && !one.is_object() {
            found.push(format!("{object}.{key}: {one} and {other}"));
        }
    };
    for key in ["cpu", "cores", "kernel", "compiler", "seed"] {
        differ("machine", key);
    }
    let keys = a.document["parameters"].as_object().map(|parameters| parameters.keys().cloned());
    for key in keys.into_iter().flatten() {
        differ("parameters", &key);
    }
    found.extend(
        [a, b]
            .into_iter()
            .filter(|saved| saved.is_busy())
            .map(|saved| format!("{}: the machine was busy, trust no difference", saved.path.display())),
    );
    found
}

impl Comparison {
    fn list(&mut self, compared: &Compared, a: &Saved, b: &Saved) -> Result<()> {
        let (rows, mut others) = (rows(compared, a)?, rows(compared, b)?);
        for one in rows {
            let name = name(compared, &one);
            let Some(at) = others.iter().position(|other| self::name(compared, other) == name) else {
                self.only_in_a.push(name);
                continue;
            };
            let other = others.remove(at);
            for figure in compared.figures {
                let of = |row, saved: &Saved| measured(figure, row, &saved.document["parameters"]);
                if let (Some(a), Some(b)) = (of(&one, a), of(&other, b)) {
                    self.rows.push(row(compared.list, name.clone(), figure, a, b));
                }
            }
        }
        self.only_in_b.extend(others.iter().map(|other| name(compared, other)));
        Ok(())
    }

    /// How many figures have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict == verdict).count()
    }

    /// For people: a line for each figure, and what the verdicts mean.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: A {} ({}), B {} ({})\n",
            self.experiment, self.a.file, self.a.git, self.b.file, self.b.git
        );
        for difference in &self.differences {
            let _ = writeln!(text, "differs: {difference}");
        }
        let heading = ["row", "figure", "A", "interval", "B", "interval", "B/A", "interval", "verdict"];
        let mut lines = vec![heading.map(str::to_owned).to_vec()];
        lines.extend(self.rows.iter().map(Row::cells));
        let _ = write!(text, "\n{}", aligned(&lines, 2));
        for (side, names) in [("A", &self.only_in_a), ("B", &self.only_in_b)] {
            for name in names {
                let _ = writeln!(text, "only in {side}: {}", words(name));
            }
        }
        let _ = writeln!(
            text,
            "\n{} improved, {} regressed, {} noise (the intervals overlap), {} undecided (no interval, or fewer than {RANGE_MIN} rounds)",
            self.count(Verdict::Improved),
            self.count(Verdict::Regressed),
            self.count(Verdict::Noise),
            self.count(Verdict::Undecided)
        );
        text
    }
}

impl Row {
    fn cells(&self) -> Vec<String> {
        let interval =
            |of: Option<[f64; 2]>| of.map(|[low, high]| format!("{low}..{high}")).unwrap_or_default();
        let verdict = format!("{:?}", self.verdict).to_lowercase();
        vec![
            words(&self.name),
            self.figure.into(),
            self.a.value.to_string(),
            interval(self.a.interval),
            self.b.value.to_string(),
            interval(self.b.interval),
            self.ratio.map(|ratio| ratio.to_string()).unwrap_or_default(),
            interval(self.ratio_interval),
            verdict,
        ]
    }
}

/// The rows of a list. Each figure in them is a number, or null where it was not measured.
fn rows(compared: &Compared, saved: &Saved) -> Result<Vec<Value>> {
    let list = compared.list;
    let refuse = |what: String| Error::Document { path: saved.path.clone(), why: what };
    let rows = saved.document[list].as_array();
    let rows = rows.ok_or_else(|| refuse(format!("invalid `{list}`: expected a list of rows")))?;
    for (row, at) in rows.iter().zip(0..) {
        let figures = compared.figures.iter().map(|figure| (figure.key, &row[figure.key]));
        if let Some((key, value)) =
            figures.into_iter().find(|(_, value)| !value.is_number() && !value.is_null())
        {
            return Err(refuse(format!("invalid {value} for {list}[{at}].{key}: expected a number or null")));
        }
    }
    Ok(rows.clone())
}

/// The values of the keys that name a row.
fn name(compared: &Compared, row: &Value) -> Name {
    Name(compared.names.iter().map(|key| (*key, row[*key].clone())).collect())
}

/// A row's name in words.
fn words(Name(name): &Name) -> String {
    let word = |(key, value): &(&str, Value)| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(format!("{key}={other}")),
    };
    name.iter().filter_map(word).collect::<Vec<_>>().join(" ")
}

/// A figure with its interval: that of its median, or of enough rounds the least and the greatest.
fn measured(figure: &Figure, row: &Value, parameters: &Value) -> Option<Measured> {
    let number = |key: &str| row[key].as_f64();
    let value = number(figure.key)?;
    let pair = |low: &str, high: &str| Some([number(low)?, number(high)?]);
    let key = figure.key;
    let of_median = || {
        let ends = row[format!("{key}_ci")].as_array()?;
        Some([ends.first()?.as_f64()?, ends.get(1)?.as_f64()?])
    };
    let range = || {
        let rounds = row["rounds"].as_u64().or(row["runs"].as_u64()).or(parameters["rounds"].as_u64())?;
        let own = || pair(&format!("{key}_min"), &format!("{key}_max"));
        figure
            .range
            .map_or_else(own, |[least, greatest]| pair(least, greatest))
            .filter(|_| rounds >= RANGE_MIN)
    };
    let named = || figure.ends.and_then(|[low, high]| pair(low, high));
    Some(Measured { value, interval: named().or_else(of_median).or_else(range) })
}

fn row(list: &'static str, name: Name, figure: &Figure, a: Measured, b: Measured) -> Row {
    let over = |b: f64, a: f64| (a > 0.0 && b > 0.0).then(|| rounded(b / a, 3));
    let ratio_interval = a
        .interval
        .zip(b.interval)
        .and_then(|([a_low, a_high], [b_low, b_high])| Some([over(b_low, a_high)?, over(b_high, a_low)?]));
    let verdict = match a.interval.zip(b.interval) {
        None => Verdict::Undecided,
        Some(([low, high], [other_low, other_high])) => {
            let (is_above, is_below) = (other_low > high, other_high < low);
            match (figure.better, is_above, is_below) {
                (_, false, false) => Verdict::Noise,
                (Better::Higher, true, _) | (Better::Lower, _, true) => Verdict::Improved,
                _ => Verdict::Regressed,
            }
        }
    };
    Row { list, name, figure: figure.key, a, b, ratio: over(b.value, a.value), ratio_interval, verdict }
}

#[cfg(test)]
mod tests;
