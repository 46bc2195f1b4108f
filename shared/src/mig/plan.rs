//! How a GPU gets a slice it does not have yet: ordered destroy and create steps at exact places. A plan never
//! touches a used slice, and its undo leads back to the layout it started from.

use super::board::Board;
use super::layout::{Illegal, Layout, Place, Slice, Use};

/// One step on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Remove the idle slice at this place.
    Destroy(Place),
    /// Make a slice at this place.
    Create(Place),
}

/// Steps in the order they are done: destroys first, so that every create finds its room.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The steps; empty where the slice is there and idle.
    pub steps: Vec<Step>,
}

impl Step {
    /// The step that takes this one back.
    #[must_use]
    pub const fn undo(self) -> Self {
        match self {
            Self::Destroy(place) => Self::Create(place),
            Self::Create(place) => Self::Destroy(place),
        }
    }

    /// Does the step on a layout; what it makes is idle.
    ///
    /// # Errors
    /// [`Illegal`] where the step does not apply: no room, or no idle slice to remove.
    pub fn apply(self, board: &Board, layout: &mut Layout) -> Result<(), Illegal> {
        match self {
            Self::Create(place) => layout.add(
                board,
                Slice {
                    place,
                    used: Use::Idle,
                },
            ),
            Self::Destroy(place) => match layout.at(place) {
                Some(slice) if slice.used == Use::Idle => {
                    layout.remove(place);
                    Ok(())
                }
                _ => Err(Illegal::NoRoom { place }),
            },
        }
    }
}

impl Plan {
    /// The steps that lead back, after the first `done` steps of this plan were taken.
    #[must_use]
    pub fn undo(&self, done: usize) -> Self {
        Self {
            steps: self
                .steps
                .iter()
                .take(done)
                .rev()
                .map(|step| step.undo())
                .collect(),
        }
    }
}

/// The steps that make a slice stand at `want`: none if it is there and idle, else the removal of the fewest idle
/// slices in the way (those that overlap it, then, where a limit of the board is reached, the ones from the top),
/// then its creation.
///
/// # Errors
/// [`Illegal`] where the board has no such place, or a used slice or a limit stands in the way.
pub fn plan(board: &Board, layout: &Layout, want: Place) -> Result<Plan, Illegal> {
    let bits = want.window(board).ok_or_else(|| Illegal::NoSuchPlace {
        board: board.name.clone(),
        place: want,
    })?;
    match layout.at(want).map(|slice| slice.used) {
        Some(Use::Idle) => return Ok(Plan::default()),
        Some(_) => return Err(Illegal::NoRoom { place: want }),
        None => {}
    }
    if !layout.busy().fits(board, want) {
        return Err(Illegal::NoRoom { place: want });
    }
    let mut left = layout.clone();
    let mut steps = Vec::new();
    let idle = layout
        .slices()
        .iter()
        .filter(|slice| slice.used == Use::Idle)
        .map(|slice| slice.place);
    let (in_the_way, elsewhere): (Vec<Place>, Vec<Place>) =
        idle.partition(|place| place.window(board).is_none_or(|other| other & bits != 0));
    for place in in_the_way {
        left.remove(place);
        steps.push(Step::Destroy(place));
    }
    for place in elsewhere.into_iter().rev() {
        if left.fits(board, want) {
            break;
        }
        left.remove(place);
        // what did not help goes back: only a slice whose removal brings room nearer is worth its price
        if helps(board, want, place) {
            steps.push(Step::Destroy(place));
        } else {
            left.insert(Slice {
                place,
                used: Use::Idle,
            });
        }
    }
    if !left.fits(board, want) {
        return Err(Illegal::NoRoom { place: want });
    }
    steps.push(Step::Create(want));
    Ok(Plan { steps })
}

