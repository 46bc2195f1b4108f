//! What comes out: sections with a table each, what was to be reached and whether it was, as text, as CSV and as a
//! page with pictures.

use std::fmt::Write as _;

use crate::picture::page::Page;

/// A table: names of columns, then rows of the same length, the first cell the row's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Names of the columns.
    pub head: Vec<String>,
    /// Rows.
    pub rows: Vec<Vec<String>>,
}

/// Something that was to be reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// What.
    pub what: String,
    /// What came out.
    pub found: f64,
    /// What it must be.
    pub bound: Bound,
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
    /// Exactly this.
    Exactly(f64),
}

/// A part of the report.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its short name: `C1`.
    pub name: String,
    /// What is compared.
    pub title: String,
    /// Sentences: set-up, service, and what to keep in mind.
    pub notes: Vec<String>,
    /// The figures.
    pub table: Table,
    /// What was to be reached.
    pub targets: Vec<Target>,
    /// Pictures by file name.
    pub pictures: Vec<(String, String)>,
    /// Why there are no figures.
    pub skipped: Option<String>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new<const N: usize>(head: [&str; N]) -> Self {
        Self {
            head: head.map(ToOwned::to_owned).to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.to_vec());
    }

    /// Its columns under each other.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            let cells = lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let mut text = String::new();
        for line in lines() {
            let cells: String = line
                .iter()
                .enumerate()
                .map(|(column, cell)| format!("{cell:<width$}  ", width = width(column)))
                .collect();
            let _ = writeln!(text, "{}", cells.trim_end());
        }
        text
    }
}

impl Target {
    /// Whether it was reached.
    #[must_use]
    pub fn held(&self) -> bool {
        // figures are counts or were rounded before, so a hair is not a miss
        match self.bound {
            Bound::AtMost(bound) => self.found <= bound + 1e-9,
            Bound::AtLeast(bound) => self.found >= bound - 1e-9,
            Bound::Exactly(bound) => (self.found - bound).abs() < 1e-9,
        }
    }

    /// `C1 uniform, one move: 95 GPUs, at most 95: held`.
    #[must_use]
    pub fn text(&self) -> String {
        let (word, bound) = match self.bound {
            Bound::AtMost(bound) => ("at most", bound),
            Bound::AtLeast(bound) => ("at least", bound),
            Bound::Exactly(bound) => ("exactly", bound),
        };
        let held = if self.held() { "held" } else { "not held" };
        format!(
            "{}: {}, {word} {}: {held}",
            self.what,
            number(self.found),
            number(bound)
        )
    }
}

impl Section {
    /// One that has no figures.
    #[must_use]
    pub fn skipped(name: &str, title: &str, why: String) -> Self {
        Self {
            name: name.to_owned(),
            title: title.to_owned(),
            skipped: Some(why),
            ..Self::default()
        }
    }

    /// It as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{}  {}\n", self.name, self.title);
        if let Some(why) = &self.skipped {
            let _ = writeln!(text, "    {} skipped: {why}", self.name);
            return text;
        }
        for note in &self.notes {
            let _ = writeln!(text, "    {note}");
        }
        text.push_str(&self.table.text());
        text
    }
}

/// The report as text: sections, then what was held.
#[must_use]
pub fn text(sections: &[Section]) -> String {
    let mut text: String = sections.iter().map(|section| section.text() + "\n").collect();
    text.push_str(&verdicts(sections));
    text
}

/// A line for each target: held or not held.
#[must_use]
pub fn verdicts(sections: &[Section]) -> String {
    let mut text = String::new();
    for section in sections {
        for target in &section.targets {
            let _ = writeln!(text, "{}", target.text());
        }
        if section.skipped.is_some() {
            let _ = writeln!(text, "{}: skipped, neither held nor missed", section.name);
        }
    }
    text
}

/// How many targets were missed, and how many there are.
#[must_use]
pub fn missed(sections: &[Section]) -> (usize, usize) {
    let targets: Vec<&Target> = sections.iter().flat_map(|section| &section.targets).collect();
    let missed = targets.iter().filter(|target| !target.held()).count();
    (missed, targets.len())
}

/// All figures, one cell a row.
///
/// # Errors
/// Where a cell cannot be written, which memory never refuses.
pub fn csv(sections: &[Section]) -> csv::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["section", "row", "column", "value"])?;
    for section in sections {
        for row in &section.table.rows {
            let name = row.first().map(String::as_str).unwrap_or_default();
            for (column, cell) in section.table.head.iter().zip(row).skip(1) {
                writer.write_record([&section.name, name, column, cell])?;
            }
        }
    }
    writer.into_inner().map_err(|error| error.into_error().into())
}

/// The report as a page.
#[must_use]
pub fn page(sections: &[Section]) -> Page {
    let mut page = Page::new("migpool-sim pool");
    page.say("GPUs that a load needs at equal service: dynamic slices against one whole GPU each and against the best static layout.");
    for section in sections {
        for (name, svg) in &section.pictures {
            page.picture(name, svg.clone());
        }
        page.verbatim(&section.text());
    }
    page.verbatim(&verdicts(sections));
    page
}

/// A share as percent: `56.0 %`.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// At most two decimals, and none that are zero.
#[must_use]
pub fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section() -> Section {
        let mut table = Table::new(["mix", "GPUs"]);
        table.row(["uniform, all".into(), "95".into()]);
        table.row(["b".into(), "216".into()]);
        let target = |found, bound| Target {
            what: "C1 uniform".into(),
            found,
            bound,
        };
        Section {
            name: "C1".into(),
            title: "a steady load".into(),
            notes: vec!["at least 99 % let in".into()],
            table,
            targets: vec![
                target(95.0, Bound::AtMost(95.0)),
                target(96.0, Bound::AtMost(95.0)),
                target(0.5, Bound::AtLeast(0.4)),
            ],
            ..Section::default()
        }
    }

    #[test]
    fn columns_stand_under_each_other_and_targets_say_whether_they_hold() {
        let text = text(&[section(), Section::skipped("C3", "serving", "no file".into())]);
        assert!(
            text.contains("mix           GPUs\nuniform, all  95\nb             216\n"),
            "{text}"
        );
        assert!(text.contains("C1 uniform: 95, at most 95: held\n"), "{text}");
        assert!(text.contains("C1 uniform: 96, at most 95: not held\n"), "{text}");
        assert!(text.contains("C3 skipped: no file\n"), "{text}");
        assert_eq!(missed(&[section()]), (1, 3));
    }

    #[test]
    fn a_csv_has_a_row_for_each_figure_and_quotes_what_must_be() {
        let text = String::from_utf8(csv(&[section()]).unwrap()).unwrap();
        assert_eq!(
            text,
            "section,row,column,value\nC1,\"uniform, all\",GPUs,95\nC1,b,GPUs,216\n"
        );
    }
}
