use super::*;

fn row(pod: &str, time: f64, value: f64) -> Row {
    Row {
        value,
        timestamp_anon: time,
        container_ip: pod.to_owned(),
    }
}

/// Two pods, a sample each 600 s: one small and idle after the first sample, one large and busy.
fn measured() -> Measured {
    let times = [0.0, 600.0, 1_200.0, 1_800.0, 2_400.0];
    let gib = f64::from(1 << 30);
    let mut duty = Vec::new();
    let mut memory = Vec::new();
    for (at, time) in times.into_iter().enumerate() {
        duty.push(row("small", time, if at == 0 { 10.0 } else { 0.0 }));
        memory.push(row("small", time, 9.0 * gib));
        duty.push(row("large", time, 50.0));
        memory.push(row("large", time, 23.0 * gib));
    }
    Measured::new(&duty, &memory)
}

#[test]
fn slices_follow_the_peaks_of_the_window_and_idle_pods_lose_theirs() {
    let board = Board::named("H100-80GB").unwrap();
    let names = |variant: &Variant, pod: usize| -> Vec<String> {
        let sizes = measured().sizes(board, variant);
        let name =
            |row: Option<usize>| row.map_or("-".to_owned(), |row| board.profiles[row].profile.to_string());
        sizes.iter().map(|sizes| name(sizes[pod])).collect()
    };
    assert_eq!(names(&VARIANTS[0], 0), ["1g.10gb"; 5]);
    // busy at 0, so idle for half an hour at 1800
    assert_eq!(
        names(&VARIANTS[1], 0),
        ["1g.10gb", "1g.10gb", "1g.10gb", "-", "-"]
    );
    // 23 GiB are three memory slices, half the compute is four of seven: 4g; on a GPU twice as fast 3g
    assert_eq!(names(&VARIANTS[0], 1), ["4g.40gb"; 5]);
    assert_eq!(names(&VARIANTS[2], 1), ["3g.40gb"; 5]);
}

#[test]
fn slices_of_one_moment_are_packed_on_as_few_gpus_as_will_do() {
    let board = Board::named("H100-80GB").unwrap();
    let row = |name: &str| {
        board
            .profiles
            .iter()
            .position(|row| row.profile.to_string() == name)
    };
    let pack = |names: &[&str]| {
        let sizes: Vec<Option<usize>> = names.iter().map(|name| row(name)).collect();
        packed(board, &Policy::default(), &sizes)
    };
    assert_eq!(pack(&[]), 0);
    assert_eq!(pack(&["3g.40gb", "4g.40gb", "1g.10gb", "7g.80gb"]), 3);
    assert_eq!(pack(&["1g.10gb"; 14]), 2);
}

#[test]
fn what_stays_where_it_is_is_served_when_there_are_gpus_enough() {
    let board = Arc::new(Board::named("H100-80GB").unwrap().clone());
    let measured = measured();
    let sizes = measured.sizes(&board, &VARIANTS[1]);
    let (served, resizes) = replay(&board, &Policy::default(), &measured.times, &sizes, 1);
    assert_eq!((served, resizes), (1.0, 0));
    let come = as_they_come(&board, &Policy::default(), &measured.times, &sizes, 0.99, 2);
    assert_eq!(come.unwrap().gpus, 1);
}

#[test]
fn a_trace_that_is_not_there_is_skipped_with_a_reason() {
    let section = c3(Path::new("/nowhere"), 0.99, &Policy::default(), 1).unwrap();
    assert!(section.text().contains("C3 skipped: /nowhere/alibaba-gentd26"));
}
