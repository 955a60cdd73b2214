use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// Kind, namespace (empty for cluster-scoped objects), name.
type Key = (String, String, String);

/// The objects that samples read, in their last observed state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    objects: BTreeMap<Key, Value>,
    existed: BTreeSet<Key>,
}

impl Observed {
    pub(crate) fn put(&mut self, kind: &str, object: Value) {
        let key = key(kind, &object);
        self.existed.insert(key.clone());
        self.objects.insert(key, object);
    }

    pub(crate) fn remove(&mut self, kind: &str, object: &Value) {
        self.objects.remove(&key(kind, object));
    }

    /// Replaces all objects of a kind in a namespace.
    pub(crate) fn replace(&mut self, kind: &str, namespace: &str, objects: Vec<Value>) {
        self.objects.retain(|(of, at, _), _| of != kind || at != namespace);
        for object in objects {
            self.put(kind, object);
        }
    }

    pub(crate) fn get(&self, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&(kind.to_owned(), namespace.to_owned(), name.to_owned()))
    }

    /// True if it existed and was deleted.
    pub(crate) fn is_gone(&self, kind: &str, namespace: &str, name: &str) -> bool {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        self.existed.contains(&key) && !self.objects.contains_key(&key)
    }

    /// All objects of a kind in a namespace whose names have this prefix, in order.
    pub(crate) fn named(&self, kind: &str, namespace: &str, prefix: &str) -> impl Iterator<Item = &Value> {
        let wanted = move |(of, at, name): &Key| of == kind && at == namespace && name.starts_with(prefix);
        self.objects.iter().filter(move |(key, _)| wanted(key)).map(|(_, object)| object)
    }
}

fn key(kind: &str, object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (kind.to_owned(), text("namespace"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn object_that_never_existed_is_not_gone() {
        let mut observed = Observed::default();
        assert!(!observed.is_gone("Pod", "n", "a"));
        let pod = json!({ "metadata": { "namespace": "n", "name": "a" } });
        observed.put("Pod", pod.clone());
        assert!(!observed.is_gone("Pod", "n", "a") && observed.get("Pod", "n", "a").is_some());
        observed.remove("Pod", &pod);
        assert!(observed.is_gone("Pod", "n", "a"));
        observed.put("Pod", pod);
        observed.replace("Pod", "other", Vec::new());
        assert_eq!(observed.named("Pod", "n", "").count(), 1);
        observed.replace("Pod", "n", Vec::new());
        assert!(observed.is_gone("Pod", "n", "a"));
    }
}
