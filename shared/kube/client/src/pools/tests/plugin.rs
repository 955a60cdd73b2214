//! Exec plugins as real programs, run for connections on real sockets.

use std::{
    io::Write,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use tempfile::TempDir;
use tracing_subscriber::{Layer, filter::LevelFilter, layer::SubscriberExt};

use super::*;

const V1: &str = "client.authentication.k8s.io/v1";

/// A shell script as plugin. It records each run and writes the content of a file.
struct Script {
    folder: TempDir,
}

impl Script {
    fn new(status: &serde_json::Value) -> Self {
        let script = Self { folder: tempfile::tempdir().unwrap() };
        script.set_status(status);
        script
    }

    fn set_status(&self, status: &serde_json::Value) {
        let credential = json!({ "apiVersion": V1, "kind": "ExecCredential", "status": status });
        std::fs::write(self.file("output"), credential.to_string()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.file("runs")).unwrap_or_default().lines().count()
    }

    fn config(&self, server: &Server) -> kube::Config {
        let line = format!("echo run >> {0}/runs; cat {0}/output", self.folder.path().display());
        with_plugin(server, &json!({ "command": "sh", "args": ["-c", line] }))
    }
}

fn with_plugin(server: &Server, exec: &serde_json::Value) -> kube::Config {
    let mut exec = exec.clone();
    exec["apiVersion"] = V1.into();
    exec["interactiveMode"] = "Never".into();
    let mut config = config(server);
    config.auth_info = serde_json::from_value(json!({ "exec": exec })).unwrap();
    config
}

fn certificate(it: &Identity) -> serde_json::Value {
    json!({ "clientCertificateData": it.certificate.pem(), "clientKeyData": it.key.serialize_pem() })
}

/// The response contains the token and the connection of the request.
async fn echo_token(connection: usize, request: Received) -> Response<Incoming> {
    let token = request.headers().get(header::AUTHORIZATION).map_or("none", |it| it.to_str().unwrap());
    text_response(format!("{token} on {connection}"))
}

#[tokio::test]
async fn token_is_shared_until_it_expires_and_then_requested_once() {
    let server = Server::start(HTTP2, echo_token).await;
    let script = Script::new(&json!({ "token": "one", "expirationTimestamp": "1970-01-01T00:01:00Z" }));
    let manager = Manager::new(script.config(&server));
    assert_eq!(script.runs(), 0, "the plugin is not run before the first request");
    let (api, other) = (manager.api(), manager.api());
    let responses = tokio::join!(read(&api), read(&other), read(&api));
    assert_eq!(responses.0.unwrap(), "Bearer one on 0");
    assert!(responses.1.is_ok() && responses.2.is_ok());
    assert_eq!(script.runs(), 1);
    script.set_status(&json!({ "token": "two" }));
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "Bearer two on 0", "the connection stays");
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "Bearer two on 0");
    assert_eq!(script.runs(), 2, "without an expiration it is used until it is refused");
    let metrics = manager.metrics.encode();
    assert!(metrics.contains("rest_client_exec_plugin_call_total{call_status=\"no_error\",code=\"0\"} 2"), "{metrics}");
    assert!(metrics.contains("rest_client_exec_plugin_ttl_seconds inf"), "{metrics}");
}

#[tokio::test]
async fn slow_plugin_is_run_ahead_and_no_request_waits() {
    let server = Server::start(HTTP2, echo_token).await;
    let script = Script::new(&json!({ "token": "one", "expirationTimestamp": "1970-01-01T00:02:20Z" }));
    let gate = script.file("gate");
    std::fs::write(&gate, "").unwrap();
    let line = format!("echo run >> {0}/runs; cat {0}/gate; cat {0}/output", script.folder.path().display());
    let manager = Manager::new(with_plugin(&server, &json!({ "command": "sh", "args": ["-c", line] })));
    let api = manager.api();
    assert_eq!(read(&api).await.unwrap(), "Bearer one on 0");
    // From here it blocks until the test opens the gate.
    std::fs::remove_file(&gate).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&gate).status().unwrap().success());
    script.set_status(&json!({ "token": "two" }));
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "Bearer one on 0");
    assert_eq!(script.runs(), 1, "it does not expire soon");
    advance_a_minute().await;
    for _ in 0..10 {
        assert_eq!(read(&api).await.unwrap(), "Bearer one on 0", "no request waits");
    }
    tokio::task::spawn_blocking(move || std::fs::write(gate, "")).await.unwrap().unwrap();
    let renewed = async { while read(&api).await.unwrap() != "Bearer two on 0" {} };
    tokio::time::timeout(60 * SECOND, renewed).await.unwrap();
    assert_eq!(script.runs(), 2, "one run for all");
}

#[tokio::test]
async fn expired_credential_does_not_run_the_plugin_for_each_request() {
    let server = Server::start(HTTP2, echo_token).await;
    let script = Script::new(&json!({ "token": "old", "expirationTimestamp": "1969-12-31T00:00:00Z" }));
    let manager = Manager::new(script.config(&server));
    // The token is sent all the same, as in client-go, because the server's clock decides.
    let api = manager.api();
    for _ in 0..100 {
        assert_eq!(read(&api).await.unwrap(), "Bearer old on 0");
    }
    assert!(script.runs() < 50, "once a second, not for each: {}", script.runs());
    let before = script.runs();
    advance_a_minute().await;
    read(&api).await.unwrap();
    assert!(script.runs() > before);
}

