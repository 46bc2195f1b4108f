//! Means with their confidence intervals: a row for each name, a panel for each column, one scale for all.

use std::fmt::Write as _;

use super::{escape, ticks};
use crate::statistics::Summary;

/// Width of a panel.
const PANEL: f64 = 230.0;
/// Height of a row.
const ROW: f64 = 22.0;
/// Room for names.
const NAMES: f64 = 130.0;
/// Room for the head.
const HEAD: f64 = 56.0;
/// Room between panels.
const GAP: f64 = 24.0;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Rows: name, whether it is ours, and a value for each panel.
    pub rows: Vec<(String, bool, Vec<Summary>)>,
    /// Panels: name, and a line to compare with.
    pub panels: Vec<(String, Option<f64>)>,
}

impl Chart {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let values = self.rows.iter().flat_map(|(_, _, values)| values);
        let bounds = values.flat_map(|value| [value.mean - value.half, value.mean + value.half]);
        let marks = self.panels.iter().filter_map(|(_, mark)| *mark);
        let (low, high) = bounds
            .chain(marks)
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        let pad = ((high - low) * 0.06).max(1e-6);
        let (low, high) = (low - pad, high + pad);
        let width = NAMES + self.panels.len() as f64 * (PANEL + GAP);
        let bottom = HEAD + self.rows.len() as f64 * ROW;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {:.0}\" font-family=\"monospace\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"8\" y=\"20\" font-size=\"14\" fill=\"#111\">{}</text>\n",
            bottom + 30.0,
            escape(&self.title)
        );
        for (row, (name, ours, _)) in self.rows.iter().enumerate() {
            let y = HEAD + row as f64 * ROW;
            if *ours {
                let _ = writeln!(
                    svg,
                    "<rect x=\"0\" y=\"{y:.1}\" width=\"{width:.0}\" height=\"{ROW}\" fill=\"#eef6ee\"/>"
                );
            }
            let weight = if *ours { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                svg,
                "<text x=\"8\" y=\"{:.1}\" fill=\"#222\"{weight}>{}</text>",
                y + 15.0,
                escape(name)
            );
        }
        for (panel, (name, mark)) in self.panels.iter().enumerate() {
            let left = NAMES + panel as f64 * (PANEL + GAP);
            let x = |value: f64| left + (value - low) / (high - low) * PANEL;
            let _ = writeln!(
                svg,
                "<text x=\"{left:.1}\" y=\"44\" fill=\"#222\">{}</text>",
                escape(name)
            );
            for tick in ticks(low, high, 4) {
                let at = x(tick);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{at:.1}\" y1=\"{HEAD}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#ddd\"/>\
                     <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777\" font-size=\"10\">{tick:.2}</text>",
                    bottom + 14.0
                );
            }
            if let Some(mark) = mark {
                let at = x(*mark);
                let _ = writeln!(
                    svg,
                    "<line x1=\"{at:.1}\" y1=\"{HEAD}\" x2=\"{at:.1}\" y2=\"{bottom:.1}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>"
                );
            }
            for (row, (_, ours, values)) in self.rows.iter().enumerate() {
                let Some(value) = values.get(panel) else { continue };
                let y = HEAD + row as f64 * ROW + ROW / 2.0;
                let colour = if *ours { "#2a7f3f" } else { "#33658a" };
                let (from, to, at) = (
                    x(value.mean - value.half),
                    x(value.mean + value.half),
                    x(value.mean),
                );
                let _ = writeln!(
                    svg,
                    "<line x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
                     <circle cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"><title>{:.4} ± {:.4}</title></circle>",
                    value.mean, value.half
                );
            }
        }
        svg.push_str("</svg>\n");
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_drawn_within_its_panel() {
        let value = |mean| Summary {
            count: 5,
            mean,
            sd: 0.01,
            half: 0.01,
        };
        let chart = Chart {
            title: "used".into(),
            rows: vec![
                ("first-fit".into(), false, vec![value(0.8), value(0.7)]),
                ("ours".into(), true, vec![value(0.9), value(0.85)]),
            ],
            panels: vec![("uniform".into(), Some(0.92)), ("bimodal".into(), None)],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 4);
        for part in svg.split("cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((NAMES..NAMES + 2.0 * (PANEL + GAP)).contains(&x), "{x}");
        }
        assert!(svg.contains("0.9000 ± 0.0100") && svg.trim_end().ends_with("</svg>"));
    }
}
