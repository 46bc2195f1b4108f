use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::mig::board::catalogue;

fn on(board: &str, parameters: &str, memory: &str) -> String {
    let set = |text: &'static str| (!text.is_empty()).then_some(text);
    let (parameters, memory) = (parameters.to_owned().leak(), memory.to_owned().leak());
    let hints = Hints::read(set(parameters), set(memory)).unwrap();
    let board = Board::named(board).unwrap();
    match size(hints, board, Beyond::LargestSlices, &Policy::default()) {
        Ok(sized) => sized.to_string(),
        Err(refused) => refused.to_string(),
    }
}

#[test]
fn models_get_what_the_table_says() {
    let table = [
        // under 10 B: a quarter, whatever smaller slice would hold it
        (
            "H100-80GB",
            "7B",
            "",
            "1g.20gb: 7B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        (
            "H100-80GB",
            "500M",
            "",
            "1g.20gb: 500M parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        (
            "A100-80GB",
            "9.9B",
            "",
            "1g.20gb: 9.9B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        (
            "H200-141GB",
            "8B",
            "",
            "1g.35gb: 8B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        (
            "B300",
            "3B",
            "",
            "1g.67gb: 3B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        // a quarter that does not hold the weights is no help
        (
            "A100-40GB",
            "7B",
            "",
            "3g.20gb: 7B parameters take 15.6 GiB at 2 bytes each and 20 % more for serving; a quarter of this board is too small for the weights",
        ),
        (
            "A100-40GB",
            "3B",
            "",
            "1g.10gb: 3B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        (
            "A30-24GB",
            "1B",
            "",
            "1g.6gb: 1B parameters are fewer than 10B, which is a quarter of a GPU",
        ),
        // from 10 B on: by memory
        (
            "H100-80GB",
            "10B",
            "",
            "3g.40gb: 10B parameters take 22.4 GiB at 2 bytes each and 20 % more for serving",
        ),
        (
            "H100-80GB",
            "13e9",
            "",
            "3g.40gb: 13B parameters take 29.1 GiB at 2 bytes each and 20 % more for serving",
        ),
        (
            "H100-80GB",
            "30B",
            "",
            "7g.80gb: 30B parameters take 67.1 GiB at 2 bytes each and 20 % more for serving",
        ),
        (
            "H100-80GB",
            "70e9",
            "",
            "2 x 7g.80gb: 70B parameters take 156.5 GiB at 2 bytes each and 20 % more for serving",
        ),
        // a larger model gets no less than a smaller one
        (
            "B300",
            "10B",
            "",
            "1g.67gb: 10B parameters take 22.4 GiB at 2 bytes each and 20 % more for serving; no less than the quarter that smaller models get",
        ),
        // memory that is said
        ("H100-80GB", "", "5Gi", "1g.10gb: 5.0 GiB are asked for"),
        ("H100-80GB", "", "18GB", "1g.20gb: 16.8 GiB are asked for"),
        ("H100-80GB", "", "18Gi", "1g.20gb: 18.0 GiB are asked for"),
        ("H100-80GB", "", "200GB", "3 x 7g.80gb: 186.3 GiB are asked for"),
        (
            "H100-80GB",
            "70B",
            "40000MB",
            "3g.40gb: 37.3 GiB are asked for, which outweighs the 70B parameters",
        ),
        // nothing, and too much
        (
            "H100-80GB",
            "",
            "",
            "neither migpool.dev/model-parameters nor migpool.dev/gpu-memory is set",
        ),
        (
            "A30-24GB",
            "",
            "60Ti",
            "the model needs 61440 GiB, more than 256 GPUs A30-24GB have; split it into several pods",
        ),
    ];
    for (board, parameters, memory, expected) in table {
        assert_eq!(
            on(board, parameters, memory),
            expected,
            "{board} {parameters} {memory}"
        );
    }
}

#[test]
fn a_model_larger_than_a_gpu_gets_whole_gpus_where_there_are_some() {
    let hints = Hints::read(Some("70B"), None).unwrap();
    let board = Board::named("H100-80GB").unwrap();
    let sized = size(hints, board, Beyond::WholeGpus, &Policy::default()).unwrap();
    assert_eq!((sized.profile, sized.count), (None, 2));
    assert_eq!(sized.request("main").in_words(), "2 x whole GPU");
    assert!(sized.to_string().starts_with("2 x whole GPU: 70B parameters"));
}

#[test]
fn the_bound_is_the_policys() {
    let policy = Policy {
        quarter_gpu_below_billion_parameters: 5,
        ..Policy::default()
    };
    let hints = Hints::read(Some("7B"), None).unwrap();
    let sized = size(
        hints,
        Board::named("H100-80GB").unwrap(),
        Beyond::WholeGpus,
        &policy,
    )
    .unwrap();
    // 14 GB of weights and a fifth more: a quarter too, yet for another reason
    assert!(
        sized
            .to_string()
            .starts_with("1g.20gb: 7B parameters take 15.6 GiB"),
        "{sized}"
    );
}

#[test]
fn a_bad_hint_is_named_with_its_annotation_and_how_to_write_it() {
    for text in [
        "",
        "B",
        "seven",
        "-7B",
        "7 billion",
        "7e",
        "1e99",
        "0",
        "NaN",
        "inf",
        "0x10",
        "7GB",
    ] {
        let refused = Hints::read(Some(text), None).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "migpool.dev/model-parameters is {text:?}, not a number of parameters; write it like 7B, 500M or 70e9"
            )
        );
    }
    for text in ["", "18", "Gi", "-1Gi", "18 gigs", "18gb", "1e30Gi", "0Gi"] {
        let refused = Hints::read(None, Some(text)).unwrap_err().to_string();
        assert_eq!(
            refused,
            format!(
                "migpool.dev/gpu-memory is {text:?}, not an amount of memory; write it with its unit, like 18Gi or 18GB"
            )
        );
    }
    let long = "9".repeat(10_000);
    assert!(Hints::read(Some(&long), None).unwrap_err().to_string().len() < 200);
}