#[tokio::test]
async fn refused_token_is_requested_again_and_the_request_retried() {
    let server = Server::start(HTTP2, |connection, request| async move {
        let mut response = echo_token(connection, request).await;
        let text = response.body_mut().collect().await.unwrap().to_bytes();
        let mut response = text_response(String::from_utf8(text.to_vec()).unwrap());
        if text.starts_with(b"Bearer revoked") {
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        }
        response
    })
    .await;
    let script = Script::new(&json!({ "token": "revoked" }));
    let manager = Manager::new(script.config(&server));
    let api = manager.api();
    assert!(matches!(read(&api).await, Err(ApiError::Refused(_))), "a new token is not replaced");
    assert_eq!(script.runs(), 1);
    script.set_status(&json!({ "token": "good" }));
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "Bearer good on 0");
    assert_eq!(script.runs(), 2);
}

#[tokio::test]
async fn new_certificate_retires_the_connections_of_the_old_one() {
    let server = Server::start(Options { clients: true, ..HTTP2 }, |connection, _| async move {
        let mut response = text_response(connection.to_string());
        if connection == 0 {
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        }
        response
    })
    .await;
    let (old, new) = (server.authority.issue("old"), server.authority.issue("new"));
    let script = Script::new(&certificate(&old));
    let manager = Manager::new(script.config(&server));
    let api = manager.api();
    assert!(matches!(read(&api).await, Err(ApiError::Refused(_))), "a new certificate is not replaced");
    script.set_status(&certificate(&new));
    advance_a_minute().await;
    assert_eq!(read(&api).await.unwrap(), "1", "the plugin is run again and the request is retried");
    let want = [old, new].map(|it| Some(it.certificate.der().to_vec()));
    assert_eq!(server.certificates(), want);
    let metrics = manager.metrics.encode();
    assert!(metrics.contains("rest_client_exec_plugin_certificate_rotation_age_count 1"), "{metrics}");
    assert!(!metrics.contains("rest_client_exec_plugin_ttl_seconds inf"), "{metrics}");
}

#[tokio::test]
async fn plugin_gets_its_environment_and_the_exec_info() {
    let server = Server::start(HTTP2, echo_token).await;
    let line = r#"printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s-%s"}}' "$WHO" "$(printf %s "$KUBERNETES_EXEC_INFO" | wc -c | tr -d ' ')""#;
    let exec = json!({ "command": "sh", "args": ["-c", line], "env": [{ "name": "WHO", "value": "me" }] });
    let manager = Manager::new(with_plugin(&server, &exec));
    let length =
        r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","spec":{"interactive":false}}"#
            .len();
    assert_eq!(read(&manager.api()).await.unwrap(), format!("Bearer me-{length} on 0"));
}

#[tokio::test]
async fn failures_name_the_command_and_are_counted() {
    let server = Server::start(HTTP2, echo_token).await;
    for (exec, words, series) in [
        (
            json!({ "command": "/no/such/plugin", "installHint": "get it there" }),
            ["/no/such/plugin", "cannot be started", "get it there"],
            "call_status=\"plugin_not_found_error\",code=\"1\"} 1",
        ),
        (
            json!({ "command": "sh", "args": ["-c", "exit 3"] }),
            ["exec plugin \"sh\"", "exit status: 3", ""],
            "call_status=\"plugin_execution_error\",code=\"3\"} 1",
        ),
        (
            json!({ "command": "echo", "args": ["CANARY"] }),
            ["exec plugin \"echo\"", "ExecCredential", ""],
            "call_status=\"no_error\",code=\"0\"} 1",
        ),
    ] {
        let manager = Manager::new(with_plugin(&server, &exec));
        let (api, other) = (manager.api(), manager.api());
        let (one, two) = tokio::join!(read(&api), read(&other));
        assert!(matches!(one, Err(ApiError::NotSent(NotSent::Unidentified(_)))), "{one:?}");
        let text = two.unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{word} in {text}");
        }
        assert!(!text.contains("CANARY"), "{text}");
        let metrics = manager.metrics.encode();
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
}

/// All log lines, of any level and any task.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_verbosity_shows_a_credential() {
    // In a separate process: tracing caches for the whole process whether a callsite is enabled, and with a single
    // subscriber it decides that in the thread that comes first, which may belong to a test without one.
    if std::env::var_os("ALONE").is_none() {
        let alone = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "pools::tests::plugin::no_verbosity_shows_a_credential"])
            .env("ALONE", "1")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&alone.stdout);
        return assert!(alone.status.success() && output.contains("ok. 1 passed"), "{output}");
    }
    let log = Log::default();
    let writer = log.clone();
    let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false);
    let _guard =
        tracing::subscriber::set_default(tracing_subscriber::registry().with(lines.with_filter(LevelFilter::TRACE)));
    static REQUESTS: AtomicUsize = AtomicUsize::new(0);
    let server = Server::start(Options { clients: true, ..HTTP2 }, |connection, _| async move {
        let mut response = text_response(connection.to_string());
        if REQUESTS.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
        }
        response
    })
    .await;
    let identity = server.authority.issue("me");
    let mut status = certificate(&identity);
    status["token"] = "CANARY-TOKEN".into();
    status["expirationTimestamp"] = "1970-01-01T00:02:00Z".into();
    let script = Script::new(&status);
    let manager = Manager::new(script.config(&server));
    let api = manager.api();
    for _ in 0..3 {
        let _ = read(&api).await;
        advance_a_minute().await;
    }
    std::fs::write(script.file("output"), "status: CANARY-TOKEN").unwrap();
    let _ = read(&api).await;
    let text = String::from_utf8_lossy(&log.0.lock()).into_owned();
    assert!(text.contains("exec plugin") && text.len() > 10_000, "too little is logged: {}", text.len());
    assert!(!text.contains("CANARY"), "{}", text.lines().find(|it| it.contains("CANARY")).unwrap());
    let key = identity.key.serialize_pem();
    let secret = key.lines().nth(1).unwrap();
    assert!(!text.contains(secret) && !text.contains("PRIVATE KEY"));
}
