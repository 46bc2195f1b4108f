//! Curves over one axis, each named at its right end.

use std::fmt::Write as _;

use super::{escape, label, ticks};

/// Left edge of the curves.
const LEFT: f64 = 56.0;
/// Upper edge.
const TOP: f64 = 34.0;
/// Width.
const WIDE: f64 = 620.0;
/// Height.
const HIGH: f64 = 260.0;
/// Least distance of names.
const APART: f64 = 13.0;
/// Colours of those that are not ours, in turn.
const COLOURS: [&str; 6] = ["#9a8c98", "#c9ada7", "#e09f3e", "#5fa8d3", "#33658a", "#7b2d8b"];

/// A curve.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Whether it is ours.
    pub ours: bool,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// What the axis across is.
    pub across: String,
    /// Curves.
    pub lines: Vec<Line>,
}

impl Chart {
    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let range = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            // one point, or none, still has an axis
            if low < high {
                (low, high)
            } else {
                (low.min(0.0), high.max(0.0) + 1.0)
            }
        };
        let (left, right) = range(&mut points().map(|(x, _)| *x));
        let (low, high) = range(&mut points().map(|(_, y)| *y));
        let x = |value: f64| LEFT + (value - left) / (right - left) * WIDE;
        let y = |value: f64| TOP + (high - value) / (high - low) * HIGH;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"8\" y=\"18\" font-size=\"14\" fill=\"#111\">{}</text>\n",
            LEFT + WIDE + 170.0,
            TOP + HIGH + 40.0,
            escape(&self.title)
        );
        for tick in ticks(left, right, 8) {
            let at = x(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.1}\" stroke=\"#eee\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#777\">{}</text>",
                TOP + HIGH,
                TOP + HIGH + 14.0,
                label(tick)
            );
        }
        for tick in ticks(low, high, 6) {
            let at = y(tick);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\" stroke=\"#eee\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#777\">{}</text>",
                LEFT + WIDE,
                LEFT - 6.0,
                at + 4.0,
                label(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#777\">{}</text>",
            TOP + HIGH + 30.0,
            escape(&self.across)
        );
        for (line, colour, name) in self.labelled(y) {
            let path: Vec<String> = line
                .points
                .iter()
                .map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b)))
                .collect();
            let (width, weight) = if line.ours {
                (2.5, " font-weight=\"bold\"")
            } else {
                (1.5, "")
            };
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\"{weight}>{}</text>",
                path.join(" "),
                LEFT + WIDE + 8.0,
                name + 4.0,
                escape(&line.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Curves with their colours and where their names stand: at the end of the curve, moved down where another
    /// name is there already.
    fn labelled(&self, y: impl Fn(f64) -> f64) -> Vec<(&Line, &'static str, f64)> {
        let mut others = COLOURS.iter().cycle();
        let mut labelled: Vec<(&Line, &'static str, f64)> = self
            .lines
            .iter()
            .map(|line| {
                let colour = if line.ours {
                    "#2a7f3f"
                } else {
                    others.next().copied().unwrap_or("#333")
                };
                (line, colour, line.points.last().map_or(TOP, |(_, last)| y(*last)))
            })
            .collect();
        labelled.sort_by(|a, b| a.2.total_cmp(&b.2));
        let mut free = TOP;
        for (_, _, at) in &mut labelled {
            *at = at.max(free);
            free = *at + APART;
        }
        labelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_end_where_their_last_value_is_and_names_do_not_cover_each_other() {
        let line = |name: &str, last: f64| Line {
            name: name.to_owned(),
            ours: name == "ours",
            points: vec![(0.0, 0.0), (100.0, last)],
        };
        let chart = Chart {
            title: "t".to_owned(),
            across: "x".to_owned(),
            lines: vec![line("a", 99.0), line("ours", 100.0), line("b", 99.5)],
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert!(
            svg.contains(&format!("{:.1},{TOP:.1}\"", LEFT + WIDE)),
            "the best ends at the upper edge"
        );
        let labels: Vec<f64> = chart
            .labelled(|value| 300.0 - value)
            .iter()
            .map(|(_, _, at)| *at)
            .collect();
        assert!(
            labels.windows(2).all(|pair| pair[1] - pair[0] >= APART),
            "{labels:?}"
        );
    }

    #[test]
    fn an_empty_chart_is_a_picture_too() {
        let chart = Chart {
            title: String::new(),
            across: String::new(),
            lines: Vec::new(),
        };
        let svg = chart.svg();
        assert!(!svg.contains("NaN"), "{svg}");
    }
}
