//! Starts and owns all tasks of a manager.
//!
//! A [`Scope`] owns tasks: dropping it ends all of them at their next await. A simulation uses this to crash a manager,
//! and a test uses it to leave no task behind. A panic in a task outside of a sync means that an invariant of ours is
//! broken. It is never lost: [`Scope::panicked`] returns it to the manager, which ends the process. All tasks of a
//! scope can be suspended by a [`Gate`]; a simulation uses this to stop a process for a while.

mod gate;

use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Weak},
};

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinHandle},
};

pub use gate::Gate;

/// Owns the tasks started through its spawners.
pub struct Scope(Arc<Inner>);

struct Inner {
    table: Mutex<TaskTable>,
    panicked: watch::Sender<Option<String>>,
    /// `None` outside of simulations.
    gate: Option<Gate>,
}

#[derive(Default)]
struct TaskTable {
    next: u64,
    /// By number, so that the tasks of a dropped scope end in the order of their start and a simulation is repeatable.
    /// `None` between the start of a task and the moment its handle is stored.
    tasks: BTreeMap<u64, Option<AbortHandle>>,
    /// The scope is dropped: no further task starts.
    closed: bool,
}

/// Starts tasks in a scope, cheap to clone. Does not keep the scope alive.
#[derive(Clone)]
pub struct Spawner(Weak<Inner>);

/// One started task. Dropping the handle leaves the task running.
pub struct Task(Option<JoinHandle<()>>);

impl Scope {
    /// A scope without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Inner { table: Mutex::default(), panicked: watch::Sender::new(None), gate: None }))
    }

    /// A scope whose tasks are all behind `gate`.
    #[must_use]
    pub fn with_gate(gate: Gate) -> Self {
        Self(Arc::new(Inner { table: Mutex::default(), panicked: watch::Sender::new(None), gate: Some(gate) }))
    }

    /// Starts tasks in this scope.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        Spawner(Arc::downgrade(&self.0))
    }

    /// How many tasks have not ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.table.lock().tasks.len()
    }

    /// True when all tasks have ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a task has panicked and returns its name and message. Waits for ever if none does.
    pub async fn panicked(&self) -> String {
        let mut seen = self.0.panicked.subscribe();
        loop {
            if let Some(message) = seen.borrow_and_update().clone() {
                return message;
            }
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Inner {
    fn reserve(&self) -> Option<u64> {
        let mut table = self.table.lock();
        if table.closed {
            return None;
        }
        let id = table.next;
        table.next += 1;
        table.tasks.insert(id, None);
        Some(id)
    }
}

impl Default for Scope {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        let mut table = self.0.table.lock();
        table.closed = true;
        for task in table.tasks.values().flatten() {
            task.abort();
        }
    }
}

impl Spawner {
    /// Starts a task. Has no effect once the scope is dropped. `name` identifies the task in the log when it panics.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) -> Task {
        let Some(scope) = self.0.upgrade() else { return Task(None) };
        let weak = self.0.clone();
        let Some(id) = scope.reserve() else { return Task(None) };
        // Removes the task from the list when it ends, whether it finished, panicked or was aborted.
        let remove_on_drop = RemoveOnDrop { scope: weak.clone(), id };
        // Boxed, because a variable that an async block captures and awaits takes its space twice.
        let future = Box::pin(future);
        let wrapped = async move {
            let _remove_on_drop = remove_on_drop;
            if let Err(panic) = AssertUnwindSafe(future).catch_unwind().await {
                let message = format!("{name}: {}", panic_message(&*panic));
                tracing::error!(err = %message, task = name, "A task panicked");
                if let Some(scope) = weak.upgrade() {
                    scope.panicked.send_replace(Some(message));
                }
            }
        };
        let task = match &scope.gate {
            None => tokio::spawn(wrapped),
            Some(gate) => tokio::spawn(gate.suspend_while_closed(wrapped)),
        };
        // Not under the lock above: a runtime that shuts down drops the task inside `spawn`, and that drop takes the
        // lock too.
        let mut table = scope.table.lock();
        if let Some(entry) = table.tasks.get_mut(&id) {
            *entry = Some(task.abort_handle());
        }
        if table.closed {
            task.abort();
        }
        drop(table);
        Task(Some(task))
    }

    /// How many tasks of the scope have not ended, on all runtimes. Zero once the scope is dropped.
    #[must_use]
    pub fn task_count(&self) -> usize {
        self.0.upgrade().map_or(0, |scope| scope.table.lock().tasks.len())
    }
}

