use http::{Request, Uri, uri::PathAndQuery};
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{ApiError, Body, BoxError, NotSent, Term, Transport, pools::Unreachable};

/// Marks the create of an object, which carries a server-side timeout inside a term.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Create;

/// Asks the term, last before the transport, once per attempt; and says what a transport's failure means.
pub(super) fn fenced(transport: Transport, term: Option<Term>) -> Transport {
    BoxCloneSyncService::new(tower::service_fn(move |mut request: Request<Body>| {
        let (transport, term) = (transport.clone(), term.clone());
        async move {
            if let Some(term) = &term {
                if !term.may_start_write() {
                    return Err(ApiError::NotSent(NotSent::TermOver).into());
                }
                if request.extensions().get::<Create>().is_some() {
                    limit(&mut request, term);
                }
            }
            transport.oneshot(request).await.map_err(|err| BoxError::from(meaning(err)))
        }
    }))
}

/// Lets the server give a create up before anybody else can lead.
fn limit(request: &mut Request<Body>, term: &Term) {
    let Some(rest) = term.server_timeout() else { return };
    let path = request.uri().path_and_query().map_or("/", PathAndQuery::as_str);
    let mark = if path.contains('?') { '&' } else { '?' };
    // A path that was valid stays valid with digits behind it.
    if let Ok(uri) = format!("{path}{mark}timeout={}s", rest.as_secs().max(1)).parse::<Uri>() {
        *request.uri_mut() = uri;
    }
}

fn meaning(err: BoxError) -> ApiError {
    match err.downcast::<ApiError>() {
        Ok(err) => *err,
        Err(err) => match err.downcast_ref::<Unreachable>() {
            Some(Unreachable(why)) => ApiError::NotSent(NotSent::Unreachable(why.clone())),
            None => ApiError::unknown(crate::error::chain(&*err)),
        },
    }
}
