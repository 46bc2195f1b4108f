//! One GPU's slices at exact starts: whether a layout is legal, what still fits, and what a placement costs.
//!
//! The rules (NVIDIA MIG User Guide, "MIG profiles and placements"): memory windows do not overlap, compute
//! slices add up to at most what the board has, no profile exceeds its maximum, and at most one slice takes the
//! media extensions.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::board::{Board, ProfileRow};
use super::profile::{BadProfile, Profile};

/// Where a slice sits on its GPU: a profile at a first memory slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Place {
    /// The profile.
    pub profile: Profile,
    /// First memory slice.
    #[schemars(range(max = 15))]
    pub start: u8,
}

/// How a slice is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Use {
    /// It exists and nobody has it: it may be handed out as it is, or destroyed for room.
    Idle,
    /// A pod has it, or is promised it.
    Allocated,
    /// Nobody has it, yet it may not be touched: a leftover process, a foreign owner, a fault.
    Blocked,
}

/// A slice of a layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slice {
    /// Where it sits.
    pub place: Place,
    /// How it is used.
    pub used: Use,
}

/// The slices of one GPU, ordered by start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    slices: Vec<Slice>,
}

/// Why a slice cannot be added to a layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Illegal {
    /// The board has no such profile or no such start.
    #[error("{board} has no place {place}")]
    NoSuchPlace {
        /// The board.
        board: String,
        /// The place asked for.
        place: Place,
    },
    /// Something sits there, or a limit of the board is reached.
    #[error("no room for {place}")]
    NoRoom {
        /// The place asked for.
        place: Place,
    },
}

impl Place {
    /// A place from its parts.
    #[must_use]
    pub const fn new(profile: Profile, start: u8) -> Self {
        Self { profile, start }
    }

    /// The memory slices it covers on a board, as bits; `None` where the board has no such place.
    #[must_use]
    pub fn window(self, board: &Board) -> Option<u16> {
        let row = board.row(self.profile)?;
        row.starts
            .contains(&self.start)
            .then(|| window(row.size, self.start))
    }
}

/// The bits of `size` memory slices from `start`.
#[must_use]
pub const fn window(size: u8, start: u8) -> u16 {
    (((1_u32 << size) - 1) << start) as u16
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.profile.resource_suffix(), self.start)
    }
}

impl FromStr for Place {
    type Err = BadProfile;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || BadProfile(text.to_owned());
        let (profile, start) = text.rsplit_once(':').ok_or_else(bad)?;
        // one spelling a place: no sign, no leading zero
        let start = start
            .parse()
            .ok()
            .filter(|number: &u8| *number < 16 && number.to_string() == start);
        Ok(Self::new(profile.parse()?, start.ok_or_else(bad)?))
    }
}

impl Layout {
    /// The slices, by start.
    #[must_use]
    pub fn slices(&self) -> &[Slice] {
        &self.slices
    }

    /// The slice at exactly this place.
    #[must_use]
    pub fn at(&self, place: Place) -> Option<&Slice> {
        self.slices.iter().find(|slice| slice.place == place)
    }

    /// Adds a slice.
    ///
    /// # Errors
    /// [`Illegal`] where the board has no such place or it has no room; the layout is as before.
    pub fn add(&mut self, board: &Board, slice: Slice) -> Result<(), Illegal> {
        let place = slice.place;
        if place.window(board).is_none() {
            return Err(Illegal::NoSuchPlace {
                board: board.name.clone(),
                place,
            });
        }
        if !self.fits(board, place) {
            return Err(Illegal::NoRoom { place });
        }
        self.insert(slice);
        Ok(())
    }

    /// Adds a slice that hardware reports, whatever we think of its legality.
    pub fn insert(&mut self, slice: Slice) {
        let at = self
            .slices
            .partition_point(|other| (other.place.start, other.place) < (slice.place.start, slice.place));
        self.slices.insert(at, slice);
    }

    /// Takes the slice at a place out and returns it.
    pub fn remove(&mut self, place: Place) -> Option<Slice> {
        let at = self.slices.iter().position(|slice| slice.place == place)?;
        Some(self.slices.remove(at))
    }

    /// Sets how the slice at a place is used; returns what it was, `None` where there is no slice.
    pub fn set_use(&mut self, place: Place, used: Use) -> Option<Use> {
        let slice = self.slices.iter_mut().find(|slice| slice.place == place)?;
        Some(std::mem::replace(&mut slice.used, used))
    }

    /// The memory slices covered, as bits.
    #[must_use]
    pub fn mask(&self, board: &Board) -> u16 {
        self.slices
            .iter()
            .filter_map(|slice| slice.place.window(board))
            .fold(0, |mask, bits| mask | bits)
    }

