use std::{fmt, sync::Arc};

/// A debug page of one controller at `/debug/controllers/<its name>/`, served while the controller runs.
#[derive(Clone)]
pub struct Page {
    name: &'static str,
    render: Render,
}

type Render = Arc<dyn Fn(&Query) -> Result<PageContent, String> + Send + Sync>;

/// The content of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageContent {
    /// The media type of the text.
    pub content_type: &'static str,
    /// The text.
    pub text: String,
}

/// The query parameters of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Page {
    pub(crate) fn new(
        name: &'static str,
        render: impl Fn(&Query) -> Result<PageContent, String> + Send + Sync + 'static,
    ) -> Self {
        Self { name, render: Arc::new(render) }
    }

    /// The last part of its path.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Renders the page.
    ///
    /// # Errors
    /// If a query parameter is invalid.
    pub fn render(&self, query: &Query) -> Result<PageContent, String> {
        (self.render)(query)
    }
}

impl Query {
    /// Keys and values in the given order. Keys may repeat.
    #[must_use]
    pub fn new(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(pairs.into_iter().collect())
    }

    /// All values of a key.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(it, _)| it == key).map(|(_, value)| value.as_str())
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Page").field("name", &self.name).finish_non_exhaustive()
    }
}
