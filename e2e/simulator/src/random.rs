//! Random numbers that are the same on every machine and with every version of every library: a run is named by
//! its seed, and published tables must come out again. The generator is xoshiro256++ (Blackman and Vigna),
//! seeded by splitmix64.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut at = seed;
        let mut next = || {
            at = at.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = at;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        };
        Self {
            state: [next(), next(), next(), next()],
        }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let out = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        out
    }

    /// A number from 0 (included) to 1 (not included).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `bound`, all equally likely; 0 where `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // the high half of a 128-bit product; its bias is bound / 2^64
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }

    /// An exponential time of mean 1.
    pub fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }

    /// Puts a list in random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_one_stream_for_ever() {
        // the first outputs of xoshiro256++ seeded by splitmix64(0), as its authors' C code gives them
        let mut random = Random::new(0);
        assert_eq!(random.bits(), 0x5317_5d61_490b_23df);
        assert_eq!(random.bits(), 0x61da_6f3d_c380_d507);
    }

    #[test]
    fn means_are_what_they_should_be() {
        let mut random = Random::new(7);
        let draws = 100_000;
        let mean = (0..draws).map(|_| random.exponential()).sum::<f64>() / f64::from(draws);
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
        let mean = (0..draws).map(|_| random.below(10) as f64).sum::<f64>() / f64::from(draws);
        assert!((mean - 4.5).abs() < 0.05, "{mean}");
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut list: Vec<usize> = (0..100).collect();
        Random::new(1).shuffle(&mut list);
        assert_ne!(list, (0..100).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..100).collect::<Vec<_>>());
    }
}
