use std::{
    future::Future,
    sync::Arc,
    task::{Poll, Waker},
};

use parking_lot::Mutex;

/// While it is closed, a gate suspends all tasks behind it at their next await. A simulation uses it to stop a process
/// (like SIGSTOP) while everything else continues. A scope without a gate is not affected.
#[derive(Clone, Default)]
pub struct Gate(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    closed: bool,
    /// Wakers of the tasks that were polled while the gate was closed.
    waiting: Vec<Waker>,
}

impl Gate {
    /// An open gate.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Suspends all tasks behind the gate. A task that runs at this moment continues until its next await.
    pub fn close(&self) {
        self.0.lock().closed = true;
    }

    /// Lets all tasks behind the gate continue.
    pub fn open(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.closed = false;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Wraps `future` so that it runs only while the gate is open.
    pub fn suspend_while_closed<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let gate = self.clone();
        let mut future = Box::pin(future);
        std::future::poll_fn(
            move |cx| if gate.wait_if_closed(cx.waker()) { Poll::Pending } else { future.as_mut().poll(cx) },
        )
    }

    fn wait_if_closed(&self, waker: &Waker) -> bool {
        let mut state = self.0.lock();
        if state.closed && !state.waiting.iter().any(|it| it.will_wake(waker)) {
            state.waiting.push(waker.clone());
        }
        state.closed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use crate::{Gate, Scope};

    const SEC: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_suspends_tasks_until_it_opens() {
        let gate = Gate::new();
        let scope = Scope::with_gate(gate.clone());
        let task = scope.spawner().spawn("sleeper", sleep(SEC));
        gate.close();
        sleep(SEC * 20).await;
        assert_eq!(scope.len(), 1, "its sleep is over, but the gate is closed");
        gate.open();
        timeout(SEC, task.wait_until_ended()).await.expect("the task continues at once");
        assert!(scope.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_scope_whose_gate_is_closed_can_be_dropped() {
        let gate = Gate::new();
        let scope = Scope::with_gate(gate.clone());
        let task = scope.spawner().spawn("sleeper", sleep(SEC));
        gate.close();
        sleep(SEC * 2).await;
        drop(scope);
        timeout(SEC, task.wait_until_ended()).await.expect("the task was dropped while suspended");
    }
}
