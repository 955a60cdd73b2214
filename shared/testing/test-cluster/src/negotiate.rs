use serde_json::json;

use crate::{Failure, response::Form, table::TableOptions};

const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Chooses an element of an Accept header: highest `q` first, then in order. Only JSON is supported; elements with the
/// other media types are ignored.
///
/// # Errors
/// 406 when no element is supported.
pub(crate) fn negotiate(accept: &str, streams: bool) -> Result<Form, Failure> {
    if accept.trim().is_empty() {
        return Ok(Form::Full);
    }
    let mut elements: Vec<Element<'_>> = accept.split(',').filter_map(Element::read).collect();
    elements.sort_by(|a, b| b.quality.total_cmp(&a.quality));
    let mut type_matched = false;
    for element in elements.iter().filter(|it| it.is_json()) {
        type_matched = true;
        if let Some(form) = element.form() {
            return Ok(form);
        }
    }
    if type_matched {
        let message = format!("only the following media types are accepted: {MEDIA_TYPES}");
        return Err(Failure::new(406, "NotAcceptable", message, None));
    }
    let stream = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let stream = if streams { stream } else { "" };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}{stream}");
    Err(Failure::new(406, "NotAcceptable", message, Some(json!({}))))
}

/// One element of an Accept header.
struct Element<'a> {
    media_type: &'a str,
    quality: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Element<'a> {
    /// `None` for an invalid media type.
    fn read(text: &'a str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media_type = parts.next().filter(|it| it.contains('/'))?;
        let mut element = Self { media_type, quality: 1.0, parameters: Vec::new() };
        for (name, value) in parts.filter_map(|it| it.split_once('=')) {
            if name == "q" {
                element.quality = value.parse().unwrap_or(1.0);
            } else {
                element.parameters.push((name, value));
            }
        }
        Some(element)
    }

    fn is_json(&self) -> bool {
        matches!(self.media_type, "application/json" | "*/*")
    }

    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    /// The requested form; `None` when it is not supported.
    fn form(&self) -> Option<Form> {
        let Some(wanted) = self.parameter("as") else {
            // Group and version are valid only together with `as`.
            let asks = self.parameter("g").or(self.parameter("v")).is_some();
            return (!asks).then_some(Form::Full);
        };
        if self.parameter("g") != Some("meta.k8s.io") {
            return None;
        }
        match (wanted, self.parameter("v")?) {
            ("PartialObjectMetadata", "v1") => Some(Form::Metadata),
            ("PartialObjectMetadataList", "v1") => Some(Form::MetadataList),
            ("Table", version) => TableOptions::of_version(version).map(Form::Table),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_supported_media_type_is_used() {
        let partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
        for (accept, form) in [
            ("", Form::Full),
            ("*/*", Form::Full),
            ("text/html, application/json;q=0.5", Form::Full),
            (partial, Form::Metadata),
            (&format!("application/json;q=0.5, {partial}"), Form::Metadata),
            (&format!("{partial};q=0.1, application/json;q=0.2"), Form::Full),
            ("application/vnd.kubernetes.protobuf, application/json", Form::Full),
            ("application/json;as=Foo;v=v1;g=meta.k8s.io,application/json", Form::Full),
            ("application/json;charset=utf-8", Form::Full),
            ("application/json;stream=watch", Form::Full),
            ("application/json;q=x", Form::Full),
        ] {
            assert_eq!(negotiate(accept, false).ok(), Some(form), "{accept}");
        }
        for accept in [
            "application/*",
            "text/html",
            "json",
            ",",
            "application/yaml",
            "application/JSON",
            "application/json;as=Foo;v=v1;g=meta.k8s.io",
            "application/json;as=PartialObjectMetadata;v=v1",
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io",
            "application/json;v=v1;g=meta.k8s.io",
        ] {
            assert!(negotiate(accept, false).is_err(), "{accept}");
        }
    }
}
