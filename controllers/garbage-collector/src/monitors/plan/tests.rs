use clock::Clock;

use super::*;

const ALL: &[&str] = &["create", "delete", "get", "list", "watch"];

/// `group/version/plural`, or `version/plural` of the core group.
fn resource(path: &str) -> Resource {
    let parts: Vec<&str> = path.split('/').collect();
    let [group, version, plural] = *parts.as_slice() else {
        return Resource::namespaced("", parts[0], parts[1], "Any");
    };
    Resource::namespaced(group, version, plural, "Any")
}

/// All are preferred and have all verbs.
fn served(paths: &[&str]) -> Vec<ServedResource> {
    paths.iter().map(|it| ServedResource::new(resource(it), true, ALL.iter().copied())).collect()
}

fn answer(paths: &[&str], failed: &[&str]) -> Discovery {
    let failed = failed.iter().map(|it| ((*it).to_owned(), "stale".to_owned()));
    Discovery { served: served(paths), failed: failed.collect(), ..Discovery::default() }
}

fn broken(answer: Discovery, root: &'static str) -> Discovery {
    Discovery { broken: BTreeMap::from([(root, "no answer".to_owned())]), ..answer }
}

/// Those with `?` have not synced.
fn running(paths: &[&str]) -> BTreeMap<Resource, bool> {
    paths.iter().map(|it| (resource(it.trim_end_matches('?')), !it.ends_with('?'))).collect()
}

fn paths(resources: &[Resource]) -> Vec<String> {
    let path = |it: &Resource| format!("{}/{}", it.api_version(), it.plural);
    let mut paths: Vec<String> = resources.iter().map(path).collect();
    paths.sort();
    paths
}

#[track_caller]
fn check(name: &str, answer: &Discovery, runs: &[&str], start: &[&str], stop: &[&str], has_fault: bool) {
    let now = Clock::system().now();
    let plan = plan(answer, &running(runs), &BTreeSet::new(), &mut DiscoveryHistory::default(), now);
    assert_eq!(
        (paths(&plan.start).as_slice(), paths(&plan.stop).as_slice()),
        (&words(start)[..], &words(stop)[..]),
        "{name}"
    );
    assert_eq!(plan.fault.is_some(), has_fault, "{name}: {:?}", plan.fault);
}

fn words(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|it| (*it).to_owned()).collect()
}

#[test]
fn exactly_the_served_types_are_watched() {
    let (pods, both) = (&["v1/pods"][..], &["a.io/v1/things", "v1/pods"][..]);
    check("at the start", &answer(both, &[]), &[], both, &[], false);
    check("nothing new", &answer(both, &[]), both, &[], &[], false);
    check("one more", &answer(both, &[]), pods, &["a.io/v1/things"], &[], false);
    check("one less", &answer(pods, &[]), both, &[], &[], false);
    let newer = answer(&["a.io/v2/things", "v1/pods"], &[]);
    check("another version", &newer, both, &["a.io/v2/things"], &["a.io/v1/things"], false);
}

#[test]
fn acceptance_gc_043_discovery_that_fails_entirely_leaves_monitors_as_they_are() {
    let runs = &["a.io/v1/things", "v1/pods", "v1/secrets?"];
    let nothing = Discovery::default();
    check("nothing is served", &nothing, runs, &[], &[], true);
    check("no root answers", &broken(broken(nothing, "/api"), "/apis"), runs, &[], &[], true);
    let core = broken(answer(&["v1/pods"], &[]), "/apis");
    check("the root of groups does not answer", &core, &["a.io/v1/things?", "v1/pods"], &[], &[], true);
    check(
        "the group of the root that answers counts",
        &core,
        &["a.io/v1/things", "v1/secrets"],
        &["v1/pods"],
        &[],
        true,
    );
    let half = &["v1/pods"][..];
    let looks = [(0, broken(answer(half, &[]), "/apis")), (30, broken(answer(half, &[]), "/apis"))];
    assert_eq!(run_passes(&["a.io/v1/things", "v1/pods", "v1/secrets"], &looks).0, ["v1/secrets"], "two answers");
}

