use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::FutureExt;

use super::*;
use crate::fixture::{Log, World, event, object, run_ready_tasks, set_end};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_014_a_late_handler_gets_the_present_set_and_joins_without_gap_or_duplicate() {
    let (_world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    stream.added("b", 10);
    run_ready_tasks().await;
    // Events already arrive while the handler is added.
    stream.added("c", 11);
    let log = Log::default();
    let registration = informer.add_handler("late", None, log.handler());
    assert!(!registration.has_synced());
    stream.send_event(&event("MODIFIED", &object("a", 12, "red")));
    registration.wait_for_sync().await;
    run_ready_tasks().await;
    let calls = log.take();
    assert_eq!(calls[..2], ["Initial  -> a@3", "Initial  -> b@10"]);
    let c = calls.iter().filter(|it| it.contains("c@11")).count();
    let a = calls.iter().filter(|it| it.contains("a@12")).count();
    assert_eq!((calls.len(), a, c), (4, 1, 1), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_014_a_handler_has_synced_only_when_its_last_initial_call_has_returned() {
    let (_world, informer, _stream) = World::synced(&[object("a", 3, "red"), object("b", 4, "red")], 9).await;
    let registration: Arc<Mutex<Option<HandlerRegistration>>> = Arc::default();
    let own = registration.clone();
    let checked = Arc::new(AtomicBool::new(false));
    let done = checked.clone();
    let added = informer.add_handler("late", None, move |_| {
        assert!(own.lock().as_ref().is_some_and(|it| !it.has_synced()));
        done.store(true, Ordering::SeqCst);
    });
    *registration.lock() = Some(added);
    run_ready_tasks().await;
    assert!(checked.load(Ordering::SeqCst) && registration.lock().as_ref().unwrap().has_synced());
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_015_a_handler_cannot_await_and_a_slow_call_is_counted_by_name() {
    let (world, informer, stream) = World::synced(&[object("a", 3, "red"), object("b", 4, "red")], 9).await;
    // The first poll advances the paused clock by the duration of the call.
    let taking = |time: Duration| {
        move |_: Change<'_, _>| {
            let _moved = tokio::time::advance(time).now_or_never();
        }
    };
    let _kept = [
        informer.add_handler("quick", None, |_| {}),
        informer.add_handler("just-in-time", None, taking(SLOW)),
        informer.add_handler("sluggish", None, taking(SLOW + Duration::from_micros(1))),
    ];
    for registration in &_kept {
        registration.wait_for_sync().await;
    }
    let slow = |name| world.metric(&format!("mini_kcm_slow_handler_calls_total{{handler=\"{name}\"}}"));
    assert_eq!(["quick", "just-in-time", "sluggish"].map(slow), [None, None, Some(2.0)]);
    stream.added("c", 10);
    run_ready_tasks().await;
    assert_eq!(["quick", "just-in-time", "sluggish"].map(slow), [None, None, Some(3.0)]);
}

#[tokio::test(start_paused = true)]
async fn acceptance_machinery_016_resync_is_the_handlers_own_timer() {
    let (_world, informer, _stream) = World::synced(&[object("a", 3, "red"), object("b", 4, "red")], 9).await;
    let (never, zero, every) = (Log::default(), Log::default(), Log::default());
    let _kept = [
        informer.add_handler("never", None, never.handler()),
        informer.add_handler("zero", Some(Duration::ZERO), zero.handler()),
        informer.add_handler("every", Some(600 * SECOND), every.handler()),
    ];
    for registration in &_kept {
        registration.wait_for_sync().await;
    }
    never.take();
    zero.take();
    every.take();
    tokio::time::sleep(599 * SECOND).await;
    assert!(every.take().is_empty());
    for _ in 0..3 {
        tokio::time::sleep(2 * SECOND).await;
        assert_eq!(every.take(), ["Resync a@3 -> a@3 same", "Resync b@4 -> b@4 same"]);
        tokio::time::sleep(598 * SECOND).await;
    }
    assert!(never.take().is_empty() && zero.take().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_call_begins_after_remove_returned() {
    let (_world, informer, stream) = World::synced(&[], 9).await;
    let (log, other) = (Log::default(), Log::default());
    let registration = informer.add_handler("gone", Some(SECOND), log.handler());
    let _kept = informer.add_handler("kept", None, other.handler());
    registration.wait_for_sync().await;
    stream.added("a", 10);
    run_ready_tasks().await;
    assert_eq!(log.take().len(), 1);
    registration.remove();
    stream.added("b", 11);
    tokio::time::sleep(5 * SECOND).await;
    assert!(log.take().is_empty());
    assert_eq!(other.take().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_remove_itself_and_add_another() {
    let (_world, informer, stream) = World::synced(&[object("a", 3, "red")], 9).await;
    let own: Arc<Mutex<Option<HandlerRegistration>>> = Arc::default();
    let (me, again, log) = (own.clone(), informer.clone(), Log::default());
    let next = log.clone();
    *own.lock() = Some(informer.add_handler("once", None, move |_| {
        if let Some(registration) = me.lock().take() {
            registration.remove();
            again.add_handler("next", None, next.handler());
        }
    }));
    run_ready_tasks().await;
    stream.added("b", 10);
    run_ready_tasks().await;
    assert_eq!(log.take(), ["Initial  -> a@3", "Watch  -> b@10"]);
    assert!(own.lock().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_handler_added_before_the_first_set_gets_it_as_initial_and_relists_as_relists() {
    let mut world = World::new();
    let informer = world.informers.typed::<crate::fixture::Thing>();
    let log = Log::default();
    let _kept = informer.add_handler("early", None, log.handler());
    let (_, stream) = world.server.watch().await;
    stream.added("a", 3);
    stream.send_event(&set_end(9));
    assert_eq!(log.next(1).await, ["Initial  -> a@3"]);
    informer.watched().relist_consistently();
    let (call, stream) = world.server.watch().await;
    assert!(call.parameter("resourceVersion").is_empty());
    stream.added("a", 12);
    stream.send_event(&set_end(13));
    assert_eq!(log.next(1).await, ["Relist a@3 -> a@12"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_callback_runs_after_the_handlers() {
    let (_world, informer, stream) = World::synced(&[], 9).await;
    let log = Log::default();
    informer.add_handler("log", None, log.handler()).wait_for_sync().await;
    let (seen, woken) = (log.clone(), Arc::new(Mutex::new(None)));
    let wake = woken.clone();
    let already = informer.store().call_when_passed(10.into(), Box::new(move || *wake.lock() = Some(seen.take())));
    assert!(!already && !informer.store().has_passed(&10.into()));
    stream.added("a", 10);
    run_ready_tasks().await;
    assert_eq!(woken.lock().take(), Some(vec!["Watch  -> a@10".to_owned()]));
}

/// A handler owns its controller, which owns the informer.
#[tokio::test(start_paused = true)]
async fn handlers_are_dropped_when_the_informer_ends() {
    for crash in [false, true] {
        let (world, informer, _stream) = World::synced(&[object("a", 3, "red")], 9).await;
        let (controller, second) = (Arc::new(informer.clone()), Arc::new(informer.clone()));
        let [owned, not_active] = [&controller, &second].map(|it| it.clone());
        informer.add_handler("active", None, move |_| assert!(owned.store().is_synced()));
        run_ready_tasks().await;
        informer.add_handler("not active yet", None, move |_| assert!(not_active.store().is_synced()));
        if crash {
            drop(world.scope);
        } else {
            world.informers.shut_down().await;
        }
        run_ready_tasks().await;
        let third = Arc::new(informer.clone());
        let added_late = third.clone();
        informer.add_handler("too late", None, move |_| assert!(added_late.store().is_synced()));
        let owners = [&controller, &second, &third].map(Arc::strong_count);
        assert_eq!(owners, [1, 1, 1], "crash: {crash}");
    }
}
