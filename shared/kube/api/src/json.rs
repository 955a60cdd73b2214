//! Decodes JSON for [`crate::Cached`].
//!
//! A field that is absent or `null` has its default. A field that is not used is skipped without an allocation. But a
//! field with the wrong type is an error and never the default.

mod error_path;

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use self::error_path::path_of;
use crate::{DecodeError, Event, Frame, Meta, Page, Version};

/// Decodes one watch frame.
pub(crate) fn frame<T: DeserializeOwned>(bytes: &[u8]) -> Frame<T> {
    match serde_json::from_slice(bytes) {
        Ok(OnePass(Some(frame))) => frame,
        Ok(OnePass(None)) | Err(_) => decode_by_parts(bytes),
    }
}

/// Decodes one page of a list. Only an item that does not decode is read a second time.
pub(crate) fn page<T: DeserializeOwned>(bytes: &[u8]) -> Result<Page<T>, DecodeError> {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct ListMeta {
        resource_version: Option<Version>,
        r#continue: Option<String>,
        remaining_item_count: Option<u64>,
    }
    #[derive(Deserialize)]
    #[serde(bound(deserialize = "T: DeserializeOwned"))]
    struct List<T> {
        metadata: Option<ListMeta>,
        // The key distinguishes a list from other objects. Go encodes an empty list as null.
        #[serde(deserialize_with = "some_items")]
        items: Items<T>,
    }
    fn some_items<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Items<T>, D::Error> {
        Ok(Option::deserialize(from)?.unwrap_or(Items(Vec::new())))
    }
    let list: List<T> = serde_json::from_slice(bytes).map_err(|err| reason(&err, bytes))?;
    let ListMeta { resource_version, r#continue, remaining_item_count } = list.metadata.unwrap_or_default();
    Ok(Page {
        items: list.items.0,
        version: resource_version.unwrap_or_default(),
        next: r#continue.unwrap_or_default(),
        remaining: remaining_item_count,
    })
}

/// Decodes one object.
pub(crate) fn object<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    serde_json::from_slice(bytes).map_err(|err| reason(&err, bytes))
}

/// Decodes `text`, the value of the field `name`. The path in an error begins with that name.
pub(crate) fn named<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|err| format!("{name}.{}", reason(&err, text.as_bytes()).0))
}

/// The part of [`crate::Cached`] that is the same for all kinds in JSON.
macro_rules! as_json {
    () => {
        fn accept(_: bool) -> &'static str {
            "application/json"
        }

        fn decode_frame(bytes: &[u8]) -> $crate::Frame<Self> {
            $crate::json::frame(bytes)
        }

        fn decode_page(bytes: &[u8]) -> Result<$crate::Page<Self>, $crate::DecodeError> {
            $crate::json::page(bytes)
        }

        fn decode_object(bytes: &[u8]) -> Result<Self, $crate::DecodeError> {
            $crate::json::object(bytes)
        }
    };
}

pub(crate) use as_json;

/// Decodes `null` as the default. With `#[serde(default)]` also an absent field.
pub(crate) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// The next value of a map. `null` is decoded as the default.
pub(crate) fn next_or_default<'de, A: MapAccess<'de>, T: Deserialize<'de> + Default>(
    map: &mut A,
) -> Result<T, A::Error> {
    Ok(map.next_value::<Option<T>>()?.unwrap_or_default())
}