#[test]
fn annotations_are_read_by_their_names() {
    let annotations = [
        ("migpool.dev/model-parameters", " 1.5B "),
        ("migpool.dev/gpu-memory", "8Gi"),
    ];
    let annotations = annotations
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let hints = Hints::of_annotations(&annotations).unwrap();
    assert_eq!(hints.parameters, Some(1_500_000_000));
    assert_eq!(hints.memory, Some(8 << 30));
    assert!(Hints::of_annotations(&BTreeMap::new()).unwrap().is_empty());
}

fn board() -> impl Strategy<Value = &'static Board> {
    (0..catalogue().len()).prop_map(|at| &catalogue()[at])
}

/// Memory slices taken, then compute slices: the order of "smaller".
fn taken(board: &Board, sized: &Sized) -> (u32, u32) {
    let row = sized.profile.and_then(|profile| board.row(profile)).unwrap();
    (
        sized.count * u32::from(row.size),
        sized.count * u32::from(row.profile.compute),
    )
}

proptest! {
    #[test]
    fn what_is_given_holds_what_it_must(board in board(), parameters in 1_u64..2_000_000_000_000, memory in 1_u64..2 << 40, said in any::<bool>()) {
        let hints = Hints { parameters: Some(parameters), memory: said.then_some(memory) };
        let sized = size(hints, board, Beyond::LargestSlices, &Policy::default()).unwrap();
        let row = board.row(sized.profile.unwrap()).unwrap();
        prop_assert!(memory_of(row) * u64::from(sized.count) >= sized.holds);
        let least = if said { memory } else { parameters * MODEL_BYTES_PER_PARAMETER };
        prop_assert!(sized.holds >= least);
    }

    #[test]
    fn more_memory_never_gives_less(board in board(), a in 1_u64..2 << 40, b in 1_u64..2 << 40) {
        let (less, more) = (a.min(b), a.max(b));
        let of = |memory| {
            let hints = Hints { parameters: None, memory: Some(memory) };
            taken(board, &size(hints, board, Beyond::LargestSlices, &Policy::default()).unwrap())
        };
        prop_assert!(of(less) <= of(more));
    }

    #[test]
    fn more_parameters_never_give_less(board in board(), a in 0.0_f64..6.0, b in 0.0_f64..6.0) {
        // from a million to a trillion, every order of magnitude as often
        let parameters = |power: f64| (1e6 * 10_f64.powf(power)) as u64;
        let (less, more) = (parameters(a.min(b)), parameters(a.max(b)));
        let of = |parameters| {
            let hints = Hints { parameters: Some(parameters), memory: None };
            taken(board, &size(hints, board, Beyond::LargestSlices, &Policy::default()).unwrap())
        };
        prop_assert!(of(less) <= of(more));
    }

    #[test]
    fn a_named_figure_is_never_more_than_the_known_one(board in board()) {
        for row in &board.profiles {
            let mut unknown = row.clone();
            unknown.memory_mib = None;
            prop_assert!(row.memory_mib.is_none() || memory_of(&unknown) <= memory_of(row), "{}", row.profile);
        }
    }

    #[test]
    fn whole_numbers_read_back(billions in 1_u64..1_000) {
        let hints = Hints::read(Some(&format!("{billions}B")), Some(&format!("{billions}Gi"))).unwrap();
        prop_assert_eq!(hints.parameters, Some(billions * 1_000_000_000));
        prop_assert_eq!(hints.memory, Some(billions << 30));
    }
}
