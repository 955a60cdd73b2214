//! Requests discovery documents.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::{
    Api,
    discovery::{
        Discovery,
        parse::{self, CORE, GroupVersion, ListedGroup, ListedVersion, NAMED, Root},
    },
};

/// Requests every group with all its resources in one response; a server without this form returns the legacy form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const JSON: &str = "application/json";
/// The limit of one request. The server has these responses ready.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many groups are requested at a time in the legacy form.
const CONCURRENCY: usize = 8;

pub(crate) async fn read(api: &Api) -> Discovery {
    let (core, named) = futures::join!(root(api, CORE), root(api, NAMED));
    let (mut groups, mut broken) = (Vec::new(), BTreeMap::new());
    for (root, result) in [(CORE, core), (NAMED, named)] {
        match result {
            Ok(found) => groups.extend(found),
            Err(why) => drop(broken.insert(root, why)),
        }
    }
    parse::assemble(groups, broken)
}

async fn root(api: &Api, path: &str) -> Result<Vec<ListedGroup>, String> {
    let root = get(api, path, AGGREGATED).await.and_then(|bytes| parse::root(&bytes));
    match root? {
        Root::Aggregated(groups) => Ok(groups),
        Root::Names(groups) => {
            let reads: Vec<_> = groups.into_iter().map(|versions| read_versions(api, versions)).collect();
            Ok(stream::iter(reads).buffered(CONCURRENCY).collect().await)
        }
    }
}

async fn read_versions(api: &Api, versions: Vec<GroupVersion>) -> ListedGroup {
    let mut served = Vec::new();
    for at in versions {
        let resources = get(api, &at.path(), JSON).await.and_then(|bytes| parse::resources(&bytes));
        served.push(ListedVersion { at, resources });
    }
    ListedGroup { versions: served }
}

async fn get(api: &Api, path: &str, accept: &str) -> Result<Bytes, String> {
    match tokio::time::timeout(TIMEOUT, api.read(path, accept)).await {
        Ok(result) => result.map_err(|err| err.to_string()),
        Err(_) => Err(format!("no answer within {} s", TIMEOUT.as_secs())),
    }
}
