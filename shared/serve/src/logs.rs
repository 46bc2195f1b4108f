//! Logs on standard error, as text for people or JSON for collectors. `RUST_LOG` sets the level.

use std::fmt;
use std::str::FromStr;

use tracing_subscriber::EnvFilter;

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One line for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// A log format that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadFormat(String);

impl FromStr for Format {
    type Err = BadFormat;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(BadFormat(other.to_owned())),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

impl fmt::Display for BadFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log format {:?} does not exist; say text or json", self.0)
    }
}

impl std::error::Error for BadFormat {}

/// Starts logging. Later calls change nothing: the first program part to ask decides.
pub fn init(format: Format) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // colours are for a terminal; in a collected log they are noise
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr);
    let started = match format {
        Format::Text => builder.try_init(),
        Format::Json => builder.json().flatten_event(true).try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_reads_back_and_a_wrong_one_is_named() {
        for format in [Format::Text, Format::Json] {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let refused = "yaml".parse::<Format>().unwrap_err().to_string();
        assert_eq!(refused, r#"log format "yaml" does not exist; say text or json"#);
    }
}
