use controller::{Controller, Page};
use metrics::Metrics;
use tasks::{Scope, Task};
use tokio_util::sync::CancellationToken;

/// One process. Dropping it simulates a crash.
pub struct Manager {
    scope: Scope,
    stop: CancellationToken,
    metrics: Metrics,
    pages: Vec<Page>,
    /// The running controller; `None` before the term.
    controller: Option<Task>,
}

/// One process that does not lead yet.
pub struct Standby {
    controller: Controller,
    manager: Manager,
}

impl Standby {
    pub(crate) fn new(controller: Controller, scope: Scope, stop: CancellationToken, metrics: Metrics) -> Self {
        let pages = controller.pages().to_vec();
        Self { controller, manager: Manager { scope, stop, metrics, pages, controller: None } }
    }

    /// Starts what the controller does before its term.
    pub fn begin(&mut self) {
        self.controller.begin();
    }

    /// Starts the term.
    #[must_use]
    pub fn lead(self) -> Manager {
        let Self { controller, mut manager } = self;
        let stop = manager.stop.clone();
        let run = async move { controller.run(stop, std::future::ready(())).await };
        manager.controller = Some(manager.scope.spawner().spawn("controller", run));
        manager
    }
}

impl Manager {
    /// Like SIGTERM: no further key is processed, and running calls are completed.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// The same, and waits until the controller has ended.
    pub async fn stop_and_wait(mut self) {
        self.stop.cancel();
        if let Some(controller) = self.controller.take() {
            controller.wait_until_ended().await;
        }
    }

    /// The metrics page.
    #[must_use]
    pub fn metrics_page(&self) -> String {
        self.metrics.encode()
    }

    /// The lines of the metrics page that begin with this prefix.
    #[must_use]
    pub fn metric_lines(&self, prefix: &str) -> Vec<String> {
        self.metrics_page().lines().filter(|it| it.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// The value of one series, such as `job_controller_job_syncs_total{...}`; 0 if it does not exist.
    #[must_use]
    pub fn metric(&self, series: &str) -> u64 {
        self.text(series).map_or(0, |it| it.parse().unwrap())
    }

    /// The value of a series of seconds and other fractions; 0 if it does not exist.
    #[must_use]
    pub fn fraction(&self, series: &str) -> f64 {
        self.text(series).map_or(0.0, |it| it.parse().unwrap())
    }

    /// The debug pages of the controller.
    #[must_use]
    pub fn pages(&self) -> &[Page] {
        &self.pages
    }

    fn text(&self, series: &str) -> Option<String> {
        let page = self.metrics_page();
        page.lines().find_map(|it| it.strip_prefix(series)?.strip_prefix(' ')).map(str::to_owned)
    }
}
