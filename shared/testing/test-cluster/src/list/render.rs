//! Lists as bytes.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::Page;
use crate::{
    BoxError, ResponseBody,
    response::{self, Form, META_VERSION},
    stored::{self, Stored, head},
    write::Target,
};

/// Longer lists are sent in chunks of about this many bytes.
const CHUNK: usize = 256 * 1024;

/// Encodes a page, without holding the lock. If no conversion is needed, the stored bytes are sent.
pub(crate) fn render(target: &Target, page: Page, form: Form) -> Response<ResponseBody> {
    let kind = &target.kind;
    let plain = kind.custom || target.api_version == kind.api_version();
    let (list_kind, api_version, head) = match form {
        Form::Full if kind.custom => (&*kind.list_kind, &*target.api_version, head(&kind.kind, &target.api_version)),
        Form::Full if plain => (&*kind.list_kind, &*target.api_version, b"{".to_vec()),
        Form::MetadataList => ("PartialObjectMetadataList", META_VERSION, metadata_head()),
        _ => return response::list(kind, &target.api_version, &page.decode(), page.metadata, form),
    };
    let metadata = form == Form::MetadataList;
    let mut page = page;
    if kind.custom && !metadata {
        // A real server prints lists of unknown types like this too.
        page.metadata.entry("continue").or_insert_with(|| "".into());
    }
    let size: usize = page.items.iter().map(|it| head.len() + it.members().len() + 1).sum();
    let mut first = Vec::with_capacity(256 + size.min(CHUNK));
    first.extend_from_slice(&stored::head(list_kind, api_version));
    first.extend_from_slice(b"\"metadata\":");
    first.extend_from_slice(&response::encode(&page.metadata));
    first.extend_from_slice(b",\"items\":[");
    let mut items = Items { items: page.items.into_iter(), head, metadata, begun: false, ended: false };
    if size < CHUNK {
        items.fill(&mut first, usize::MAX);
        return response::respond(200, "application/json", first.into());
    }
    // A list of the whole cluster is sent in chunks, so that it is not in memory twice.
    let chunks = std::iter::once(Bytes::from(first)).chain(items);
    let frames = stream::iter(chunks.map(|it| Ok::<_, BoxError>(Frame::data(it))));
    response::respond_with(200, "application/json", StreamBody::new(frames).boxed_unsync())
}

/// The items of a list, encoded when they are needed.
struct Items {
    items: std::vec::IntoIter<Arc<Stored>>,
    /// The beginning of each item.
    head: Vec<u8>,
    /// Metadata only.
    metadata: bool,
    begun: bool,
    ended: bool,
}

impl Items {
    /// Appends items until there are `enough` bytes, and after the last item the end of the list.
    fn fill(&mut self, bytes: &mut Vec<u8>, enough: usize) {
        while bytes.len() < enough {
            let Some(item) = self.items.next() else {
                self.ended = true;
                bytes.extend_from_slice(b"]}");
                return;
            };
            if self.begun {
                bytes.push(b',');
            }
            self.begun = true;
            bytes.extend_from_slice(&self.head);
            if self.metadata {
                bytes.extend_from_slice(item.metadata());
                bytes.push(b'}');
            } else {
                bytes.extend_from_slice(item.members());
            }
        }
    }
}

impl Iterator for Items {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut bytes = Vec::with_capacity(CHUNK + CHUNK / 4);
        self.fill(&mut bytes, CHUNK);
        Some(bytes.into())
    }
}

/// The beginning of an object that has metadata only.
pub(crate) fn metadata_head() -> Vec<u8> {
    head("PartialObjectMetadata", META_VERSION)
}
