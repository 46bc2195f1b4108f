//! A MIG profile: how many compute slices, how much memory, which media engines. Read from and printed as
//! NVIDIA's names (`1g.10gb`, `1g.10gb+me`, `1g.24gb-me`) and as the suffix of a resource name (`1g.10gb.me`).

use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;
/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// What a profile has besides compute and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Media {
    /// The profile as it is.
    #[default]
    Plain,
    /// `+me`: one set of media extensions (JPEG, OFA); at most one such slice fits on a GPU.
    Me,
    /// `+me.all`: every media engine of the GPU.
    MeAll,
    /// `+gfx`: graphics.
    Gfx,
    /// `-me`: without media engines, to sit beside `+me.all`.
    NoMe,
}

/// A profile name in parts. Ordered by compute slices, then memory, then media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Profile {
    /// Compute slices, the `g` of the name (7 is a whole 7-slice GPU).
    pub compute: u8,
    /// Memory as the name says it, in NVIDIA's rounded gigabytes.
    pub memory_gb: u16,
    /// Media engines or graphics.
    pub media: Media,
}

/// A name that is not a profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a MIG profile; write it like 1g.10gb, 3g.40gb or 1g.10gb+me (in a resource name: 1g.10gb.me)"
)]
pub struct BadProfile(pub String);

impl Profile {
    /// The profile of a slice by NVIDIA's formula, which rounds memory to eighths of the GPU
    /// (go-nvlib `mig_profile.go`): `round(ceil(8 * slice / total) / 8 * ceil(total / GiB))`.
    ///
    /// `slice_mib` and `total_mib` are what NVML reports, in MiB.
    #[must_use]
    pub fn by_formula(compute: u8, slice_mib: u64, total_mib: u64, media: Media) -> Self {
        let total_mib = total_mib.max(1);
        let eighths = (8 * slice_mib).div_ceil(total_mib);
        let total_gib = (total_mib * MIB).div_ceil(GIB);
        // half away from zero: (2 * a + b) / 2b with b = 8
        let gb = (2 * eighths * total_gib + 8) / 16;
        Self {
            compute,
            memory_gb: u16::try_from(gb).unwrap_or(u16::MAX),
            media,
        }
    }

    /// The name as it stands in a resource name: `1g.10gb.me`.
    #[must_use]
    pub fn resource_suffix(self) -> String {
        self.to_string().replace('+', ".")
    }

    /// Whether the slice takes the GPU's one set of media extensions.
    #[must_use]
    pub fn takes_media_extensions(self) -> bool {
        matches!(self.media, Media::Me | Media::MeAll)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let media = match self.media {
            Media::Plain => "",
            Media::Me => "+me",
            Media::MeAll => "+me.all",
            Media::Gfx => "+gfx",
            Media::NoMe => "-me",
        };
        write!(f, "{}g.{}gb{media}", self.compute, self.memory_gb)
    }
}

impl FromStr for Profile {
    type Err = BadProfile;

    /// Reads both spellings: `1g.10gb+me` and `1g.10gb.me`. Names whose compute instance is smaller than the
    /// GPU instance (`1c.2g.20gb`) are no profiles of ours and are refused.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let bad = || BadProfile(name.to_owned());
        let (compute, rest) = name.split_once("g.").ok_or_else(bad)?;
        let (memory, media) = rest.split_once("gb").ok_or_else(bad)?;
        let media = match media {
            "" => Media::Plain,
            "+me" | ".me" => Media::Me,
            "+me.all" | ".me.all" => Media::MeAll,
            "+gfx" | ".gfx" => Media::Gfx,
            "-me" => Media::NoMe,
            _ => return Err(bad()),
        };
        Ok(Self {
            compute: number(compute).ok_or_else(bad)?,
            memory_gb: number(memory).ok_or_else(bad)?,
            media,
        })
    }
}

/// A positive number without sign or leading zero, so that every profile has one spelling.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    plain.then(|| text.parse().ok()).flatten()
}

impl Serialize for Profile {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = std::borrow::Cow::<'de, str>::deserialize(from)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Profile {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Profile".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({
            "type": "string",
            "maxLength": 24,
            "pattern": r"^[1-9][0-9]?g\.[1-9][0-9]{0,3}gb(\+me|\+me\.all|\+gfx|-me)?$",
            "description": "A MIG profile by NVIDIA's name, for example 2g.20gb or 1g.10gb+me."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_in_both_spellings() {
        for name in [
            "1g.10gb",
            "7g.80gb",
            "1g.10gb+me",
            "1g.24gb+me.all",
            "4g.96gb+gfx",
            "1g.24gb-me",
            "7g.269gb",
        ] {
            let profile: Profile = name.parse().unwrap();
            assert_eq!(profile.to_string(), name);
            assert_eq!(profile.resource_suffix().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn what_is_no_profile_is_refused_with_a_sentence() {
        for name in [
            "",
            "1g",
            "10gb",
            "1c.2g.20gb",
            "g.10gb",
            "1g.gb",
            "01g.10gb",
            "1g.010gb",
            "+1g.10gb",
            "1g.10gb+x",
            "300g.10gb",
        ] {
            let refused = name.parse::<Profile>().unwrap_err().to_string();
            assert!(refused.contains("write it like 1g.10gb"), "{name}: {refused}");
        }
    }

    #[test]
    fn the_formula_gives_the_published_names() {
        // (compute, slice MiB, board MiB, name); board MiB as nvidia-smi lists them
        for (compute, slice, total, name) in [
            (1, 4864, 40960, "1g.5gb"),
            (3, 19968, 40960, "3g.20gb"),
            (1, 9984, 81559, "1g.10gb"),
            (7, 81152, 81559, "7g.80gb"),
            (1, 11008, 95830, "1g.12gb"),
            (3, 47488, 95830, "3g.47gb"),
            (1, 16384, 143771, "1g.18gb"),
            (2, 33024, 143771, "2g.35gb"),
            (3, 71168, 143771, "3g.71gb"),
            (7, 143104, 143771, "7g.141gb"),
            (1, 5836, 24576, "1g.6gb"),
        ] {
            assert_eq!(
                Profile::by_formula(compute, slice, total, Media::Plain).to_string(),
                name
            );
        }
    }
}
