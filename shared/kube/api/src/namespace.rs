use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    Atom, Cached, Condition, Meta, MetaRef, NoIndex, RawMetadata, Resource, StatusOwner, Typed,
    json::{as_json, named},
    metadata::Metadata,
    words::words,
};

words! {
    /// The phase of a namespace.
    NamespacePhase {
        /// In use.
        Active = "Active",
        /// Its content is being deleted.
        Terminating = "Terminating",
    }
}

/// The fields of a namespace that the namespace controller reads, and those that its writes must contain.
#[derive(Debug, Clone)]
pub struct Namespace {
    /// The common metadata.
    pub meta: Meta,
    /// `spec.finalizers`, which keep the namespace until its content is deleted. They are not `meta.finalizers`.
    pub spec_finalizers: Box<[Atom]>,
    /// The phase of the namespace.
    pub phase: NamespacePhase,
    /// All conditions in their order.
    pub conditions: Box<[Condition]>,
    /// `spec` as unchanged JSON, for the finalize subresource.
    pub spec: Option<Box<RawValue>>,
    raw_metadata: RawMetadata,
    status: Option<Box<RawValue>>,
}

impl Namespace {
    /// The status to write: this `phase` and these `conditions` in this order. All other content of the present status
    /// is kept, also unknown fields of a condition.
    ///
    /// # Errors
    /// Never for a status from a server. The JSON is parsed again.
    pub fn status_with(&self, phase: &NamespacePhase, conditions: &[Condition]) -> Result<Value, serde_json::Error> {
        let mut status: Map<String, Value> = match &self.status {
            Some(raw) => serde_json::from_str(raw.get())?,
            None => Map::new(),
        };
        let mut present: Vec<Value> = match status.remove("conditions") {
            Some(Value::Array(present)) => present,
            _ => Vec::new(),
        };
        let mut merged = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let previous = present.iter_mut().find(|it| it["type"] == *condition.type_).map(Value::take);
            merged.push(merge_condition(previous, condition)?);
        }
        status.insert("phase".to_owned(), phase.as_str().into());
        status.insert("conditions".to_owned(), merged.into());
        Ok(Value::Object(status))
    }
}

/// Adds to `condition` those fields of its present form that it does not have.
fn merge_condition(present: Option<Value>, condition: &impl Serialize) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(condition)?;
    if let (Some(Value::Object(present)), Value::Object(fields)) = (present, &mut value) {
        for (key, value) in present {
            fields.entry(key).or_insert(value);
        }
    }
    Ok(value)
}

impl Cached for Namespace {
    type Index = NoIndex;

    as_json!();

    fn meta(&self) -> MetaRef<'_> {
        self.meta.as_ref()
    }

    fn index(&self, _: &mut dyn FnMut(NoIndex)) {}
}

impl Typed for Namespace {
    fn resource() -> Resource {
        Resource::cluster("", "v1", "namespaces", "Namespace")
    }
}

impl StatusOwner for Namespace {
    fn raw_metadata(&self) -> &RawMetadata {
        &self.raw_metadata
    }
}

impl<'de> Deserialize<'de> for Namespace {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: RawMetadata,
            spec: Option<Box<RawValue>>,
            status: Option<Box<RawValue>>,
        }
        #[derive(Deserialize, Default)]
        struct WireSpec {
            finalizers: Option<Box<[Atom]>>,
        }
        #[derive(Deserialize, Default)]
        struct WireStatus {
            phase: Option<NamespacePhase>,
            conditions: Option<Box<[Condition]>>,
        }
        let Wire { metadata, spec, status } = Wire::deserialize(deserializer)?;
        let Metadata { meta, extra: () } = named("metadata", metadata.get()).map_err(serde::de::Error::custom)?;
        let WireSpec { finalizers } = part("spec", spec.as_deref())?;
        let WireStatus { phase, conditions } = part("status", status.as_deref())?;
        Ok(Self {
            meta,
            spec_finalizers: finalizers.unwrap_or_default(),
            phase: phase.unwrap_or_default(),
            conditions: conditions.unwrap_or_default(),
            spec,
            raw_metadata: metadata,
            status,
        })
    }
}

/// Decodes a part that is also kept unchanged.
fn part<T: DeserializeOwned + Default, E: serde::de::Error>(name: &str, raw: Option<&RawValue>) -> Result<T, E> {
    raw.map_or_else(|| Ok(T::default()), |raw| named(name, raw.get()).map_err(E::custom))
}

#[cfg(test)]
mod tests;
