use std::{fmt, hash::Hash, sync::Arc};

use crate::{DecodeError, Frame, Meta, MetaRef, Page, Resource};

/// A kind that an informer can cache: how to decode its objects, and what the store needs of each object.
pub trait Cached: Sized + Send + Sync + fmt::Debug + 'static {
    /// The indexes of the kind, as one enum, for example `Owner(Uid)`, `Node(Atom)`; [`NoIndex`] if it has none.
    type Index: Eq + Hash + Clone + fmt::Debug + Send + Sync + 'static;

    /// The media type to request for lists (`watch == false`) and watches.
    fn accept(watch: bool) -> &'static str;

    /// Decodes one watch frame, event type and object in one pass.
    fn decode_frame(bytes: &[u8]) -> Frame<Self>;

    /// Decodes one page of a list.
    ///
    /// # Errors
    /// If the bytes are not a list, or the metadata of an item does not decode.
    fn decode_page(bytes: &[u8]) -> Result<Page<Self>, DecodeError>;

    /// Decodes one object from the response of a GET.
    ///
    /// # Errors
    /// If it does not decode. The error names the field.
    fn decode_object(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// The metadata of the object.
    fn meta(&self) -> MetaRef<'_>;

    /// Calls `add` for each index entry of this object.
    fn index(&self, add: &mut dyn FnMut(Self::Index));

    /// Calls `add` for each index entry that can be computed from the metadata alone. An object that does not decode
    /// has only these entries, and a sync must not overlook it.
    fn index_meta(_meta: MetaRef<'_>, _add: &mut dyn FnMut(Self::Index)) {}
}

/// A kind whose resource is known at compile time.
pub trait Typed: Cached {
    /// The resource of the kind.
    fn resource() -> Resource;
}

/// The index type of kinds without an index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NoIndex {}

/// An object that exists but does not decode. A sync must not ignore it: the sync of its owner ends with an error that
/// names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreadable {
    /// The part that decoded.
    pub meta: Meta,
    /// The error of the decoder, which names the field.
    pub why: String,
}

/// The value of one key in a store.
#[derive(Debug)]
pub enum Entry<T> {
    /// The object.
    Readable(Arc<T>),
    /// An object of which only the metadata decoded.
    Unreadable(Arc<Unreadable>),
}

impl<T> Clone for Entry<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Readable(it) => Self::Readable(it.clone()),
            Self::Unreadable(it) => Self::Unreadable(it.clone()),
        }
    }
}

impl<T: Cached> Entry<T> {
    /// The metadata, which every entry has.
    #[must_use]
    pub fn meta(&self) -> MetaRef<'_> {
        match self {
            Self::Readable(it) => it.meta(),
            Self::Unreadable(it) => it.meta.as_ref(),
        }
    }

    /// The object, if it decoded.
    #[must_use]
    pub fn readable(&self) -> Option<&Arc<T>> {
        match self {
            Self::Readable(it) => Some(it),
            Self::Unreadable(_) => None,
        }
    }
}