impl std::fmt::Debug for Spawner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spawner").finish_non_exhaustive()
    }
}

struct RemoveOnDrop {
    scope: Weak<Inner>,
    id: u64,
}

impl Drop for RemoveOnDrop {
    fn drop(&mut self) {
        if let Some(scope) = self.scope.upgrade() {
            scope.table.lock().tasks.remove(&self.id);
        }
    }
}

impl Task {
    /// Ends the task at its next await.
    pub fn stop(&self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }

    /// Waits until the task has ended: finished, panicked or aborted.
    pub async fn wait_until_ended(self) {
        if let Some(task) = self.0 {
            // An aborted task has ended too. Panics were reported where they happened.
            let _ = task.await;
        }
    }
}

/// The message of a panic, if it has one.
#[must_use]
pub fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn dropping_a_scope_ends_its_tasks_and_starts_no_more() {
        let scope = Scope::new();
        let spawner = scope.spawner();
        let task = spawner.spawn("sleeper", tokio::time::sleep(Duration::from_secs(1_000_000)));
        assert_eq!(scope.len(), 1);
        drop(scope);
        task.wait_until_ended().await;
        spawner.spawn("late", async { panic!("must not run") }).wait_until_ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_end_in_the_order_in_which_they_started() {
        struct RecordsDrop(u32, Arc<Mutex<Vec<u32>>>);
        impl Drop for RecordsDrop {
            fn drop(&mut self) {
                self.1.lock().push(self.0);
            }
        }
        let (scope, dropped) = (Scope::new(), Arc::new(Mutex::new(Vec::new())));
        let started: Vec<Task> = (0..20)
            .map(|number| {
                let records_drop = RecordsDrop(number, dropped.clone());
                scope.spawner().spawn("sleeper", async move {
                    let _records_drop = records_drop;
                    std::future::pending().await
                })
            })
            .collect();
        tokio::task::yield_now().await;
        drop(scope);
        for task in started {
            task.wait_until_ended().await;
        }
        assert_eq!(*dropped.lock(), (0..20).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_task_leaves_the_scope() {
        let scope = Scope::new();
        scope.spawner().spawn("short", async {}).wait_until_ended().await;
        assert!(scope.is_empty());
    }

    #[test]
    fn tasks_of_every_runtime_are_counted() {
        let scope = Scope::new();
        let spawner = scope.spawner();
        let runtimes = [(), ()].map(|()| tokio::runtime::Builder::new_current_thread().build().unwrap());
        for runtime in &runtimes {
            runtime.block_on(async {
                spawner.spawn("sleeper", std::future::pending());
            });
        }
        assert_eq!((spawner.task_count(), scope.len()), (2, 2));
        drop(scope);
        assert_eq!(spawner.task_count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_reported_with_its_task_name() {
        let scope = Scope::new();
        scope.spawner().spawn("machine", async { panic!("broken invariant") });
        assert_eq!(scope.panicked().await, "machine: broken invariant");
    }

    #[tokio::test(start_paused = true)]
    async fn stopped_task_is_not_a_panic() {
        let scope = Scope::new();
        let task = scope.spawner().spawn("sleeper", std::future::pending());
        task.stop();
        task.wait_until_ended().await;
        assert!(scope.is_empty());
        assert!(scope.panicked().now_or_never().is_none());
    }
}
