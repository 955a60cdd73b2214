use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use clock::{Clock, Instant};
use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::{client::ConfigExt, config::AuthInfo};
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tower::{
    Layer,
    util::{BoxCloneSyncService, MapRequest},
};

use super::bearer::{Authorize, bearer};
use crate::{Body, ConfigError, Transport, exec::Plugin};

/// The kubelet renews a projected token long before it expires.
const READ_INTERVAL: Duration = Duration::from_secs(60);
/// The interval after a failed read, because the file may just have been in renewal.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of warnings while a file cannot be read.
const WARN_INTERVAL: Duration = Duration::from_secs(60);

/// The identity of the configuration apart from a client certificate; `None` if there is none.
///
/// # Errors
/// When a token, header or plugin cannot be used.
pub(crate) fn authorize(
    config: &kube::Config,
    plugin: Option<Plugin>,
    clock: &Clock,
) -> Result<Option<Authorize>, ConfigError> {
    let identity = match plugin {
        Some(plugin) => Some(bearer(Arc::new(plugin))),
        None => own_identity(&config.auth_info, clock)?,
    };
    let has_headers = config.auth_info.impersonate.is_some() || !config.headers.is_empty();
    if !has_headers {
        return Ok(identity);
    }
    let headers = config.extra_headers_layer().map_err(|err| ConfigError::Credentials(Box::new(err)))?;
    Ok(Some(Arc::new(move |inner| {
        let inner: Transport = BoxCloneSyncService::new(headers.layer(inner));
        match &identity {
            Some(identity) => identity(inner),
            None => inner,
        }
    })))
}

/// The identity in the configuration itself: user and password, a token, or a token file.
///
/// The layer of kube is not used: it has the auth providers that client-go has removed, and they need a JSONPath and a
/// regex engine.
fn own_identity(user: &AuthInfo, clock: &Clock) -> Result<Option<Authorize>, ConfigError> {
    if let Some(provider) = &user.auth_provider {
        return Err(ConfigError::Provider(provider.name.clone()));
    }
    let static_header = match (&user.username, &user.password, &user.token) {
        (Some(name), Some(password), _) => {
            let both = format!("{name}:{}", password.expose_secret());
            return Ok(Some(with_fixed_header(header(format!("Basic {}", BASE64_STANDARD.encode(both)))?)));
        }
        (_, _, Some(token)) => Some(header(format!("Bearer {}", token.expose_secret()))?),
        (_, _, None) => None,
    };
    // The token is renewed in its file, so the file is used if both are set, as in client-go.
    Ok(match &user.token_file {
        Some(path) => Some(TokenFile::open(path.into(), static_header, clock.clone())?.into_authorize()),
        None => static_header.map(with_fixed_header),
    })
}

fn header(text: String) -> Result<HeaderValue, ConfigError> {
    let mut value = HeaderValue::try_from(text).map_err(|_| ConfigError::Unsendable)?;
    value.set_sensitive(true);
    Ok(value)
}

fn with_fixed_header(value: HeaderValue) -> Authorize {
    Arc::new(move |inner| {
        let value = value.clone();
        with_header(inner, move || value.clone())
    })
}

/// Adds an Authorization header to each request.
fn with_header(inner: Transport, value: impl Fn() -> HeaderValue + Clone + Send + Sync + 'static) -> Transport {
    BoxCloneSyncService::new(MapRequest::new(inner, move |mut request: Request<Body>| {
        request.headers_mut().insert(AUTHORIZATION, value());
        request
    }))
}

/// `<manager>/<name>`; upstream calls the name the component suffix.
pub(crate) fn user_agent(manager: &str, name: &str) -> HeaderValue {
    let text: String = format!("{manager}/{name}").chars().filter(|it| matches!(it, ' '..='~')).collect();
    // Visible ASCII is always a valid header value.
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("mini-kcm"))
}

/// A file with a bearer token. It is read again one minute after the last read. If it cannot be read, the last token is
/// used.
///
/// The implementation of kube is not used: it keeps the newline that `echo` writes, which is not allowed in a header.
struct TokenFile {
    path: PathBuf,
    clock: Clock,
    state: Mutex<TokenFileState>,
}

/// The header, and when the file is read next.
struct TokenFileState {
    header: HeaderValue,
    next_read: Instant,
    next_warning: Instant,
}

impl TokenFile {
    /// Sends `fallback` until the file has been read once.
    fn open(path: PathBuf, fallback: Option<HeaderValue>, clock: Clock) -> Result<Arc<Self>, ConfigError> {
        let now = clock.now();
        let (header, read_in) = match (read(&path), fallback) {
            (Ok(header), _) => (header, READ_INTERVAL),
            (Err(_), Some(header)) => (header, RETRY_INTERVAL),
            (Err(source), None) => return Err(ConfigError::TokenFile { path, source }),
        };
        let state = Mutex::new(TokenFileState { header, next_read: now + read_in, next_warning: now });
        Ok(Arc::new(Self { path, clock, state }))
    }

    fn into_authorize(self: Arc<Self>) -> Authorize {
        Arc::new(move |inner| {
            let file = self.clone();
            with_header(inner, move || file.value())
        })
    }

    fn value(&self) -> HeaderValue {
        let mut state = self.state.lock();
        if let Some(err) = state.refresh(&self.path, self.clock.now()) {
            tracing::warn!(%err, path = %self.path.display(), "Cannot read the token file: the last token is sent");
        }
        state.header.clone()
    }
}

