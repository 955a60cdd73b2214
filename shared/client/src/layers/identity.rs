use std::{path::PathBuf, sync::Arc, time::Duration};

use clock::{Clock, Instant};
use http::{HeaderValue, Request, header};
use kube::client::ConfigExt;
use parking_lot::Mutex;
use tower::{
    Layer,
    util::{BoxCloneSyncService, MapRequest},
};

use super::bearer::bearer;
use crate::{Body, ConfigError, Transport, exec::Plugin};

/// Kubelets renew a projected token well before it expires.
const READ_AGAIN: Duration = Duration::from_secs(60);

/// Puts who we are on top of a transport.
pub(crate) type Authorize = Arc<dyn Fn(Transport) -> Transport + Send + Sync>;

/// Who the configuration says we are, beside a client certificate; `None` where it says nothing.
///
/// # Errors
/// When a token, header or plugin cannot be used.
pub(crate) fn authorize(
    config: &kube::Config,
    plugin: Option<Plugin>,
    clock: &Clock,
) -> Result<Option<Authorize>, ConfigError> {
    let failed = |err| ConfigError::Credentials(Box::new(err));
    let who = match &config.auth_info.token_file {
        _ if plugin.is_some() => plugin.map(|it| bearer(Arc::new(it))),
        Some(path) if config.auth_info.auth_provider.is_none() => {
            Some(TokenFile::open(path.into(), clock.clone())?.into_authorize())
        }
        _ => config
            .auth_layer()
            .map_err(failed)?
            .map(|layer| -> Authorize { Arc::new(move |inner| BoxCloneSyncService::new(layer.layer(inner))) }),
    };
    let for_others = config.auth_info.impersonate.is_some() || !config.headers.is_empty();
    if !for_others {
        return Ok(who);
    }
    let headers = config.extra_headers_layer().map_err(failed)?;
    Ok(Some(Arc::new(move |inner| {
        let inner: Transport = BoxCloneSyncService::new(headers.layer(inner));
        match &who {
            Some(who) => who(inner),
            None => inner,
        }
    })))
}

/// `<manager>/<name>`: what upstream calls the component suffix.
pub(crate) fn user_agent(manager: &str, name: &str) -> HeaderValue {
    let text: String = format!("{manager}/{name}").chars().filter(|it| matches!(it, ' '..='~')).collect();
    // Visible ASCII is always a valid value.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("mini-kcm"))
}

/// A bearer token in a file, read again at most once a minute; the last good one serves while the file cannot be read.
///
/// Not kube's: that one keeps the newline which `echo` leaves in a file, and no header may contain it.
struct TokenFile {
    path: PathBuf,
    clock: Clock,
    token: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    fn open(path: PathBuf, clock: Clock) -> Result<Arc<Self>, ConfigError> {
        let token = read(&path).map_err(|source| ConfigError::TokenFile { path: path.clone(), source })?;
        let token = Mutex::new((token, clock.now()));
        Ok(Arc::new(Self { path, clock, token }))
    }

    fn into_authorize(self: Arc<Self>) -> Authorize {
        Arc::new(move |inner| {
            let file = self.clone();
            BoxCloneSyncService::new(MapRequest::new(inner, move |mut request: Request<Body>| {
                request.headers_mut().insert(header::AUTHORIZATION, file.value());
                request
            }))
        })
    }

    fn value(&self) -> HeaderValue {
        let now = self.clock.now();
        let mut token = self.token.lock();
        if now.saturating_duration_since(token.1) >= READ_AGAIN {
            token.1 = now;
            match read(&self.path) {
                Ok(fresh) => token.0 = fresh,
                Err(err) => tracing::warn!(%err, path = %self.path.display(), "Cannot read the token file again"),
            }
        }
        token.0.clone()
    }
}

fn read(path: &std::path::Path) -> std::io::Result<HeaderValue> {
    let token = std::fs::read_to_string(path)?;
    let invalid = |err| std::io::Error::new(std::io::ErrorKind::InvalidData, err);
    let mut value = HeaderValue::try_from(format!("Bearer {}", token.trim())).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}