/// Whether removing an idle slice elsewhere can lift a limit that keeps `want` out.
fn helps(board: &Board, want: Place, idle: Place) -> bool {
    let media = want.profile.takes_media_extensions() && idle.profile.takes_media_extensions();
    let compute: u8 = board.row(want.profile).map_or(0, |row| row.profile.compute);
    media || idle.profile == want.profile || compute + idle.profile.compute > board.compute_slices - compute
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mig::layout::enumerate;

    fn place(text: &str) -> Place {
        text.parse().unwrap()
    }

    fn layout(board: &Board, slices: &[(&str, Use)]) -> Layout {
        let mut layout = Layout::default();
        for (text, used) in slices {
            layout
                .add(
                    board,
                    Slice {
                        place: place(text),
                        used: *used,
                    },
                )
                .unwrap();
        }
        layout
    }

    #[test]
    fn an_idle_slice_of_the_right_kind_is_used_as_it_is() {
        let board = Board::named("H100-80GB").unwrap();
        let now = layout(board, &[("2g.20gb:4", Use::Idle)]);
        assert_eq!(plan(board, &now, place("2g.20gb:4")).unwrap(), Plan::default());
    }

    #[test]
    fn idle_slices_in_the_way_go_first_and_used_ones_never() {
        let board = Board::named("H100-80GB").unwrap();
        let now = layout(
            board,
            &[
                ("1g.10gb:0", Use::Idle),
                ("1g.10gb:1", Use::Allocated),
                ("1g.10gb:5", Use::Idle),
            ],
        );
        let steps = plan(board, &now, place("3g.40gb:4")).unwrap().steps;
        assert_eq!(
            steps,
            [
                Step::Destroy(place("1g.10gb:5")),
                Step::Create(place("3g.40gb:4"))
            ]
        );
        assert!(plan(board, &now, place("4g.40gb:0")).is_err());
    }

    #[test]
    fn an_idle_media_slice_elsewhere_makes_way_for_the_next() {
        let board = Board::named("H100-80GB").unwrap();
        let now = layout(board, &[("1g.10gb.me:0", Use::Idle)]);
        let steps = plan(board, &now, place("1g.10gb.me:6")).unwrap().steps;
        assert_eq!(
            steps,
            [
                Step::Destroy(place("1g.10gb.me:0")),
                Step::Create(place("1g.10gb.me:6"))
            ]
        );
    }

    /// Any legal layout of an H100 with any use of its slices, and any place asked for.
    fn any_case() -> impl Strategy<Value = (Layout, Place)> {
        let board = Board::named("H100-80GB").unwrap();
        let layouts = enumerate(board, |_| true);
        let places: Vec<Place> = board
            .profiles
            .iter()
            .flat_map(|row| row.starts.iter().map(|start| Place::new(row.profile, *start)))
            .collect();
        (
            0..layouts.len(),
            proptest::collection::vec(0..3_u8, 8),
            0..places.len(),
        )
            .prop_map(move |(at, uses, want)| {
                let mut layout = layouts[at].clone();
                for (slice, used) in layouts[at].slices().iter().zip(uses) {
                    layout.set_use(
                        slice.place,
                        [Use::Idle, Use::Allocated, Use::Blocked][usize::from(used)],
                    );
                }
                (layout, places[want])
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_plan_is_legal_spares_used_slices_and_undoes((before, want) in any_case()) {
            let board = Board::named("H100-80GB").unwrap();
            let Ok(plan) = plan(board, &before, want) else {
                // refused only where the used slices alone refuse, or the slice itself is taken
                prop_assert!(!before.busy().fits(board, want));
                return Ok(());
            };
            let mut after = before.clone();
            for step in &plan.steps {
                step.apply(board, &mut after).unwrap();
            }
            prop_assert_eq!(after.at(want).map(|slice| slice.used), Some(Use::Idle));
            prop_assert_eq!(after.busy(), before.busy());
            for step in plan.undo(plan.steps.len()).steps {
                step.apply(board, &mut after).unwrap();
            }
            prop_assert_eq!(after, before);
        }
    }
}
