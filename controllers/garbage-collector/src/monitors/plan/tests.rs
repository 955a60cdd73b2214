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

/// All of them preferred and with all verbs.
fn served(paths: &[&str]) -> Vec<Served> {
    paths.iter().map(|it| Served::new(resource(it), true, ALL.iter().copied())).collect()
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
    let plan = plan(answer, &running(runs), &mut Doubts::default(), now);
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
fn what_is_served_is_watched_and_what_is_not_is_not() {
    let (pods, both) = (&["v1/pods"][..], &["a.io/v1/things", "v1/pods"][..]);
    check("at the start", &answer(both, &[]), &[], both, &[], false);
    check("nothing new", &answer(both, &[]), both, &[], &[], false);
    check("one more", &answer(both, &[]), pods, &["a.io/v1/things"], &[], false);
    check("one less", &answer(pods, &[]), both, &[], &["a.io/v1/things"], false);
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
        "what the other root says counts",
        &core,
        &["a.io/v1/things", "v1/secrets"],
        &["v1/pods"],
        &["v1/secrets"],
        true,
    );
}

#[test]
fn acceptance_gc_044_a_group_that_fails_keeps_what_has_synced_and_holds_up_no_other() {
    let partly = answer(&["b.io/v1/new", "v1/pods"], &["a.io/v1"]);
    let runs = &["a.io/v1/synced", "a.io/v1/unsynced?", "v1/pods"];
    check("one group fails", &partly, runs, &["b.io/v1/new"], &["a.io/v1/unsynced"], false);
    let older = answer(&["a.io/v1/synced", "b.io/v1/new", "v1/pods"], &["a.io/v2"]);
    let runs = &["a.io/v2/synced", "b.io/v1/new", "v1/pods"];
    check("what is watched in the version that fails is not watched in another", &older, runs, &[], &[], false);
    let runs = &["a.io/v2/synced?", "b.io/v1/new", "v1/pods"];
    check("but for one that never synced", &older, runs, &["a.io/v1/synced"], &["a.io/v2/synced"], false);
}

#[test]
fn acceptance_gc_045_what_cannot_be_deleted_listed_or_watched_is_not_monitored() {
    let mut discovery = answer(&["v1/pods"], &[]);
    for lacks in VERBS {
        let verbs = ALL.iter().copied().filter(|it| it != lacks);
        discovery.served.push(Served::new(resource(&format!("v1/no{lacks}")), true, verbs));
    }
    discovery.served.push(Served::new(resource("a.io/v1/older"), false, ALL.iter().copied()));
    discovery.served.push(Served::new(Resource::namespaced("", "v1", "nokind", ""), true, ALL.iter().copied()));
    discovery.unparsable.push("unexpected GroupVersion string: a/b/c".to_owned());
    check("others are", &discovery, &[], &["v1/pods"], &[], false);
    check("one that loses a verb", &discovery, &["v1/nodelete"], &["v1/pods"], &["v1/nodelete"], false);
}

#[test]
fn acceptance_gc_051_events_of_either_group_are_not_monitored() {
    let events = answer(&["events.k8s.io/v1/events", "v1/events", "v1/pods", "my.io/v1/events"], &[]);
    check("neither", &events, &[], &["my.io/v1/events", "v1/pods"], &[], false);
}

/// Twelve types, of which the first so many are served.
fn of_twelve(count: usize) -> Vec<String> {
    (0..count).map(|it| format!("a.io/v1/type{it:02}")).collect()
}

#[test]
fn an_answer_that_suddenly_lacks_most_types_is_believed_after_it_said_so_for_five_minutes() {
    let all = of_twelve(12);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let runs = running(&all);
    let secs = Duration::from_secs;
    let start = Clock::system().now();
    let whole = |count: usize| answer(&all[..count], &[]);
    let half = || broken(whole(5), "/api");
    // At each moment: the answer, and how many monitors stop.
    let stories: &[(&str, &[(u64, Discovery, usize)])] = &[
        ("half of them go at once", &[(0, whole(6), 6)]),
        (
            "most of them when it stays so",
            &[(0, whole(5), 0), (30, whole(5), 0), (299, whole(5), 0), (300, whole(5), 7)],
        ),
        ("not when it comes back", &[(0, whole(5), 0), (30, whole(12), 0), (330, whole(5), 0)]),
        (
            "not when it says something else",
            &[(0, whole(1), 0), (200, whole(2), 0), (301, whole(2), 0), (500, whole(2), 10)],
        ),
        ("not after silence", &[(0, whole(5), 0), (30, Discovery::default(), 0), (301, whole(5), 0)]),
        ("not after half an answer", &[(0, whole(5), 0), (30, half(), 0), (301, whole(5), 0)]),
        ("never by half an answer", &[(0, half(), 0), (301, half(), 0), (900, half(), 0)]),
    ];
    for (name, story) in stories {
        let mut doubts = Doubts::default();
        for (at, answer, stops) in *story {
            let plan = plan(answer, &runs, &mut doubts, start + secs(*at));
            assert_eq!((plan.stop.len(), plan.start.len()), (*stops, 0), "{name}, after {at} s");
        }
    }
    let few = running(&all[..9]);
    let plan = plan(&whole(1), &few, &mut Doubts::default(), start);
    assert_eq!((plan.stop.len(), plan.fault), (8, None), "of few types most may go");
}

#[test]
fn a_doubtful_answer_still_adds_types_and_is_told_in_numbers() {
    let all = of_twelve(12);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let mut news = all[..5].to_vec();
    news.extend(["b.io/v1/new", "a.io/v2/type11"]);
    let plan = plan(&answer(&news, &[]), &running(&all), &mut Doubts::default(), Clock::system().now());
    assert_eq!((paths(&plan.start), plan.stop.len()), (words(&["b.io/v1/new"]), 0));
    assert_eq!(plan.fault, Some(Fault::Doubtful { lacks: 7, of: 12 }));
}
