//! Who sat where, over time: a band for each GPU, its eight memory slices on top of each other, a box for each
//! slice that somebody had. A tick above marks a request that was lost.

use std::fmt::Write as _;

use super::escape;
use crate::mig::shapes::Shapes;
use crate::mig::story::Story;

/// Height of a memory slice.
const SLICE: f64 = 5.0;
/// Room between GPUs.
const GAP: f64 = 6.0;
/// Room on the left.
const LEFT: f64 = 60.0;
/// Width of the time axis.
const WIDE: f64 = 860.0;
/// Room above.
const HEAD: f64 = 58.0;
/// Fill by profile.
const FILLS: [&str; 6] = ["#ffe5b4", "#ffc971", "#8ecae6", "#cdb4db", "#b7e4c7", "#f4a6a6"];

/// The picture of a story from one time to another.
#[must_use]
pub fn svg(title: &str, story: &Story, shapes: &Shapes, gpus: usize, from: f64, until: f64) -> String {
    let band = SLICE * f64::from(shapes.slices) + GAP;
    let bottom = HEAD + gpus as f64 * band;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {:.0}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\" font-size=\"14\" fill=\"#111\">{}</text>\n",
        LEFT + WIDE + 12.0,
        bottom + 22.0,
        escape(title)
    );
    for (class, shape) in shapes.each().enumerate() {
        let x = LEFT + class as f64 * 88.0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.0}\" y=\"26\" width=\"12\" height=\"12\" fill=\"{}\" stroke=\"#666\"/><text x=\"{:.0}\" y=\"36\" fill=\"#222\">{}</text>",
            FILLS[class],
            x + 16.0,
            shape.profile
        );
    }
    let x = |time: f64| LEFT + (time.clamp(from, until) - from) / (until - from) * WIDE;
    for gpu in 0..gpus {
        let y = HEAD + gpu as f64 * band;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{WIDE}\" height=\"{:.1}\" fill=\"#f3f3f3\"/><text x=\"8\" y=\"{:.1}\" fill=\"#222\">gpu {gpu}</text>",
            band - GAP,
            y + band / 2.0
        );
    }
    let seen = |stretch: &&crate::mig::story::Stretch| stretch.from < until && stretch.until > from;
    for stretch in story.stretches.iter().filter(seen) {
        let size = f64::from(shapes.shape(stretch.class).size);
        let (left, right) = (x(stretch.from), x(stretch.until));
        // slice 0 at the bottom of its band
        let y = HEAD
            + stretch.seat.gpu as f64 * band
            + (f64::from(shapes.slices) - f64::from(stretch.seat.start) - size) * SLICE;
        let edge = if stretch.moved { "#c1121f" } else { "#666" };
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"{edge}\" stroke-width=\"0.7\"/>",
            (right - left).max(0.5),
            size * SLICE,
            FILLS[stretch.class]
        );
    }
    let mut lost = 0;
    for (time, class) in story.lost.iter().filter(|(time, _)| (from..until).contains(time)) {
        lost += 1;
        let at = x(*time);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" y1=\"44\" x2=\"{at:.1}\" y2=\"54\" stroke=\"#c1121f\" stroke-width=\"{}\"/>",
            0.5 + f64::from(shapes.shape(*class).size) / 4.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"8\" y=\"53\" fill=\"#c1121f\">{lost} lost</text><text x=\"{LEFT}\" y=\"{:.1}\" fill=\"#777\">time, {:.1} mean lifetimes; red edge: came by a move</text>\n</svg>",
        bottom + 12.0,
        until - from
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mig::engine::{Length, run};
    use crate::mig::load::{Arrivals, MIXES, Pattern};

    #[test]
    fn boxes_and_lost_requests_of_the_window_are_drawn() {
        let shapes = Shapes::h100();
        let pattern = Pattern::Steady(MIXES[0]);
        let mut story = Story::default();
        let policy: crate::mig::policy::Policy = "first-fit".parse().unwrap();
        let mut fleet = policy.fleet(&shapes, &pattern, 1.2, 2, &shared::policy::Policy::default());
        let length = Length {
            arrivals: 60,
            warm_up: 0,
        };
        let arrivals = Arrivals::new(&pattern, &shapes, 1.2, 2, 1);
        run(&mut *fleet, 2, &shapes, arrivals, length, &mut story);
        let svg = svg("two GPUs", &story, &shapes, 2, 0.0, 1e9);
        // one for the ground, one for each profile and GPU, one for each slice
        assert_eq!(svg.matches("<rect").count(), 1 + 6 + 2 + story.stretches.len());
        assert_eq!(svg.matches("<line").count(), story.lost.len());
        assert!(!story.lost.is_empty());
    }
}