    /// The same GPU without its idle slices: what may not be touched.
    #[must_use]
    pub fn busy(&self) -> Self {
        Self {
            slices: self
                .slices
                .iter()
                .filter(|slice| slice.used != Use::Idle)
                .copied()
                .collect(),
        }
    }

    /// Whether a slice could be made at this place as things are, touching nothing.
    #[must_use]
    pub fn fits(&self, board: &Board, place: Place) -> bool {
        let Some(bits) = place.window(board) else {
            return false;
        };
        let Some(row) = board.row(place.profile) else {
            return false;
        };
        let compute: u32 = self
            .slices
            .iter()
            .map(|slice| u32::from(slice.place.profile.compute))
            .sum();
        let same = self
            .slices
            .iter()
            .filter(|slice| slice.place.profile == place.profile)
            .count();
        let media = place.profile.takes_media_extensions()
            && self
                .slices
                .iter()
                .any(|slice| slice.place.profile.takes_media_extensions());
        self.mask(board) & bits == 0
            && compute + u32::from(place.profile.compute) <= u32::from(board.compute_slices)
            && same < usize::from(row.max)
            && !media
    }

    /// The places where a slice of this profile could be made, touching nothing.
    #[must_use]
    pub fn free_places(&self, board: &Board, profile: Profile) -> Vec<Place> {
        let starts = board.row(profile).map_or(&[][..], |row| &row.starts);
        starts
            .iter()
            .map(|start| Place::new(profile, *start))
            .filter(|place| self.fits(board, *place))
            .collect()
    }

    /// How many slices of this profile could still be made, touching nothing.
    #[must_use]
    pub fn count_free(&self, board: &Board, profile: Profile) -> usize {
        let mut filled = self.clone();
        let mut made = 0;
        for place in self.free_places(board, profile) {
            // windows of one profile never overlap, so filling from the bottom is exact
            made += usize::from(
                filled
                    .add(
                        board,
                        Slice {
                            place,
                            used: Use::Allocated,
                        },
                    )
                    .is_ok(),
            );
        }
        made
    }

    /// The places of this profile that a node offers while the busy slices are as given: every free place, or,
    /// where a limit of the board lets fewer be cut than there are free places (`+me`), the least harmful ones.
    /// The scheduler and the agent both ask this, so that what is counted is what can be placed.
    #[must_use]
    pub fn offered(&self, board: &Board, profile: Profile) -> Vec<Place> {
        let mut places = self.free_places(board, profile);
        let count = self.count_free(board, profile);
        if places.len() > count {
            places.sort_by_key(|place| (self.loss(board, *place), std::cmp::Reverse(place.start)));
            places.truncate(count);
            places.sort_unstable();
        }
        places
    }

    /// What a placement takes away: how many (profile, start) pairs fit before and not after, without counting
    /// the media variants, which double plain profiles.
    #[must_use]
    pub fn loss(&self, board: &Board, place: Place) -> usize {
        let mut after = self.clone();
        after.insert(Slice {
            place,
            used: Use::Allocated,
        });
        let pairs = |layout: &Self| {
            plain(board)
                .map(|row| layout.free_places(board, row.profile).len())
                .sum::<usize>()
        };
        pairs(self).saturating_sub(pairs(&after))
    }
}

/// The rows of a board whose profile has no media variant.
pub fn plain(board: &Board) -> impl Iterator<Item = &ProfileRow> {
    board
        .profiles
        .iter()
        .filter(|row| row.profile.media == super::profile::Media::Plain)
}

/// All legal layouts that use only profiles which `allow` lets through, the empty one included; each once.
#[must_use]
pub fn enumerate(board: &Board, allow: impl Fn(Profile) -> bool) -> Vec<Layout> {
    let places: Vec<Place> = board
        .profiles
        .iter()
        .filter(|row| allow(row.profile))
        .flat_map(|row| row.starts.iter().map(|start| Place::new(row.profile, *start)))
        .collect();
    let mut found = Vec::new();
    extend(board, &places, &mut Layout::default(), &mut found);
    found
}

/// Depth first over `places`, each taken or left, so every set of places comes up once.
fn extend(board: &Board, places: &[Place], layout: &mut Layout, found: &mut Vec<Layout>) {
    found.push(layout.clone());
    for (at, place) in places.iter().enumerate() {
        if layout
            .add(
                board,
                Slice {
                    place: *place,
                    used: Use::Allocated,
                },
            )
            .is_ok()
        {
            extend(board, &places[at + 1..], layout, found);
            layout.remove(*place);
        }
    }
}

#[cfg(test)]
mod tests;
