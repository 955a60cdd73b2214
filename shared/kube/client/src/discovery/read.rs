//! Requests discovery documents.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::{StreamExt, stream};

use crate::{
    Api,
    discovery::{
        Discovery,
        parse::{self, CORE, Group, GroupVersion, NAMED, Root, Version},
    },
};

/// Every group with all its resources in one answer where the server can, else the old form.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
const JSON: &str = "application/json";
/// No answer within this time is none: the server has these answers at hand.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many groups an old server is asked for at a time.
const AT_ONCE: usize = 8;

pub(crate) async fn read(api: &Api) -> Discovery {
    let (core, named) = futures::join!(root(api, CORE), root(api, NAMED));
    let (mut groups, mut broken) = (Vec::new(), BTreeMap::new());
    for (root, answer) in [(CORE, core), (NAMED, named)] {
        match answer {
            Ok(found) => groups.extend(found),
            Err(why) => drop(broken.insert(root, why)),
        }
    }
    parse::assemble(groups, broken)
}

async fn root(api: &Api, path: &str) -> Result<Vec<Group>, String> {
    let answer = ask(api, path, AGGREGATED).await.and_then(|bytes| parse::root(&bytes));
    match answer? {
        Root::Aggregated(groups) => Ok(groups),
        Root::Names(groups) => {
            let asked: Vec<_> = groups.into_iter().map(|versions| one_by_one(api, versions)).collect();
            Ok(stream::iter(asked).buffered(AT_ONCE).collect().await)
        }
    }
}

async fn one_by_one(api: &Api, versions: Vec<GroupVersion>) -> Group {
    let mut served = Vec::new();
    for at in versions {
        let resources = ask(api, &at.path(), JSON).await.and_then(|bytes| parse::resources(&bytes));
        served.push(Version { at, resources });
    }
    Group { versions: served }
}

async fn ask(api: &Api, path: &str, accept: &str) -> Result<Bytes, String> {
    match tokio::time::timeout(PATIENCE, api.read(path, accept)).await {
        Ok(answer) => answer.map_err(|err| err.to_string()),
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}
