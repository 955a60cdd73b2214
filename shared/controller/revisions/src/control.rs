use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use api::{ControllerRevision, Labels, Selector, Typed};
use client::{Api, ApiError, DeleteOptions, Patch};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use workload::{ObjectWriter, Owner};

use crate::{HASH_LABEL, REVISION_LABEL, is_same_data, revision_hash, revision_name};

/// A creation that collides this often is given up until the next sync, which continues with the stored counter.
const MAX_COLLISIONS: u32 = 20;

/// The attempts to change a number while other clients change the revision.
const ATTEMPTS: u32 = 4;

/// The pause between two of them, multiplied by the attempt number.
const PAUSE: Duration = Duration::from_millis(10);

/// Why a revision could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// A request failed.
    #[error("cannot {what} the revision {name}")]
    Request {
        /// What was tried.
        what: &'static str,
        /// The name of the revision.
        name: Box<str>,
        /// The error of the request.
        #[source]
        source: ApiError,
    },
    /// The names of other revisions are in use. The counter must be stored, and the next sync continues with it.
    #[error("no free name for a revision of {parent} after {MAX_COLLISIONS} collisions")]
    Collisions {
        /// The name of the workload.
        parent: Box<str>,
        /// The counter to store.
        collision_count: i32,
    },
    /// The data is no JSON.
    #[error("the data of the revision does not decode")]
    Data(#[source] serde_json::Error),
}

/// A revision to create.
#[derive(Debug, Clone)]
pub struct NewRevision<'a> {
    /// Its data.
    pub data: &'a str,
    /// Its number.
    pub revision: i64,
    /// The labels of the template. The label of the hash is added.
    pub labels: &'a Labels,
    /// The annotations of the workload that it keeps.
    pub annotations: BTreeMap<&'a str, &'a str>,
}

/// The label of a revision that has its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HashLabel {
    /// [`HASH_LABEL`]. It keeps the first hash, also when the name gets another one, as upstream.
    First,
    /// [`REVISION_LABEL`], with the hash in the name, because pods have this label too.
    OfName,
}

/// A stored revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its name.
    pub name: Box<str>,
    /// The hash in its name.
    pub hash: String,
    /// Its number. An existing revision keeps the one that it has.
    pub revision: i64,
    /// The counter of collisions, which the status of the workload must contain.
    pub collision_count: i32,
}

/// Writes the revisions of workloads.
#[derive(Clone)]
pub struct RevisionControl {
    writer: ObjectWriter,
    hash_label: HashLabel,
}

impl RevisionControl {
    /// Each stored creation and change is reported to this writer.
    #[must_use]
    pub fn new(writer: ObjectWriter, hash_label: HashLabel) -> Self {
        Self { writer, hash_label }
    }

    fn api(&self) -> &Api {
        self.writer.api()
    }

    /// Stores a revision, or finds the one with equal data (`realHistory.CreateControllerRevision`). If its name
    /// belongs to other data, the counter is incremented and the next name is tried.
    ///
    /// # Errors
    /// See [`RevisionError`].
    pub async fn create(
        &self,
        owner: &Owner,
        new: &NewRevision<'_>,
        mut collision_count: i32,
    ) -> Result<Stored, RevisionError> {
        let mut body = Body::new(owner, new)?;
        let first = revision_hash(new.data, Some(collision_count));
        for _ in 0..MAX_COLLISIONS {
            let hash = revision_hash(new.data, Some(collision_count));
            let name: Box<str> = revision_name(&owner.name, &hash).into();
            body.metadata["name"] = (*name).into();
            match self.hash_label {
                HashLabel::First => body.metadata["labels"][HASH_LABEL] = (*first).into(),
                HashLabel::OfName => body.metadata["labels"][REVISION_LABEL] = (*hash).into(),
            }
            match self.api().create(&ControllerRevision::resource(), &owner.namespace, &body).await {
                Ok(written) => {
                    self.writer.on_written(&owner.uid, &written.version);
                    return Ok(Stored { name, hash, revision: new.revision, collision_count });
                }
                Err(ApiError::AlreadyExists(_)) => {}
                Err(source) => return Err(RevisionError::Request { what: "create", name, source }),
            }
            let resource = ControllerRevision::resource();
            let existing = self.api().get::<ControllerRevision>(&resource, &owner.namespace, &name).await;
            let existing =
                existing.map_err(|source| RevisionError::Request { what: "read", name: name.clone(), source })?;
            if is_same_data(&existing.data, new.data) {
                return Ok(Stored { name, hash, revision: existing.revision, collision_count });
            }
            collision_count = collision_count.saturating_add(1);
        }
        Err(RevisionError::Collisions { parent: owner.name.clone(), collision_count })
    }

