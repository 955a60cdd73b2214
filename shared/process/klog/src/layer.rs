use tracing::{
    Event, Level, Subscriber,
    span::{Attributes, Id, Record},
};
use tracing_subscriber::{
    layer::{Context, Layer},
    registry::LookupSpan,
};

use crate::{
    Format,
    format::{Formatter, LineOrigin},
    stream::Stream,
    values::{FieldPair, Fields},
};

/// Formats events as lines, with the fields of the spans around them.
pub(crate) struct Lines {
    pub(crate) formatter: Formatter,
    /// `None`: all lines go to `errors`.
    pub(crate) infos: Option<Stream>,
    pub(crate) errors: Stream,
}

impl Lines {
    /// When streams are split, upstream's text logger writes only infos to stdout, and its JSON logger writes only
    /// errors to stderr.
    fn stream(&self, severity: Level) -> &Stream {
        let error = match self.formatter.format() {
            Format::Text => severity <= Level::WARN,
            Format::Json => severity == Level::ERROR,
        };
        match &self.infos {
            Some(infos) if !error => infos,
            _ => &self.errors,
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut context_fields: Vec<FieldPair> = Vec::new();
        for span in context.event_scope(event).into_iter().flat_map(|it| it.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                context_fields.extend_from_slice(&fields.pairs);
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = String::with_capacity(256);
        self.formatter.write(&mut line, LineOrigin::of(metadata), &context_fields, &fields.message, &fields.pairs);
        self.stream(*metadata.level()).push(&line);
    }
}
