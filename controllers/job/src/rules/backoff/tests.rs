use std::time::Duration;

use super::*;
use crate::testing::{NOW, PodBuilder, pod};

fn after(seconds: i64) -> Moment {
    Moment((NOW + seconds) * 1_000)
}

#[test]
fn acceptance_job_032_back_off_doubles_from_ten_seconds_to_ten_minutes_after_the_finish_time() {
    for (failures, wait) in
        [(0, 0), (1, 10), (2, 20), (3, 40), (4, 80), (5, 160), (6, 320), (7, 600), (8, 600), (40, 600), (u32::MAX, 600)]
    {
        let backoff = PodFailures { failures, last: NOW };
        assert_eq!(backoff.remaining(after(0)), Duration::from_secs(wait), "{failures}");
        assert_eq!(backoff.remaining(after(wait as i64)), Duration::ZERO, "{failures}");
    }
    let backoff = PodFailures { failures: 1, last: NOW };
    assert_eq!(backoff.remaining(Moment(NOW * 1_000 + 9_999)), Duration::from_millis(1));
    assert_eq!(backoff.remaining(after(1_000_000)), Duration::ZERO);
}

#[test]
fn acceptance_job_032_a_success_cancels_the_failures_before_it() {
    let before = PodFailures { failures: 2, last: 50 };
    let some = |failures, last| PodFailures { failures, last };
    for (name, succeeded, failed, want) in [
        ("nothing new", None, &[][..], before),
        ("one failure more", None, &[60], some(3, 60)),
        ("several in any order", None, &[70, 60], some(4, 70)),
        ("a success", Some(60), &[], some(0, 0)),
        ("a success after the failures", Some(60), &[55, 60], some(0, 0)),
        ("failures after a success", Some(60), &[61, 59, 70], some(2, 70)),
    ] {
        assert_eq!(before.with(succeeded, failed), want, "{name}");
    }
}

#[test]
fn the_finish_time_is_that_of_the_last_container_or_the_best_approximation() {
    let base = || pod("p").running().created(-90);
    let ended: [(&str, PodBuilder, i64); 9] = [
        ("the last container", base().exit("a", 1, -20).exit("b", 0, -10), -10),
        ("one still runs", base().exit("a", 1, -20).restarts("containerStatuses", 0), -90),
        ("not ready since", base().condition("Ready", "False", -30), -30),
        ("ready", base().condition("Ready", "True", -30), -90),
        ("containers before conditions", base().exit("a", 1, -20).condition("Ready", "False", -5), -20),
        ("deleted", base().deleting(), -5),
        ("not ready before deleted", base().deleting().condition("Ready", "False", -30), -30),
        ("init containers do not matter", base().restarts("initContainerStatuses", 0).exit("a", 1, -20), -20),
        ("created", base(), -90),
    ];
    for (name, pod, want) in ended {
        assert_eq!(finish_time(&pod.build()), NOW + want, "{name}");
    }
}