    /// Changes the number of a revision, if it has another one. Its uid is a precondition.
    ///
    /// # Errors
    /// See [`RevisionError`].
    pub async fn set_number(
        &self,
        owner: &Owner,
        revision: &ControllerRevision,
        number: i64,
    ) -> Result<(), RevisionError> {
        if revision.revision == number {
            return Ok(());
        }
        let patch = Patch::Merge(json!({ "metadata": { "uid": revision.meta.uid }, "revision": number }));
        let (namespace, name) = (&revision.meta.namespace, &revision.meta.name);
        for attempt in 1.. {
            match self.api().patch(&ControllerRevision::resource(), namespace, name, None, &patch).await {
                Ok(written) => {
                    self.writer.on_written(&owner.uid, &written.version);
                    break;
                }
                // The server repeats such a patch itself, and returns this after some conflicts.
                Err(ApiError::Conflict(_)) if attempt < ATTEMPTS => tokio::time::sleep(PAUSE * attempt).await,
                Err(source) => {
                    return Err(RevisionError::Request { what: "renumber", name: name.clone(), source });
                }
            }
        }
        Ok(())
    }

    /// Deletes a revision, with its uid as precondition.
    ///
    /// # Errors
    /// See [`RevisionError`]. A revision that is gone is no error.
    pub async fn delete(&self, revision: &ControllerRevision) -> Result<(), RevisionError> {
        let (namespace, name) = (&revision.meta.namespace, &revision.meta.name);
        let options = DeleteOptions { uid: Some(revision.meta.uid.clone()), ..DeleteOptions::default() };
        match self.api().delete(&ControllerRevision::resource(), namespace, name, &options).await {
            Err(err) if !workload::is_gone(&err, name) => {
                Err(RevisionError::Request { what: "delete", name: name.clone(), source: err })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RevisionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevisionControl").finish_non_exhaustive()
    }
}

/// The revisions of a workload among the candidates: those that it owns and those without a controller, as far as they
/// match its selector.
#[must_use]
pub fn of_owner(
    owner: &Owner,
    selector: &Selector,
    candidates: Vec<Arc<ControllerRevision>>,
) -> Vec<Arc<ControllerRevision>> {
    let is_ours = |it: &ControllerRevision| {
        let controller = it.meta.as_ref().controller();
        // Any user may write any uid into an object of another namespace.
        *it.meta.namespace == *owner.namespace && controller.is_none_or(|it| it.uid == owner.uid)
    };
    candidates.into_iter().filter(|it| is_ours(it) && selector.matches(&it.labels)).collect()
}

/// The request body of a creation.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Value,
    data: &'a RawValue,
    revision: i64,
}

impl<'a> Body<'a> {
    fn new(owner: &Owner, new: &NewRevision<'a>) -> Result<Self, RevisionError> {
        let NewRevision { data, revision, labels, annotations } = new;
        let all: BTreeMap<&str, &str> = labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        let mut metadata = json!({ "labels": all, "ownerReferences": [owner.controller_reference()] });
        if !annotations.is_empty() {
            metadata["annotations"] = json!(annotations);
        }
        let data = serde_json::from_str(data).map_err(RevisionError::Data)?;
        Ok(Self { api_version: "apps/v1", kind: "ControllerRevision", metadata, data, revision: *revision })
    }
}