/// Which monitors stop, and which types are doubted at the end, after the answers at these seconds. A stopped monitor
/// does not start again. Watched types are known, and unknown after they stop.
fn run_passes(runs: &[&str], looks: &[(u64, Discovery)]) -> (Vec<String>, Vec<String>) {
    let (mut history, start) = (DiscoveryHistory::default(), Clock::system().now());
    let (mut runs, mut stopped) = (running(runs), Vec::new());
    let mut known: BTreeSet<Resource> = runs.keys().cloned().collect();
    for (at, answer) in looks {
        let plan = plan(answer, &runs, &known, &mut history, start + Duration::from_secs(*at));
        assert!(plan.doubted.iter().all(|it| history.lacked_since(it).is_some()), "after {at} s");
        runs.retain(|it, _| !plan.stop.contains(it));
        known.retain(|it| !plan.unserved.contains(it));
        let is_served = |it: &Resource| answer.served.iter().any(|served| served.resource == *it);
        assert!(plan.stop.iter().all(|it| is_served(it) != plan.unserved.contains(it)), "after {at} s");
        stopped.extend(plan.stop);
    }
    let doubted: Vec<Resource> = runs.into_keys().filter(|it| history.lacked_since(it).is_some()).collect();
    (paths(&stopped), paths(&doubted))
}

#[test]
fn a_missing_type_is_stopped_after_two_answers_half_a_minute_apart() {
    let thing = "a.io/v1/things";
    let with = || answer(&[thing, "v1/pods"], &[]);
    let without = || answer(&["v1/pods"], &[]);
    let unknown_groups = || answer(&["v1/pods"], &["a.io/v1"]);
    let half = || broken(answer(&["v1/pods"], &[]), "/apis");
    let no_answer = Discovery::default;
    // The answers, whether the type stops by the last of them, and whether it is doubted then.
    type Story<'a> = (&'a str, &'a [(u64, Discovery)], bool, bool);
    let stories: &[Story<'_>] = &[
        ("always served", &[(0, with()), (30, with())], false, false),
        ("one answer lacks it", &[(0, without())], false, true),
        ("two answers within half a minute lack it", &[(0, without()), (1, without()), (29, without())], false, true),
        ("two answers half a minute apart lack it", &[(0, without()), (30, without())], true, false),
        ("the next answer has it again", &[(0, without()), (30, with())], false, false),
        ("the answer in between has it", &[(0, without()), (10, with()), (30, without())], false, true),
        (
            "two answers after that lack it",
            &[(0, without()), (10, with()), (30, without()), (60, without())],
            true,
            false,
        ),
        ("its group fails in between", &[(0, without()), (15, unknown_groups()), (30, without())], false, true),
        (
            "half a minute counts from the first answer after that",
            &[(0, without()), (15, unknown_groups()), (45, without())],
            false,
            true,
        ),
        (
            "two answers half a minute apart after that lack it",
            &[(15, unknown_groups()), (20, without()), (50, without())],
            true,
            false,
        ),
        ("no answer in between", &[(0, without()), (15, no_answer()), (30, without())], false, true),
        ("no answers after that", &[(0, without()), (30, no_answer()), (600, no_answer())], false, false),
        (
            "its group fails for days",
            &[(0, without()), (30, unknown_groups()), (172_800, unknown_groups())],
            false,
            false,
        ),
        (
            "it is doubted again when its group answers",
            &[(0, without()), (30, unknown_groups()), (172_800, without())],
            false,
            true,
        ),
        ("its root does not answer in between", &[(0, without()), (15, half()), (30, without())], false, true),
        ("its group fails, then answers", &[(0, without()), (15, unknown_groups()), (20, with())], false, false),
    ];
    for (name, looks, stops, is_doubted) in stories {
        let (stopped, doubted) = run_passes(&[thing, "v1/pods"], looks);
        let listed = |is_there: &bool| if *is_there { words(&[thing]) } else { Vec::new() };
        assert_eq!((stopped, doubted), (listed(stops), listed(is_doubted)), "{name}");
    }
}

#[test]
fn a_missing_type_can_be_confirmed_by_a_read_but_not_most_types_at_once() {
    let now = Clock::system().now();
    let doubted = |served: &[&str], runs: &[&str]| {
        let plan = plan(&answer(served, &[]), &running(runs), &BTreeSet::new(), &mut DiscoveryHistory::default(), now);
        paths(&plan.doubted)
    };
    assert_eq!(doubted(&["v1/pods"], &["a.io/v1/things", "v1/pods"]), ["a.io/v1/things"]);
    assert_eq!(doubted(&["a.io/v2/things"], &["a.io/v1/things"]), [""; 0], "it is watched in another version");
    let all = of_twelve(12);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    assert_eq!((doubted(&all[..6], &all).len(), doubted(&all[..5], &all).len()), (6, 0));
}

