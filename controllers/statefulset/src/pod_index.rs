//! The index of pods that this controller declares.

use api::{Entry, ObjectKey, Pod};

use crate::rules::identity::set_name;

/// The set that may adopt a pod without a controller. A pod that does not decode cannot be adopted.
pub(crate) fn set_of_orphan(entry: &Entry<Pod>) -> Option<ObjectKey> {
    let meta = entry.readable()?.meta.as_ref();
    if meta.controller().is_some() {
        return None;
    }
    Some(ObjectKey { namespace: meta.namespace.clone(), name: set_name(meta.name)?.into() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use api::Cached;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn orphans_are_indexed_by_the_set_of_their_name() {
        let of = |name: &str, owners: Value| {
            let pod = json!({ "metadata": { "name": name, "namespace": "ns", "ownerReferences": owners } });
            set_of_orphan(&Entry::Readable(Arc::new(Pod::decode_object(pod.to_string().as_bytes()).unwrap())))
        };
        assert_eq!(of("a-b-3", json!([])), Some(ObjectKey { namespace: "ns".into(), name: "a-b".into() }));
        assert_eq!(of("web-x", json!([])), None);
        let owner =
            json!([{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": true }]);
        assert_eq!(of("web-0", owner), None);
    }
}
