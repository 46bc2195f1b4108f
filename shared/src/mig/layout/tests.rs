//! Oracles: the layout counts and the loss table of the reference enumeration come out of ours.

use super::*;
use crate::mig::profile::Media;

fn board(name: &str) -> &'static Board {
    Board::named(name).unwrap()
}

fn place(text: &str) -> Place {
    text.parse().unwrap()
}

fn with(board: &Board, places: &[&str]) -> Layout {
    let mut layout = Layout::default();
    for text in places {
        layout
            .add(
                board,
                Slice {
                    place: place(text),
                    used: Use::Allocated,
                },
            )
            .unwrap();
    }
    layout
}

#[test]
fn seven_slice_boards_have_298_723_and_2319_layouts() {
    let h100 = board("H100-80GB");
    let double = "1g.20gb".parse().unwrap();
    let base = |profile: Profile| profile.media == Media::Plain && profile != double;
    assert_eq!(enumerate(h100, base).len(), 298);
    assert_eq!(
        enumerate(h100, |profile| profile.media == Media::Plain).len(),
        723
    );
    assert_eq!(enumerate(h100, |_| true).len(), 2319);
}

#[test]
fn a30_has_26_and_84_layouts_by_its_tables_of_which_8_want_its_one_media_engine_twice() {
    let a30 = board("A30-24GB");
    assert_eq!(enumerate(a30, |profile| profile.media == Media::Plain).len(), 26);
    // every set of places, judged by windows, compute and maxima alone
    let places: Vec<(&ProfileRow, Place)> = a30
        .profiles
        .iter()
        .flat_map(|row| {
            row.starts
                .iter()
                .map(move |start| (row, Place::new(row.profile, *start)))
        })
        .collect();
    let by_tables: Vec<Vec<Place>> = (0_u32..1 << places.len())
        .map(|set| {
            places
                .iter()
                .enumerate()
                .filter(|(at, _)| set >> at & 1 == 1)
                .map(|(_, pair)| *pair)
                .collect::<Vec<_>>()
        })
        .filter(|set| {
            let (mut mask, mut compute) = (0, 0);
            set.iter().all(|(row, place)| {
                let bits = window(row.size, place.start);
                let free = mask & bits == 0;
                mask |= bits;
                compute += row.profile.compute;
                free && compute <= 4
                    && set.iter().filter(|(other, _)| other.id == row.id).count() <= usize::from(row.max)
            })
        })
        .map(|set| set.into_iter().map(|(_, place)| place).collect())
        .collect();
    assert_eq!(by_tables.len(), 84);
    // 1g+me and 2g+me each take the one JPEG and the one OFA engine of the board (rows of boards.json)
    let media = |set: &&Vec<Place>| {
        set.iter()
            .filter(|place| place.profile.takes_media_extensions())
            .count()
            > 1
    };
    assert_eq!(by_tables.iter().filter(media).count(), 8);
    assert_eq!(enumerate(a30, |_| true).len(), 84 - 8);
}

#[test]
fn one_placement_on_an_empty_board_leaves_what_the_loss_table_says() {
    // columns: 1g, 1g double, 2g, 3g, 4g, 7g still packable alone; free (profile, start) pairs of 18
    let table: &[(&str, [usize; 6], usize)] = &[
        ("", [7, 4, 3, 2, 1, 1], 18),
        ("1g.10gb:6", [6, 3, 3, 1, 1, 0], 14),
        ("1g.10gb:5", [6, 3, 2, 1, 1, 0], 13),
        ("1g.10gb:4", [6, 3, 2, 1, 1, 0], 13),
        ("1g.10gb:0", [6, 3, 2, 1, 0, 0], 12),
        ("1g.10gb:3", [6, 3, 2, 1, 0, 0], 12),
        ("1g.20gb:6", [6, 3, 3, 1, 1, 0], 14),
        ("1g.20gb:4", [5, 3, 2, 1, 1, 0], 12),
        ("1g.20gb:0", [5, 3, 2, 1, 0, 0], 11),
        ("1g.20gb:2", [5, 3, 2, 1, 0, 0], 11),
        ("2g.20gb:4", [5, 3, 2, 1, 1, 0], 12),
        ("2g.20gb:0", [5, 3, 2, 1, 0, 0], 11),
        ("2g.20gb:2", [5, 3, 2, 1, 0, 0], 11),
        ("3g.40gb:4", [4, 2, 2, 1, 1, 0], 10),
        ("3g.40gb:0", [3, 2, 1, 1, 0, 0], 7),
        ("4g.40gb:0", [3, 2, 1, 1, 0, 0], 7),
    ];
    let h100 = board("H100-80GB");
    let profiles =
        ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"].map(|name| name.parse().unwrap());
    for (placed, counts, pairs) in table {
        let layout = with(
            h100,
            &[*placed]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>(),
        );
        assert_eq!(
            profiles.map(|profile| layout.count_free(h100, profile)),
            *counts,
            "after {placed}"
        );
        let free: usize = profiles
            .iter()
            .map(|profile| layout.free_places(h100, *profile).len())
            .sum();
        assert_eq!(free, *pairs, "pairs after {placed}");
        if !placed.is_empty() {
            assert_eq!(
                Layout::default().loss(h100, place(placed)),
                18 - pairs,
                "loss of {placed}"
            );
        }
    }
}

#[test]
fn only_one_slice_takes_the_media_extensions_and_it_is_offered_where_it_hurts_least() {
    let h100 = board("H100-80GB");
    let me = "1g.10gb+me".parse().unwrap();
    assert_eq!(Layout::default().free_places(h100, me).len(), 7);
    assert_eq!(Layout::default().offered(h100, me), [place("1g.10gb.me:6")]);
    assert_eq!(with(h100, &["1g.10gb.me:6"]).offered(h100, me), []);
    let a30 = board("A30-24GB");
    assert!(!with(a30, &["1g.6gb.me:0"]).fits(a30, place("2g.12gb.me:2")));
}

#[test]
fn places_read_back_and_bad_ones_are_refused() {
    for text in ["1g.10gb:0", "1g.10gb.me:6", "7g.141gb:0"] {
        assert_eq!(place(text).to_string(), text);
    }
    for text in [
        "1g.10gb",
        "1g.10gb:",
        "1g.10gb:x",
        "1g.10gb:16",
        "1g.10gb:00",
        "x:1",
    ] {
        assert!(text.parse::<Place>().is_err(), "{text}");
    }
}

#[test]
fn a_slice_is_refused_where_the_board_has_no_such_place() {
    let h100 = board("H100-80GB");
    let refused = Layout::default().add(
        h100,
        Slice {
            place: place("4g.40gb:4"),
            used: Use::Idle,
        },
    );
    assert_eq!(
        refused.unwrap_err().to_string(),
        "H100-80GB has no place 4g.40gb:4"
    );
}
