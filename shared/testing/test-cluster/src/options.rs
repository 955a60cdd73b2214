use serde_json::Value;

use crate::{Failure, decode::Strictness, response::Fault, rest::Query};

/// The options in the query of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct WriteOptions {
    /// Everything is checked and answered, but nothing is stored.
    pub(crate) dry_run: bool,
    pub(crate) strictness: Strictness,
}

/// The verbs whose options have a name in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Create,
    Update,
    /// Any patch except server-side apply.
    Patch,
}

impl WriteOptions {
    /// Parses the query of a write.
    ///
    /// # Errors
    /// 422 that names the options of the verb.
    pub(crate) fn parse(verb: Verb, query: &Query) -> Result<Self, Failure> {
        let mut faults = Vec::new();
        if verb == Verb::Patch && query.has("force") {
            faults.push(Fault::forbidden("force", "may not be specified for non-apply patch"));
        }
        let manager = query.get("fieldManager");
        if manager.len() > 128 {
            faults.push(Fault::too_long("fieldManager", 128));
        }
        if let Some((at, letter)) = manager.char_indices().find(|it| it.1.is_control()) {
            let why = format!("invalid character U+{:04X} (at position {at})", u32::from(letter));
            faults.push(Fault::invalid("fieldManager", &Value::from(manager), &why));
        }
        let dry_run = dry_run(&query.all("dryRun"), &mut faults);
        let strictness = match query.get("fieldValidation") {
            "" | "Warn" => Strictness::Warn,
            "Ignore" => Strictness::Ignore,
            "Strict" => Strictness::Strict,
            other => {
                faults.push(Fault::unsupported("fieldValidation", other, r#""", "Ignore", "Strict", "Warn""#));
                Strictness::Warn
            }
        };
        if faults.is_empty() {
            Ok(Self { dry_run, strictness })
        } else {
            Err(Failure::invalid_query(verb.options(), &faults))
        }
    }
}

/// True when `dryRun` is set. The only valid value is `All`.
pub(crate) fn dry_run(values: &[&str], faults: &mut Vec<Fault>) -> bool {
    if values.iter().any(|it| *it != "All") {
        faults.push(Fault::unsupported_list("dryRun", values, r#""All""#));
    }
    !values.is_empty()
}

impl Verb {
    fn options(self) -> &'static str {
        match self {
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
        }
    }
}
