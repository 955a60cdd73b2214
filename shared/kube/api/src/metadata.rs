//! `metadata` in the JSON of the API.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, MapAccess, Visitor},
};

use crate::{
    Atom, Meta, OwnerRef, Uid,
    json::{Key, next_or_default},
    shared::share,
    time::Seconds,
};

/// `metadata`: the fields of [`Meta`], and those that a kind needs in addition. All others are skipped, above all
/// `managedFields`.
pub(crate) struct Metadata<E = ()> {
    pub(crate) meta: Meta,
    pub(crate) extra: E,
}

/// The fields of `metadata` that a kind needs in addition to [`Meta`].
pub(crate) trait Extra: Default {
    /// Reads the value of `key`; returns false if the key is not used.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<bool, A::Error>;
}

impl Extra for () {
    fn take<'de, A: MapAccess<'de>>(&mut self, _: &str, _: &mut A) -> Result<bool, A::Error> {
        Ok(false)
    }
}

impl<'de, E: Extra> Deserialize<'de> for Metadata<E> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

struct Fields<E>(PhantomData<E>);

impl<'de, E: Extra> Visitor<'de> for Fields<E> {
    type Value = Metadata<E>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata<E>, A::Error> {
        let (mut meta, mut extra) = (Meta::default(), E::default());
        while let Some(Key(key)) = map.next_key()? {
            match key.as_ref() {
                "name" => meta.name = next_or_default(&mut map)?,
                "namespace" => meta.namespace = next_or_default(&mut map)?,
                "uid" => meta.uid = next_or_default(&mut map)?,
                "resourceVersion" => meta.version = next_or_default(&mut map)?,
                "ownerReferences" => {
                    let owners: Vec<WireOwner> = next_or_default(&mut map)?;
                    meta.owners = share(owners.into_iter().map(OwnerRef::from).collect());
                }
                "finalizers" => meta.finalizers = share::<Atom>(next_or_default(&mut map)?),
                "deletionTimestamp" => meta.deletion = map.next_value::<Option<Seconds>>()?.map(|it| it.0),
                other => {
                    if !extra.take(other, &mut map)? {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
            }
        }
        // Without a name the object has no key in the store.
        if meta.name.is_empty() { Err(A::Error::missing_field("name")) } else { Ok(Metadata { meta, extra }) }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner {
    api_version: Option<Atom>,
    kind: Option<Atom>,
    name: Option<Atom>,
    uid: Option<Uid>,
    controller: Option<bool>,
    block_owner_deletion: Option<bool>,
}

impl From<WireOwner> for OwnerRef {
    fn from(wire: WireOwner) -> Self {
        let WireOwner { api_version, kind, name, uid, controller, block_owner_deletion } = wire;
        Self {
            api_version: api_version.unwrap_or_default(),
            kind: kind.unwrap_or_default(),
            name: name.unwrap_or_default(),
            uid: uid.unwrap_or_default(),
            controller: controller.unwrap_or_default(),
            block_owner_deletion: block_owner_deletion.unwrap_or_default(),
        }
    }
}
