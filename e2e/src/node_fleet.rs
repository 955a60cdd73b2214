use std::time::Duration;

use clock::Clock;
use fake_nodes::{Environment, Fleet, NodeSpec, Options};
use tasks::{Scope, Spawner};

use crate::{Rest, Site};

/// Fake nodes that run the pods of one API server. They stop on drop.
pub struct NodeFleet {
    admin: Rest,
    _fleet: Fleet,
    scope: Scope,
}

impl NodeFleet {
    /// Starts nodes and a scheduler, and waits until the nodes are registered.
    ///
    /// # Errors
    /// If they are not registered within `within`.
    pub async fn start(site: &Site, nodes: Vec<NodeSpec>, within: Duration) -> anyhow::Result<Self> {
        let (scope, admin) = (Scope::new(), site.admin().await?);
        let environment =
            Environment { client: admin.client().clone(), clock: Clock::system(), spawner: scope.spawner() };
        let fleet = Fleet::start(Options { nodes, ..Options::with_nodes(0) }, environment);
        tokio::time::timeout(within, fleet.registered()).await?;
        Ok(Self { admin, _fleet: fleet, scope })
    }

    /// The same with this number of equal nodes, `node-1` and so on.
    ///
    /// # Errors
    /// If they are not registered within `within`.
    pub async fn start_equal(site: &Site, count: usize, within: Duration) -> anyhow::Result<Self> {
        Self::start(site, Options::with_nodes(count).nodes, within).await
    }

    /// A client as admin.
    #[must_use]
    pub fn admin(&self) -> &Rest {
        &self.admin
    }

    /// Starts tasks that end with the nodes.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.scope.spawner()
    }
}
