use std::{fmt, hash::Hash, sync::Arc};

use crate::{DecodeError, Frame, Meta, MetaRef, Page, Resource};

/// A kind that an informer can hold: the door from bytes to objects, and what the store asks of each.
pub trait Cached: Sized + Send + Sync + fmt::Debug + 'static {
    /// The indexes that the kind declares, as one enum: `Owner(Uid)`, `Node(Atom)`; use [`NoIndex`] where there are none.
    type Index: Eq + Hash + Clone + fmt::Debug + Send + Sync + 'static;

    /// The media type asked of the server for lists (`watch == false`) and watches.
    fn accept(watch: bool) -> &'static str;

    /// Decodes one watch frame, event type and object in one pass.
    fn decode_frame(bytes: &[u8]) -> Frame<Self>;

    /// Decodes one page of a list.
    ///
    /// # Errors
    /// If the bytes are no list, or an item's metadata does not decode.
    fn decode_page(bytes: &[u8]) -> Result<Page<Self>, DecodeError>;

    /// Decodes one object, as a GET answers it.
    ///
    /// # Errors
    /// If it does not decode; the message names the field.
    fn decode_object(bytes: &[u8]) -> Result<Self, DecodeError>;

    /// What every object has.
    fn meta(&self) -> MetaRef<'_>;

    /// Calls `add` for each index entry of this object.
    fn index(&self, add: &mut dyn FnMut(Self::Index));

    /// Calls `add` for each index entry that metadata alone tell: where an object is found that does not decode, so that
    /// nobody overlooks it. Other entries it does not have.
    fn index_meta(_meta: MetaRef<'_>, _add: &mut dyn FnMut(Self::Index)) {}
}

/// A kind whose resource is known at compile time.
pub trait Typed: Cached {
    /// Where it is served.
    fn resource() -> Resource;
}

/// For kinds without an index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NoIndex {}

/// An object that is there but does not decode. No sync may overlook it: its owner's sync ends in an error naming it.
#[derive(Debug, Clone, PartialEq)]
pub struct Unreadable {
    /// What could be read.
    pub meta: Meta,
    /// The decoder's words, naming the field.
    pub why: String,
}

/// What a store holds under one key.
#[derive(Debug)]
pub enum Entry<T> {
    /// The object.
    Readable(Arc<T>),
    /// Only its metadata.
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
    /// Metadata, which is always there.
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