impl TokenFileState {
    /// Reads the file if that is due. Returns an error that must be logged.
    fn refresh(&mut self, path: &Path, now: Instant) -> Option<io::Error> {
        if now < self.next_read {
            return None;
        }
        match read(path) {
            Ok(header) => {
                self.header = header;
                self.next_read = now + READ_INTERVAL;
                None
            }
            Err(err) => {
                self.next_read = now + RETRY_INTERVAL;
                let is_due = now >= self.next_warning;
                if is_due {
                    self.next_warning = now + WARN_INTERVAL;
                }
                is_due.then_some(err)
            }
        }
    }
}

/// An empty file contains no token (`fileTokenSource` in client-go).
fn read(path: &Path) -> io::Result<HeaderValue> {
    let text = std::fs::read_to_string(path)?;
    let token = text.trim();
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is empty"));
    }
    let invalid = |err| io::Error::new(io::ErrorKind::InvalidData, err);
    let mut value = HeaderValue::try_from(format!("Bearer {token}")).map_err(invalid)?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tower::ServiceExt;

    use super::*;

    /// The Authorization header that a request gets.
    async fn authorization_header(user: Value) -> Result<Option<String>, String> {
        let user: AuthInfo = serde_json::from_value(user).unwrap();
        let Some(authorize) = own_identity(&user, &Clock::system()).map_err(|err| err.to_string())? else {
            return Ok(None);
        };
        let received = Arc::<Mutex<Option<HeaderValue>>>::default();
        let recorded = received.clone();
        let server: Transport = BoxCloneSyncService::new(tower::service_fn(move |request: Request<Body>| {
            *recorded.lock() = request.headers().get(AUTHORIZATION).cloned();
            async { Err("received".into()) }
        }));
        let _ = authorize(server).oneshot(Request::new(Body::default())).await;
        let value = received.lock().take().unwrap();
        assert!(value.is_sensitive());
        Ok(Some(value.to_str().unwrap().to_owned()))
    }

    #[tokio::test]
    async fn credentials_of_the_configuration_are_sent() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "fresh\n").unwrap();
        let cases = [
            (json!({}), Ok(None)),
            (json!({ "username": "me" }), Ok(None)),
            (json!({ "username": "me", "password": "secret" }), Ok(Some("Basic bWU6c2VjcmV0"))),
            (json!({ "username": "me", "password": "secret", "token": "t" }), Ok(Some("Basic bWU6c2VjcmV0"))),
            (json!({ "token": "t" }), Ok(Some("Bearer t"))),
            (json!({ "tokenFile": file.path() }), Ok(Some("Bearer fresh"))),
        ];
        for (user, want) in cases {
            assert_eq!(authorization_header(user.clone()).await, want.map(|it| it.map(str::to_owned)), "{user}");
        }
        for (user, want) in [
            (json!({ "auth-provider": { "name": "gcp", "config": {} }, "token": "t" }), "user.auth-provider"),
            (json!({ "token": "a\nb" }), "cannot be sent"),
        ] {
            let refused = authorization_header(user.clone()).await.unwrap_err();
            assert!(refused.contains(want) && !refused.contains("a\nb"), "{refused}");
        }
    }

    #[tokio::test]
    async fn token_file_is_preferred_to_a_token_which_is_sent_while_the_file_has_none() {
        let [file, empty] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
        std::fs::write(file.path(), "fresh\n").unwrap();
        std::fs::write(empty.path(), " \n").unwrap();
        let nowhere = Path::new("/nowhere");
        for (path, want) in [(file.path(), "Bearer fresh"), (empty.path(), "Bearer old"), (nowhere, "Bearer old")] {
            assert_eq!(
                authorization_header(json!({ "token": "old", "tokenFile": path })).await,
                Ok(Some(want.to_owned())),
                "{path:?}"
            );
        }
        let refused = authorization_header(json!({ "tokenFile": empty.path() })).await.unwrap_err();
        assert!(refused.contains("empty"), "{refused}");
    }

    #[tokio::test(start_paused = true)]
    async fn token_file_is_read_again_a_second_after_a_failure_and_a_minute_after_a_success() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let fallback = header("Bearer old".to_owned()).unwrap();
        let file = TokenFile::open(path.clone(), Some(fallback), Clock::system()).unwrap();
        let sent = || file.value().to_str().unwrap().to_owned();
        for (name, after, content, want) in [
            ("the file is missing", 0, None, "Bearer old"),
            ("the file is written", 0, Some("one"), "Bearer old"),
            ("a second later", 1, None, "Bearer one"),
            ("it is renewed", 59, Some("two"), "Bearer one"),
            ("a minute later", 1, None, "Bearer two"),
            ("it is emptied", 0, Some("\n"), "Bearer two"),
            ("another minute later", 60, None, "Bearer two"),
            ("it is filled", 0, Some("three"), "Bearer two"),
            ("a second later", 1, None, "Bearer three"),
        ] {
            if let Some(content) = content {
                std::fs::write(&path, content).unwrap();
            }
            tokio::time::advance(Duration::from_secs(after)).await;
            assert_eq!(sent(), want, "{name}");
        }
    }

    #[test]
    fn missing_token_file_is_logged_once_a_minute() {
        let now = Clock::system().now();
        let header = HeaderValue::from_static("Bearer old");
        let mut state = TokenFileState { header, next_read: now, next_warning: now };
        let warnings =
            (0..180).filter(|it| state.refresh(Path::new("/nowhere"), now + Duration::from_secs(*it)).is_some());
        assert_eq!(warnings.count(), 3);
    }
}
