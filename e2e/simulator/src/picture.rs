//! Pictures as SVG, written by hand: they open anywhere, and a diff of one can be read.
//!
//! * [`intervals`] - means with their confidence intervals, one panel a column
//! * [`lines`] - curves over one axis
//! * [`layouts`] - who sat where, over time
//! * [`page`] - pictures with words on one HTML page

pub mod intervals;
pub mod layouts;
pub mod lines;
pub mod page;

/// Text that is safe between tags and in attributes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Round numbers that divide a range into about `steps` parts.
#[must_use]
pub fn ticks(from: f64, to: f64, steps: usize) -> Vec<f64> {
    let rough = (to - from).max(f64::MIN_POSITIVE) / steps.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough)
        .unwrap_or(10.0)
        * power;
    let first = (from / step).ceil() as i64;
    let last = (to / step + 1e-9).floor() as i64;
    (first..=last).map(|tick| tick as f64 * step).collect()
}

/// A tick as text: at most three decimals, and none that are zero.
#[must_use]
pub fn label(tick: f64) -> String {
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_short() {
        assert_eq!(
            [95.0, 0.1 + 0.2, 0.025, 0.0].map(label),
            ["95", "0.3", "0.025", "0"]
        );
    }

    #[test]
    fn ticks_are_round_and_within() {
        let close =
            |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(
            close(&ticks(0.71, 0.93, 4), &[0.8, 0.9]),
            "{:?}",
            ticks(0.71, 0.93, 4)
        );
        assert!(close(&ticks(0.0, 1.0, 5), &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0]));
    }

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a & \"b\">"), "&lt;a &amp; &quot;b&quot;&gt;");
    }
}
