use super::*;

fn set(text: &str) -> Indexes {
    Indexes::parse(text, 1_000)
}

#[test]
fn acceptance_job_043_three_consecutive_indexes_are_a_range_and_two_are_not() {
    for (stored, new, want, count) in [
        ("0-2", &[4][..], "0-2,4", 4),
        ("", &[0, 1], "0,1", 2),
        ("", &[], "", 0),
        ("0,1", &[2], "0-2", 3),
        ("0-2,4", &[3], "0-4", 5),
        ("1-3", &[0, 4, 6], "0-4,6", 6),
        ("5", &[1, 3, 5, 7], "1,3,5,7", 4),
        ("0-9", &[3, 4], "0-9", 10),
        ("7,8", &[0, 1, 2, 3], "0-3,7,8", 6),
    ] {
        let all = set(stored).union(&Indexes::of(new.iter().copied()));
        assert_eq!((all.to_string().as_str(), all.len()), (want, count), "{stored} and {new:?}");
    }
}

#[test]
fn stored_indexes_out_of_range_are_ignored() {
    for (name, text, completions, want) in [
        ("nothing", "", 10, ""),
        ("all kinds of runs", "0,2,3,5-7", 10, "0,2,3,5-7"),
        ("cut at the end", "0-7,9", 5, "0-4"),
        ("cut in a run", "2-7", 5, "2-4"),
        ("no index after the first one out of range", "1,7,2", 5, "1"),
        ("no completions", "0-7", 0, ""),
        ("parts that are no numbers", "a,1,b-3,4-c,6", 10, "1,6"),
        ("backwards", "4-2,6", 10, "6"),
        ("adjacent ranges become one", "0,1,2,3-5,6", 10, "0-6"),
        ("overlapping ranges become one", "0-4,2-6", 10, "0-6"),
        ("in any order", "5,1-2", 10, "1,2,5"),
        ("a part with three numbers", "1-2-3", 10, "1,2"),
        ("negative", "-1,3", 10, "3"),
    ] {
        assert_eq!(Indexes::parse(text, completions).to_string(), want, "{name}");
    }
}

#[test]
fn index_sets_behave_like_naive_sets() {
    let mut rng = 7_u32;
    let mut random = || {
        rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        rng >> 24
    };
    for _ in 0..200 {
        let mut some = || (0..24).filter(|_| random() % 3 == 0).collect::<Vec<u32>>();
        let (one, two) = (some(), some());
        let (first, second) = (Indexes::of(one.iter().copied()), Indexes::of(two.iter().copied()));
        let either: Vec<u32> = (0..24).filter(|it| one.contains(it) || two.contains(it)).collect();
        let both = one.iter().filter(|it| two.contains(it)).count();
        assert_eq!(first.union(&second), Indexes::of(either.iter().copied()));
        assert_eq!((first.common_count(&second), first.len()), (both as u32, one.len() as u32));
        assert!((0..30).all(|it| first.contains(it) == one.contains(&it)));
        let free: Vec<u32> = (0..20).filter(|it| !one.contains(it)).take(5).collect();
        assert_eq!(first.lowest_free(20, 5), free);
        assert_eq!(Indexes::parse(&first.to_string(), 24), first);
    }
}

#[test]
fn a_full_range_has_no_free_index() {
    assert_eq!(set("0-9").lowest_free(10, 3), Vec::<u32>::new());
    assert_eq!(set("0-3,6-19").lowest_free(10, 5), [4, 5]);
    assert_eq!(Indexes::default().lowest_free(3, 10), [0, 1, 2]);
    assert_eq!(set("").lowest_free(10, 0), Vec::<u32>::new());
}

/// Adding an index costs the same after ninety thousand completions as after a thousand.
#[test]
fn a_hundred_thousand_consecutive_indexes_are_one_range() {
    let mut all = Indexes::default();
    for from in (0..100_000).step_by(500) {
        all = all.union(&Indexes::of(from..from + 500));
        assert_eq!(all.0.len(), 1);
    }
    assert_eq!((all.to_string().as_str(), all.len()), ("0-99999", 100_000));
}
