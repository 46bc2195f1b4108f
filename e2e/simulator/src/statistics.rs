//! Mean, spread and how far to trust a mean.

/// What a list of measurements says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// How many there are.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation (n - 1).
    pub sd: f64,
    /// Half the width of the 95 % confidence interval of the mean (Student's t).
    pub half: f64,
}

/// Student's t, two-sided 95 %, by degrees of freedom from 1.
const T95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Summary {
    /// Of these measurements. One alone has no spread: `sd` and `half` are 0 then.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.into_iter().collect();
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count.max(1) as f64;
        if count < 2 {
            return Self {
                count,
                mean,
                ..Self::default()
            };
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = (squares / (count - 1) as f64).sqrt();
        let t = T95.get(count - 2).copied().unwrap_or(1.96);
        Self {
            count,
            mean,
            sd,
            half: t * sd / (count as f64).sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_list_gives_its_known_interval() {
        let summary = Summary::of([1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!((summary.mean - 3.0).abs() < 1e-12);
        assert!((summary.sd - 2.5_f64.sqrt()).abs() < 1e-12);
        assert!((summary.half - 2.776 * (0.5_f64).sqrt()).abs() < 1e-9);
    }

    #[test]
    fn one_value_has_no_spread_and_none_no_mean_to_divide_by() {
        assert_eq!(Summary::of([4.0]).half, 0.0);
        assert_eq!(Summary::of([]).mean, 0.0);
    }
}