#[test]
fn a_failing_group_version_counts_as_unknown_until_its_types_are_known() {
    let whole = || answer(&["a.io/v1/things", "v1/pods"], &[]);
    let fails = || answer(&["v1/pods"], &["a.io/v1"]);
    let lacks = || answer(&["v1/pods"], &[]);
    let half = || broken(answer(&["v1/pods"], &[]), "/apis");
    let (thing, unsynced) = (&["a.io/v1/things"][..], &["a.io/v1/things?"][..]);
    // The running monitors, the answers, and since when the type counts as lacked at the end.
    type Story<'a> = (&'a str, &'a [&'a str], &'a [(u64, Discovery)], Option<u64>);
    let stories: &[Story<'_>] = &[
        ("from the first answer", &[], &[(0, fails()), (30, fails())], Some(0)),
        ("from a later answer", &[], &[(0, lacks()), (30, fails()), (60, fails())], Some(30)),
        ("until its types are known", &[], &[(0, fails()), (30, whole())], None),
        ("until its group version is not served any more", &[], &[(0, fails()), (30, lacks())], None),
        ("not if its types are known", thing, &[(0, whole()), (30, fails())], None),
        ("not if its types were known and lacked since", thing, &[(0, whole()), (30, lacks()), (60, fails())], None),
        ("not if its types were known and never synced, before it fails", unsynced, &[(0, whole())], None),
        ("a type that stops because of the failure", unsynced, &[(0, whole()), (30, fails()), (60, fails())], Some(30)),
        ("also without an answer", &[], &[(0, fails()), (30, Discovery::default())], Some(0)),
        ("also if its root does not answer", &[], &[(0, fails()), (30, half()), (60, fails())], Some(0)),
        (
            "known types stay known if their root does not answer",
            thing,
            &[(0, whole()), (30, half()), (60, fails())],
            None,
        ),
        (
            "again from the first failure after it was not served",
            &[],
            &[(0, whole()), (30, lacks()), (60, fails())],
            Some(60),
        ),
    ];
    for (name, runs, looks, since) in stories {
        let (mut history, mut runs, start) = (DiscoveryHistory::default(), running(runs), Clock::system().now());
        for (at, answer) in *looks {
            let plan = plan(answer, &runs, &BTreeSet::new(), &mut history, start + Duration::from_secs(*at));
            runs.retain(|it, _| !plan.stop.contains(it));
        }
        let unknown_groups: Vec<(&str, Instant)> = history.unknown_groups().collect();
        let wanted: Vec<(&str, Instant)> =
            since.iter().map(|it| ("a.io/v1", start + Duration::from_secs(*it))).collect();
        assert_eq!(unknown_groups, wanted, "{name}");
    }
}

#[test]
fn acceptance_gc_044_a_failing_group_keeps_its_synced_monitors_and_delays_no_other() {
    let partly = answer(&["b.io/v1/new", "v1/pods"], &["a.io/v1"]);
    let runs = &["a.io/v1/synced", "a.io/v1/unsynced?", "v1/pods"];
    check("one group fails", &partly, runs, &["b.io/v1/new"], &["a.io/v1/unsynced"], false);
    let older = answer(&["a.io/v1/synced", "b.io/v1/new", "v1/pods"], &["a.io/v2"]);
    let runs = &["a.io/v2/synced", "b.io/v1/new", "v1/pods"];
    check("a watched version that fails is not replaced by another version", &older, runs, &[], &[], false);
    let runs = &["a.io/v2/synced?", "b.io/v1/new", "v1/pods"];
    check("except for a type that never synced", &older, runs, &["a.io/v1/synced"], &["a.io/v2/synced"], false);
}

#[test]
fn acceptance_gc_045_what_cannot_be_deleted_listed_or_watched_is_not_monitored() {
    let mut discovery = answer(&["v1/pods"], &[]);
    for lacks in VERBS {
        let verbs = ALL.iter().copied().filter(|it| it != lacks);
        discovery.served.push(ServedResource::new(resource(&format!("v1/no{lacks}")), true, verbs));
    }
    discovery.served.push(ServedResource::new(resource("a.io/v1/older"), false, ALL.iter().copied()));
    discovery.served.push(ServedResource::new(Resource::namespaced("", "v1", "nokind", ""), true, ALL.iter().copied()));
    discovery.unparsable.push("unexpected GroupVersion string: a/b/c".to_owned());
    check("a type with all verbs", &discovery, &[], &["v1/pods"], &[], false);
    check("a type that lost a verb", &discovery, &["v1/nodelete"], &["v1/pods"], &[], false);
    let looks = [(0, discovery.clone()), (30, discovery)];
    assert_eq!(run_passes(&["v1/nodelete"], &looks).0, ["v1/nodelete"], "it is not started again");
}

#[test]
fn acceptance_gc_051_events_of_either_group_are_not_monitored() {
    let events = answer(&["events.k8s.io/v1/events", "v1/events", "v1/pods", "my.io/v1/events"], &[]);
    check("neither", &events, &[], &["my.io/v1/events", "v1/pods"], &[], false);
}

