use http::{Request, Uri, uri::PathAndQuery};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{ApiError, Body, BoxError, NotSent, Term, Transport, fence::MIN_TIMEOUT, pools::Unreachable};

/// Marks the create of an object, which gets a server-side timeout inside a term.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Create;

/// Checks the term. It is an extension of its request: in a pool a request may wait for a connection longer than the
/// term lasts, so the pool checks again before it sends.
#[derive(Debug, Clone)]
pub(crate) struct Fence {
    term: Term,
    /// The URI of a create, to which the server-side timeout is added.
    create: Option<Uri>,
}

/// Checks the term directly before the transport, once per attempt, and classifies the errors of the transport.
pub(super) fn fenced(transport: Transport, term: Option<Term>) -> Transport {
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
        let (transport, term) = (transport.clone(), term.clone());
        async move {
            if let Some(term) = term {
                let fence = Fence::of(term, &request);
                fence.check(&mut request)?;
                request.extensions_mut().insert(fence);
            }
            transport.oneshot(request).await.map_err(|err| BoxError::from(transport_error(err)))
        }
    }))
}

impl Fence {
    fn of(term: Term, request: &Request<Body>) -> Self {
        let create = request.extensions().get::<Create>().map(|_| request.uri().clone());
        Self { term, create }
    }

    /// Allows a write to start now, or refuses it. Sets the server-side timeout of a create to the time that remains
    /// now.
    pub(crate) fn check(&self, request: &mut Request<Body>) -> Result<(), ApiError> {
        if !self.term.may_start_write() {
            return Err(ApiError::NotSent(NotSent::TermEnded));
        }
        if let Some(uri) = self.create.as_ref().and_then(|it| uri_with_timeout(it, &self.term)) {
            *request.uri_mut() = uri;
        }
        Ok(())
    }
}

/// The URI of a create with a timeout: the server ends the request before another process can be the leader. `None` for
/// a term without end.
fn uri_with_timeout(create: &Uri, term: &Term) -> Option<Uri> {
    let timeout = term.server_timeout()?;
    let path = create.path_and_query().map_or("/", PathAndQuery::as_str);
    let separator = if path.contains('?') { '&' } else { '?' };
    // A valid path remains valid when digits are added.
    format!("{path}{separator}timeout={}s", timeout.max(MIN_TIMEOUT).as_secs()).parse().ok()
}

fn transport_error(err: BoxError) -> ApiError {
    match err.downcast::<ApiError>() {
        Ok(err) => *err,
        Err(err) => match err.downcast_ref::<Unreachable>() {
            Some(Unreachable(why)) => ApiError::NotSent(NotSent::Unreachable(why.clone())),
            None => ApiError::unknown(crate::error_chain(&*err)),
        },
    }
}
