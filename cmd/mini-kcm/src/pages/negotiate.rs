//! Content negotiation of `/flagz` and `/statusz`: text, unless the Accept header requests a structured form with all
//! its parameters.

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Json(ConfigApiVersion),
    Yaml(ConfigApiVersion),
}

/// The versions of the group `config.k8s.io`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigApiVersion {
    /// Still served, with a warning.
    V1Alpha1,
    V1Beta1,
}

impl ConfigApiVersion {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// The form that the Accept header prefers among the forms of `kind`; `None` when it accepts none.
pub(super) fn form(accept: &str, kind: &str) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Text);
    }
    let mut wanted: Vec<Clause<'_>> = accept.split(',').map(Clause::parse).filter(|it| it.quality > 0.0).collect();
    // The sort is stable: of two clauses with equal quality the first one wins.
    wanted.sort_by(|one, other| other.quality.total_cmp(&one.quality));
    wanted.iter().find_map(|it| it.form(kind))
}

/// One clause of an Accept header.
struct Clause<'a> {
    media: String,
    parameters: Vec<(String, &'a str)>,
    quality: f32,
}

impl<'a> Clause<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let pairs = parts.filter_map(|it| it.split_once('='));
        let parameters: Vec<_> =
            pairs.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'))).collect();
        let quality = parameters.iter().find(|(name, _)| name == "q").and_then(|(_, value)| value.parse().ok());
        // A quality that is not a number counts as 1.
        let quality = quality.filter(|it: &f32| it.is_finite()).unwrap_or(1.0);
        Self { media, parameters, quality }
    }

    fn form(&self, kind: &str) -> Option<Form> {
        match self.media.as_str() {
            "text/plain" | "text/*" | "*/*" => Some(Form::Text),
            "application/json" => self.api_version(kind).map(Form::Json),
            "application/yaml" => self.api_version(kind).map(Form::Yaml),
            _ => None,
        }
    }

    fn api_version(&self, kind: &str) -> Option<ConfigApiVersion> {
        let parameter = |name: &str| self.parameters.iter().find(|(it, _)| it == name).map(|(_, value)| *value);
        if parameter("g") != Some("config.k8s.io") || parameter("as") != Some(kind) {
            return None;
        }
        [ConfigApiVersion::V1Alpha1, ConfigApiVersion::V1Beta1].into_iter().find(|it| parameter("v") == Some(it.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_shell_029_forms_are_negotiated_like_upstream() {
        let json = Some(Form::Json(ConfigApiVersion::V1Beta1));
        for (accept, want) in [
            ("", Some(Form::Text)),
            ("*/*", Some(Form::Text)),
            ("text/html, text/plain;q=0.5", Some(Form::Text)),
            ("application/json", None),
            ("application/*", None),
            ("application/json, */*", Some(Form::Text)),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Statusz", json),
            ("application/json;as=Statusz;v=v1beta1;g=config.k8s.io, text/plain", json),
            ("text/plain, application/json;as=Statusz;v=v1beta1;g=config.k8s.io", Some(Form::Text)),
            ("text/plain;q=0.1, application/json;as=Statusz;v=v1beta1;g=config.k8s.io", json),
            ("application/yaml; V=v1beta1; G=config.k8s.io; As=Statusz", Some(Form::Yaml(ConfigApiVersion::V1Beta1))),
            ("application/json;v=v1alpha1;g=config.k8s.io;as=Statusz", Some(Form::Json(ConfigApiVersion::V1Alpha1))),
            ("application/json;v=v1;g=config.k8s.io;as=Statusz", None),
            ("application/json;v=v1beta1;g=config.k8s.io;as=Flagz", None),
            ("application/cbor;v=v1beta1;g=config.k8s.io;as=Statusz", None),
            ("text/plain;q=0", None),
            ("text/plain;q=nan", Some(Form::Text)),
            (";;,=,;q=", None),
        ] {
            assert_eq!(form(accept, "Statusz"), want, "{accept}");
        }
    }
}
