//! The setup of the runs.

use std::time::Duration;

use clock::Clock;
use e2e::{
    Flavour, Identity, Launch, Manager,
    workloads::{ObservedObjects, RunContext, Zero},
};
use fake_nodes::{Environment, Fleet};
use tasks::Scope;

use crate::support::Server;

const TIME_LIMIT: Duration = Duration::from_secs(60);
/// A run that began later in its minute would have the next minute begin too soon.
const LATEST_SECOND: i64 = 35;
const COLLECTOR: &str = "garbage-collector-controller";
const CONTROLLERS: [&str; 4] = ["job-controller", "cronjob-controller", "ttl-after-finished-controller", COLLECTOR];

/// Server, fake nodes and managers.
pub(crate) struct Setup {
    // Dropped first, because their logs are in the server's folder.
    managers: Vec<Manager>,
    /// The garbage collector runs.
    pub(crate) collector: bool,
    pub(crate) context: RunContext,
    _scope: Scope,
    pub(crate) server: Server,
}

impl Setup {
    pub(crate) async fn open(server: Server, flavour: Flavour) -> anyhow::Result<Self> {
        let (scope, clock, admin) = (Scope::new(), Clock::system(), server.admin().await?);
        let spawner = scope.spawner();
        let nodes = fake_nodes::Options { schedulers: Vec::new(), ..fake_nodes::Options::with_nodes(4) };
        let environment =
            Environment { client: admin.client().clone(), clock: clock.clone(), spawner: spawner.clone() };
        let fleet = Fleet::start(nodes, environment);
        tokio::time::timeout(TIME_LIMIT, fleet.registered()).await?;
        let observed = ObservedObjects::start(&admin, &spawner);

        // Upstream's manager runs the controllers that ours does not run.
        let asked = std::env::var("CONTROLLERS").unwrap_or_default();
        let is_asked = |it: &str| asked.is_empty() || asked.split(',').any(|asked| asked == it);
        let (ours, theirs): (Vec<&str>, Vec<&str>) = CONTROLLERS.into_iter().partition(|it| is_asked(it));
        let mut launches = vec![launch(&server, flavour)?.flag("controllers", &ours.join(","))];
        let upstream = server.assets().is_ok_and(|it| it.binary("kube-controller-manager").is_some());
        if upstream && !theirs.is_empty() {
            launches.push(launch(&server, Flavour::Go)?.flag("controllers", &theirs.join(",")));
        }
        let collector = upstream || is_asked(COLLECTOR);
        let mut managers = Vec::new();
        for launch in launches {
            managers.push(launch.started().await?);
        }
        let second = clock.wall().as_second().rem_euclid(60);
        if second > LATEST_SECOND {
            tokio::time::sleep(Duration::from_secs(u64::try_from(60 - second)?)).await;
        }
        let zero = Zero::of(clock.wall());
        let context =
            RunContext { admin, observed, nodes: fleet.names().to_vec(), clock, zero, ours: flavour == Flavour::Ours };
        Ok(Self { managers, collector, context, _scope: scope, server })
    }

    /// Prints the log of the manager.
    pub(crate) fn show_log(&self) {
        self.managers.iter().take(1).for_each(Manager::show_log);
    }
}

/// As kubeadm starts it: with its own user, and each controller with its account and upstream's own role.
fn launch(server: &Server, flavour: Flavour) -> anyhow::Result<Launch> {
    Ok(Launch::new(server, flavour)?
        .kubeconfig(&server.kubeconfig(Identity::ControllerManager)?)
        .flag("use-service-account-credentials", "true")
        .flag("kube-api-qps", "300")
        .flag("kube-api-burst", "600"))
}