/// A key of a map, borrowed if it contains no escapes.
pub(crate) struct Key<'de>(pub(crate) Cow<'de, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// A frame that is decoded in one pass; `None` if that is impossible because the object precedes its type.
struct OnePass<T>(Option<Frame<T>>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for OnePass<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for Fields<T> {
            type Value = OnePass<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a watch event")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OnePass<T>, A::Error> {
                let (mut frame_type, mut frame) = (None, None);
                while let Some(Key(key)) = map.next_key()? {
                    match (key.as_ref(), &frame_type) {
                        ("type", _) => frame_type = Some(map.next_value::<FrameType>()?),
                        ("object", Some(FrameType::Object(event))) => {
                            frame = Some(Frame::Object(*event, map.next_value()?))
                        }
                        ("object", Some(FrameType::Bookmark)) => frame = Some(map.next_value::<Bookmark>()?.into()),
                        ("object", Some(FrameType::Error)) => frame = Some(Frame::Error(map.next_value()?)),
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(OnePass(frame))
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// The slow path: finds the object first, then decodes as much of it as possible.
fn decode_by_parts<T: DeserializeOwned>(bytes: &[u8]) -> Frame<T> {
    #[derive(Deserialize)]
    struct Parts<'a> {
        r#type: FrameType,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let parts: Parts<'_> = match serde_json::from_slice(bytes) {
        Ok(parts) => parts,
        Err(err) => return Frame::Garbage(err.to_string()),
    };
    let object = parts.object.get();
    match parts.r#type {
        FrameType::Object(event) => match item(object) {
            Ok(Ok(object)) => Frame::Object(event, object),
            Ok(Err((meta, why))) => Frame::Unreadable(event, meta, why),
            Err(DecodeError(why)) => Frame::Garbage(why),
        },
        FrameType::Bookmark => self::object::<Bookmark>(object.as_bytes()).map_or_else(garbage, Frame::from),
        FrameType::Error => self::object(object.as_bytes()).map_or_else(garbage, Frame::Error),
    }
}

fn garbage<T>(err: DecodeError) -> Frame<T> {
    Frame::Garbage(err.0)
}

/// An object; if it does not decode, its metadata and the error.
fn item<T: DeserializeOwned>(text: &str) -> Result<Result<T, (Meta, String)>, DecodeError> {
    match serde_json::from_str(text) {
        Ok(object) => Ok(Ok(object)),
        Err(err) => Ok(Err((object(text.as_bytes())?, reason(&err, text.as_bytes()).0))),
    }
}

/// Why `bytes` do not decode, with the name of the field.
fn reason(err: &serde_json::Error, bytes: &[u8]) -> DecodeError {
    // An error about the whole document has no path.
    match path_of(err, bytes).as_str() {
        "" => DecodeError(err.to_string()),
        path => DecodeError(format!("{path}: {err}")),
    }
}

/// The event type of a watch frame.
#[derive(Clone, Copy)]
enum FrameType {
    Object(Event),
    Bookmark,
    Error,
}

impl<'de> Deserialize<'de> for FrameType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "UPPERCASE")]
        enum Word {
            Added,
            Modified,
            Deleted,
            Bookmark,
            Error,
        }
        Ok(match Word::deserialize(deserializer)? {
            Word::Added => Self::Object(Event::Added),
            Word::Modified => Self::Object(Event::Modified),
            Word::Deleted => Self::Object(Event::Deleted),
            Word::Bookmark => Self::Bookmark,
            Word::Error => Self::Error,
        })
    }
}

/// The object of a bookmark has a resourceVersion and, at the end of the initial events, one annotation.
#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: Version,
    #[serde(default, deserialize_with = "or_default")]
    annotations: BookmarkAnnotations,
}

#[derive(Deserialize, Default)]
struct BookmarkAnnotations {
    #[serde(default, rename = "k8s.io/initial-events-end", deserialize_with = "or_default")]
    initial_events_end: String,
}

impl<T> From<Bookmark> for Frame<T> {
    fn from(Bookmark { metadata }: Bookmark) -> Self {
        let initial_end = metadata.annotations.initial_events_end == "true";
        Self::Bookmark { version: metadata.resource_version, initial_end }
    }
}

/// The items of a list. Each item is first located and then decoded, so that one bad item does not affect the others.
struct Items<T>(Vec<Result<T, (Meta, String)>>);

impl<'de, T: DeserializeOwned> Deserialize<'de> for Items<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each<T>(PhantomData<T>);
        impl<'de, T: DeserializeOwned> Visitor<'de> for Each<T> {
            type Value = Items<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("items")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Items<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(raw) = items.next_element::<&RawValue>()? {
                    all.push(item(raw.get()).map_err(|err| serde::de::Error::custom(err.0))?);
                }
                Ok(Items(all))
            }
        }
        deserializer.deserialize_seq(Each(PhantomData))
    }
}

#[cfg(test)]
mod tests;
