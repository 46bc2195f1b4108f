//! Rows of a gzipped CSV file by column name. What cannot be read is named by file and line.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use csv::{Reader, StringRecord};
use flate2::read::GzDecoder;

/// A file being read.
pub(super) struct Rows {
    path: PathBuf,
    reader: Reader<GzDecoder<File>>,
    head: StringRecord,
    record: StringRecord,
}

/// One row.
pub(super) struct Row<'a> {
    path: &'a Path,
    head: &'a StringRecord,
    record: &'a StringRecord,
}

impl Rows {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut reader = Reader::from_reader(GzDecoder::new(file));
        let head = reader
            .headers()
            .with_context(|| format!("{} is no gzipped CSV", path.display()))?
            .clone();
        Ok(Self {
            path: path.to_path_buf(),
            reader,
            head,
            record: StringRecord::new(),
        })
    }

    pub(super) fn next(&mut self) -> Result<Option<Row<'_>>> {
        let more = self.reader.read_record(&mut self.record);
        let more = more.with_context(|| format!("{} is cut off or no CSV", self.path.display()))?;
        Ok(more.then_some(Row {
            path: &self.path,
            head: &self.head,
            record: &self.record,
        }))
    }
}

impl Row<'_> {
    pub(super) fn text(&self, column: &str) -> Result<&str> {
        let at = self.head.iter().position(|name| name == column);
        match at.and_then(|at| self.record.get(at)).unwrap_or_default() {
            "" => bail!(self.wrong(&format!("the column {column} is missing or empty"))),
            text => Ok(text),
        }
    }

    pub(super) fn number<N: std::str::FromStr>(&self, column: &str) -> Result<N> {
        let text = self.text(column)?;
        text.parse()
            .map_err(|_| anyhow!(self.wrong(&format!("{column} is {text:?}, not a number"))))
    }

    /// A time of day on a date, in minutes since 1970.
    pub(super) fn minute(&self, column: &str) -> Result<i64> {
        let text = self.text(column)?;
        let wrong = || self.wrong(&format!("{column} is {text:?}, not a date with a time"));
        let at: jiff::civil::DateTime = text.parse().with_context(wrong)?;
        let at = at.to_zoned(jiff::tz::TimeZone::UTC).with_context(wrong)?;
        Ok(at.timestamp().as_second().div_euclid(60))
    }

    pub(super) fn wrong(&self, what: &str) -> String {
        let line = self.record.position().map_or(0, csv::Position::line);
        format!("{}, line {line}: {what}", self.path.display())
    }
}
