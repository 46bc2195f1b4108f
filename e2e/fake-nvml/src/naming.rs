//! Names and identities: NVIDIA's formula for profile names, and uuids that follow from a seed.

/// The name of a profile by NVIDIA's formula (go-nvlib `pkg/nvlib/device/mig_profile.go`): memory in eighths of
/// the GPU, rounded up, times the GPU's whole GiB, rounded half up.
#[must_use]
pub fn profile_name(compute: u32, slice_mib: u64, total_mib: u64, attribute: &str) -> String {
    let eighths = (8.0 * slice_mib as f64 / total_mib as f64).ceil();
    let gigabytes = (eighths / 8.0 * (total_mib as f64 / 1024.0).ceil()).round();
    format!("{compute}g.{gigabytes}gb{attribute}")
}

/// The attribute that a value of NVML's GPU instance profile enum puts behind the name.
#[must_use]
pub fn attribute(nvml_enum: u32) -> &'static str {
    match nvml_enum {
        7 | 8 => "+me",
        10 | 11 | 12 | 17 => "+gfx",
        13 | 14 => "-me",
        15 | 16 => "+me.all",
        _ => "",
    }
}

/// What an identity is for; part of what a uuid is derived from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole GPU.
    Gpu = 1,
    /// A MIG device.
    Mig = 2,
    /// A serial number.
    Serial = 3,
}

impl Kind {
    /// A uuid that is a function of seed and number: `GPU-…`, `MIG-…`.
    #[must_use]
    pub fn uuid(self, seed: u64, number: u64) -> String {
        let prefix = if self == Self::Mig { "MIG" } else { "GPU" };
        let (high, low) = (
            self.scramble(seed, 2 * number),
            self.scramble(seed, 2 * number + 1),
        );
        format!(
            "{prefix}-{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            high >> 16 & 0xffff,
            high & 0xfff,
            0x8000 | low >> 48 & 0x3fff,
            low & 0xffff_ffff_ffff,
        )
    }

    /// A serial number of 13 digits.
    #[must_use]
    pub fn digits(self, seed: u64, number: u64) -> String {
        format!("{:013}", self.scramble(seed, number) % 10_000_000_000_000)
    }

    /// Steele, Lea and Flood's splitmix64 over (seed, kind, number).
    fn scramble(self, seed: u64, number: u64) -> u64 {
        let mut z = seed ^ (self as u64) << 56 ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for _ in 0..2 {
            z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^= z >> 31;
        }
        z
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_follow_from_the_seed_and_differ_in_all_else() {
        let uuid = Kind::Gpu.uuid(7, 3);
        assert_eq!(uuid, Kind::Gpu.uuid(7, 3));
        assert_eq!((uuid.len(), &uuid[..4]), (40, "GPU-"));
        let others = [Kind::Gpu.uuid(7, 4), Kind::Gpu.uuid(8, 3), Kind::Mig.uuid(7, 3)];
        assert!(
            others.iter().all(|other| other[4..] != uuid[4..]),
            "{uuid} {others:?}"
        );
    }

    #[test]
    fn the_formula_gives_the_published_names() {
        assert_eq!(profile_name(1, 11008, 95830, ""), "1g.12gb");
        assert_eq!(profile_name(3, 71168, 143_771, ""), "3g.71gb");
        assert_eq!(profile_name(1, 22528, 183_359, "+me"), "1g.23gb+me");
    }
}
