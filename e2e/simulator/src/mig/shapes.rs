//! The six profiles of an 80 GB board as windows over its eight memory slices. Compute slices never bind there
//! while placements are legal, so the occupancy mask tells all.

use std::sync::Arc;

use shared::mig::layout::{plain, window};
use shared::mig::{Board, Profile};

/// How many profiles there are.
pub const CLASSES: usize = 6;
/// How many occupancy masks.
pub const MASKS: usize = 256;

/// One profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name.
    pub profile: Profile,
    /// Memory slices.
    pub size: u8,
    /// Legal starts with the slices they cover, ascending.
    pub windows: Vec<(u8, u8)>,
}

/// All profiles of the board, smallest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shapes {
    /// The board.
    pub board: Arc<Board>,
    /// Its memory slices.
    pub slices: u8,
    shapes: Vec<Shape>,
}

impl Shapes {
    /// Those of an H100 with 80 GB.
    #[must_use]
    pub fn h100() -> Self {
        // an unknown name would give a board without profiles, which the first test of this file would see
        let board = Board::named("H100-80GB").cloned().map(Arc::new);
        let shapes: Vec<Shape> = board
            .iter()
            .flat_map(|board| plain(board))
            .map(|row| Shape {
                profile: row.profile,
                size: row.size,
                windows: row
                    .starts
                    .iter()
                    .map(|start| (*start, window(row.size, *start) as u8))
                    .collect(),
            })
            .collect();
        match board {
            Some(board) => Self {
                slices: board.memory_slices,
                board,
                shapes,
            },
            None => unreachable!("the catalogue has H100-80GB"),
        }
    }

    /// Profile number `class`.
    #[must_use]
    pub fn shape(&self, class: usize) -> &Shape {
        &self.shapes[class]
    }

    /// All of them, smallest first.
    pub fn each(&self) -> impl Iterator<Item = &Shape> {
        self.shapes.iter()
    }

    /// The slices that a profile at a start covers.
    #[must_use]
    pub fn window(&self, class: usize, start: u8) -> u8 {
        window(self.shapes[class].size, start) as u8
    }

    /// How many of a profile still go in beside `mask`.
    #[must_use]
    pub fn fit(&self, class: usize, mask: u8) -> usize {
        let free = |(_, window): &&(u8, u8)| mask & window == 0;
        self.shapes[class].windows.iter().filter(free).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_one_of_the_benchmark() {
        let shapes = Shapes::h100();
        let rows: Vec<(String, u8, usize)> = shapes
            .each()
            .map(|shape| (shape.profile.to_string(), shape.size, shape.windows.len()))
            .collect();
        let row = |name: &str, size, starts| (name.to_owned(), size, starts);
        assert_eq!(
            rows,
            [
                row("1g.10gb", 1, 7),
                row("1g.20gb", 2, 4),
                row("2g.20gb", 2, 3),
                row("3g.40gb", 4, 2),
                row("4g.40gb", 4, 1),
                row("7g.80gb", 8, 1),
            ]
        );
        assert_eq!(shapes.window(3, 4), 0b1111_0000);
        assert_eq!(shapes.fit(0, 0b0000_0111), 4);
    }
}