/// Twelve types, of which the first `count` are served.
fn of_twelve(count: usize) -> Vec<String> {
    (0..count).map(|it| format!("a.io/v1/type{it:02}")).collect()
}

#[test]
fn an_answer_that_lacks_most_types_is_trusted_after_five_minutes() {
    let all = of_twelve(12);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let runs = running(&all);
    let known: BTreeSet<Resource> = runs.keys().cloned().collect();
    let secs = Duration::from_secs;
    let start = Clock::system().now();
    let whole = |count: usize| answer(&all[..count], &[]);
    let half = || broken(whole(5), "/api");
    // At each time: the answer, and how many monitors stop.
    type Story<'a> = (&'a str, &'a [(u64, Discovery, usize)]);
    let stories: &[Story<'_>] = &[
        ("half of the types after half a minute", &[(0, whole(6), 0), (29, whole(6), 0), (30, whole(6), 6)]),
        (
            "most types if all answers lack them",
            &[(0, whole(5), 0), (30, whole(5), 0), (299, whole(5), 0), (300, whole(5), 7)],
        ),
        ("not if an answer has them", &[(0, whole(5), 0), (30, whole(12), 0), (330, whole(5), 0)]),
        (
            "not if an answer lacks other types",
            &[(0, whole(1), 0), (200, whole(2), 0), (301, whole(2), 0), (500, whole(2), 10)],
        ),
        ("not after a missing answer", &[(0, whole(5), 0), (30, Discovery::default(), 0), (301, whole(5), 0)]),
        ("not after a partial answer", &[(0, whole(5), 0), (30, half(), 0), (301, whole(5), 0)]),
        ("never by partial answers", &[(0, half(), 0), (301, half(), 0), (900, half(), 0)]),
    ];
    for (name, story) in stories {
        let mut history = DiscoveryHistory::default();
        for (at, answer, stops) in *story {
            let plan = plan(answer, &runs, &known, &mut history, start + secs(*at));
            assert_eq!((plan.stop.len(), plan.start.len()), (*stops, 0), "{name}, after {at} s");
            assert_eq!(
                plan.unserved.len(),
                *stops,
                "{name}, after {at} s: known types follow the same rule as monitors"
            );
        }
    }
    let (few, mut history) = (running(&all[..9]), DiscoveryHistory::default());
    plan(&whole(1), &few, &known, &mut history, start);
    let plan = plan(&whole(1), &few, &known, &mut history, start + secs(30));
    assert_eq!((plan.stop.len(), plan.fault), (8, None), "of few types, most may be removed");
}

#[test]
fn a_doubtful_answer_still_adds_types_and_its_fault_has_numbers() {
    let all = of_twelve(12);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut news = all[..5].to_vec();
    news.extend(["b.io/v1/new", "a.io/v2/type11"]);
    let now = Clock::system().now();
    let plan = plan(&answer(&news, &[]), &running(&all), &BTreeSet::new(), &mut DiscoveryHistory::default(), now);
    assert_eq!((paths(&plan.start), plan.stop.len()), (words(&["b.io/v1/new"]), 0));
    assert_eq!(plan.fault, Some(Fault::Doubtful { lacks: 7, of: 12 }));
}

#[test]
fn a_known_unwatched_type_is_removed_by_the_same_rule() {
    let known: BTreeSet<Resource> = ["a.io/v1/things", "a.io/v2/things", "v1/pods"].map(resource).into();
    let (mut history, start) = (DiscoveryHistory::default(), Clock::system().now());
    let mut unserved = |answer: &Discovery, at: u64| {
        let runs = running(&["a.io/v2/things", "v1/pods"]);
        let plan = plan(answer, &runs, &known, &mut history, start + Duration::from_secs(at));
        assert!(plan.doubted.is_empty() && plan.stop.is_empty() && plan.fault.is_none(), "after {at} s");
        paths(&plan.unserved.into_iter().collect::<Vec<_>>())
    };
    let lacks = || answer(&["a.io/v2/things", "v1/pods"], &[]);
    let write_only = || {
        let mut answer = lacks();
        answer.served.push(ServedResource::new(resource("a.io/v1/things"), false, ["create"]));
        answer
    };
    assert_eq!(unserved(&lacks(), 0), [""; 0]);
    assert_eq!(unserved(&answer(&["a.io/v2/things", "v1/pods"], &["a.io/v1"]), 20), [""; 0], "its version is stale");
    assert_eq!(unserved(&lacks(), 30), [""; 0], "doubted again");
    assert_eq!(unserved(&write_only(), 45), [""; 0]);
    assert_eq!(
        unserved(&write_only(), 60),
        ["a.io/v1/things"],
        "a type that cannot be read cannot be a type of owners"
    );
}
