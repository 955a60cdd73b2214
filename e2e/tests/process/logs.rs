//! The manager's log: its format, the lines for operators, and secrets, which must never be in it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "scenarios are tests, called by the macro's")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use e2e::{Flavour, Identity, Launch, Manager, Options, Rest, Signal, eventually, namespaces};
use http::Method;
use serde_json::{Value, json};

use crate::support::{On, Server, on_both_servers};

/// The limit for everything that works without a fault.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// A token that an unknown client may send.
const UNKNOWN_USER: &str = "canary-of-a-stranger";
/// Every page about the manager itself.
const PAGES: &[&str] = &[
    "/metrics",
    "/metrics/slis",
    "/configz",
    "/flagz",
    "/statusz",
    "/version",
    "/healthz?verbose",
    "/livez?verbose",
    "/readyz?verbose",
    "/debug/controllers",
    "/debug/controllers/namespace-controller",
];

on_both_servers! {
    acceptance_shell_050_every_log_line_is_one_json_object
    acceptance_shell_027_verbosity_changes_at_run_time
    text_log_has_the_lines_that_operators_need
    no_log_line_and_no_page_contains_secrets_at_any_verbosity
}

/// Only the namespace controller with these flags; every page is allowed for all clients.
fn launch(server: &Server, flags: &[(&str, &str)]) -> Launch {
    let open = Launch::new(server, Flavour::Ours).unwrap().flag("authorization-always-allow-paths", "/*");
    flags.iter().fold(open, |launch, (name, value)| launch.flag(name, value))
}

/// Lets the manager empty and finalize a namespace.
async fn empty_namespace(server: &Server, name: &str) {
    let admin = server.admin().await.unwrap();
    namespaces::create(&admin, name).await.unwrap();
    namespaces::delete(&admin, name).await.unwrap();
    namespaces::wait_until_gone(&admin, name, TIME_LIMIT).await.unwrap();
}

/// Stops the manager and returns its whole log.
async fn stop(mut manager: Manager) -> String {
    manager.signal(Signal::TERM).unwrap();
    assert_eq!(manager.exit(TIME_LIMIT).await.unwrap(), Some(0));
    manager.log().unwrap()
}

/// Waits until the log contains a text.
async fn wait_for_line(manager: &Manager, words: &str) {
    let said = async || Ok(manager.log()?.contains(words).then_some(()));
    eventually(&format!("the log to say {words:?}"), TIME_LIMIT, said).await.unwrap();
}

async fn acceptance_shell_050_every_log_line_is_one_json_object(on: On) {
    let Some(server) = on.server("lines in JSON", Options::default()).await.unwrap() else { return };
    let manager = launch(&server, &[("logging-format", "json"), ("v", "2")]).started().await.unwrap();
    empty_namespace(&server, "logs-json").await;
    let log = stop(manager).await;
    let mut messages = Vec::new();
    for line in log.lines() {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|err| panic!("{line}: {err}"));
        for (key, right) in [
            ("ts", object["ts"].as_f64().is_some_and(|it| it > 1e12)),
            ("caller", object["caller"].as_str().is_some_and(|it| it.contains(".rs:"))),
            ("msg", object["msg"].is_string()),
            ("v", object["v"].as_u64().is_none_or(|it| it <= 2)),
        ] {
            assert!(right, "{key} in {line}");
        }
        messages.push(object);
    }
    let deleted = messages.iter().find(|it| it["msg"] == "Namespace has been deleted").expect(&log);
    assert_eq!(deleted["controller"], "namespace-controller", "{deleted}");
    assert_eq!(deleted["key"], "logs-json", "{deleted}");
    for wanted in
        ["Starting", "FLAG: --logging-format=\"json\"", "Controller starting...", "All controllers terminated"]
    {
        assert!(messages.iter().any(|it| it["msg"] == wanted), "{wanted} in {log}");
    }
}

async fn acceptance_shell_027_verbosity_changes_at_run_time(on: On) {
    let Some(server) = on.server("PUT to /debug/flags/v", Options::default()).await.unwrap() else { return };
    let manager = launch(&server, &[("v", "0")]).started().await.unwrap();
    let endpoints = manager.endpoints().unwrap();
    let put = async |level: u32| {
        let answer = endpoints.send(Method::PUT, "/debug/flags/v", Some(("text/plain", &json!(level)))).await.unwrap();
        assert_eq!((answer.code, answer.text.contains(&format!("to {level}"))), (200, true), "{}", answer.text);
    };
    let said = |key: &str| {
        manager
            .log()
            .unwrap()
            .matches(&format!("\"Finished syncing\" controller=\"namespace-controller\" key=\"{key}\""))
            .count()
    };
    empty_namespace(&server, "logs-quiet").await;
    // Asserted before the change, because the last sync of a namespace may end after the namespace is gone.
    assert_eq!(said("logs-quiet"), 0);
    put(4).await;
    empty_namespace(&server, "logs-loud").await;
    wait_for_line(&manager, "key=\"logs-loud\"").await;
    put(0).await;
    empty_namespace(&server, "logs-quiet-again").await;
    let words = endpoints.send(Method::PUT, "/debug/flags/v", Some(("text/plain", &json!("loud")))).await.unwrap();
    assert_eq!(words.code, 400, "{}", words.text);
    assert_eq!(said("logs-quiet-again"), 0);
    eventually("a line for the key", TIME_LIMIT, async || Ok((said("logs-loud") > 0).then_some(()))).await.unwrap();
    stop(manager).await;
}

async fn text_log_has_the_lines_that_operators_need(on: On) {
    let Some(server) = on.server("lines in text", Options::default()).await.unwrap() else { return };
    let manager = launch(&server, &[("v", "1")]).started().await.unwrap();
    empty_namespace(&server, "logs-text").await;
    // The namespace is removed a moment before this is logged.
    wait_for_line(&manager, "\"Namespace has been deleted\"").await;
    let pid = manager.pid();
    let log = stop(manager).await;
    for line in log.lines() {
        let (header, rest) = line.split_once("] ").expect(line);
        let parts: Vec<&str> = header.split_whitespace().collect();
        let right = header.starts_with(['I', 'W', 'E']) && parts.len() == 4 && parts[2] == pid.to_string();
        assert!(right && parts[3].contains(".rs:"), "{line}");
        assert!(rest.starts_with('"') || rest.starts_with("FLAG: --"), "{line}");
    }
    let mut from = 0;
    for wanted in [
        "FLAG: --controllers=\"[namespace-controller]\"",
        "FLAG: --v=\"1\"",
        "\"Starting\" version=\"v",
        "\"Attempting to acquire leader lease...\" lock=\"kube-system/e2e-",
        "\"Successfully acquired lease\" lock=\"kube-system/e2e-",
        "\"Controller starting...\" controller=\"namespace-controller\"",
        "\"Namespace has been deleted\" controller=\"namespace-controller\" key=\"logs-text\"",
        "\"Received a stop signal\"",
        "\"All controllers terminated\"",
        "\"Stopped in order\"",
    ] {
        let at = log[from..].find(wanted);
        from += at.unwrap_or_else(|| panic!("{wanted} in its place in {log}"));
    }
    // The error that ends the process is the last line.
    let mut fails =
        launch(&server, &[("v", "10"), ("bind-address", "127.0.0.1"), ("kubeconfig", "/nowhere")]).start().unwrap();
    assert_eq!(fails.exit(TIME_LIMIT).await.unwrap(), Some(1));
    let log = fails.log().unwrap();
    let last = log.lines().last().unwrap_or_default();
    assert!(last.starts_with('E') && last.contains("\"command failed\" err=") && last.contains("/nowhere"), "{log}");
}

/// One kind of credentials: the fields of a kubeconfig's user, and which of them are secret.
struct Credentials {
    name: &'static str,
    user: Value,
    secrets: Vec<String>,
}

fn credentials(server: &Server) -> Vec<Credentials> {
    let token = Identity::Admin.token();
    let token_file = server.folder().join("logs-token");
    fs::write(&token_file, &token).unwrap();
    let plugin = plugin(server.folder(), &token);
    let key = server.certificate("controller-manager.key");
    let pem = fs::read_to_string(&key).unwrap();
    // A line of the key's body is enough to find the key.
    let body = pem.lines().nth(1).unwrap().to_owned();
    vec![
        Credentials { name: "token", user: json!({ "token": token }), secrets: vec![token.clone()] },
        Credentials { name: "token-file", user: json!({ "tokenFile": token_file }), secrets: vec![token.clone()] },
        Credentials {
            name: "exec",
            user: json!({ "exec": {
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": plugin,
                "args": ["canary-of-an-argument"],
                "env": [{ "name": "SECRET", "value": "canary-of-an-environment" }],
                "interactiveMode": "Never",
            }}),
            secrets: vec![token, "canary-of-an-argument".to_owned(), "canary-of-an-environment".to_owned()],
        },
        Credentials {
            name: "client-key",
            user: json!({ "client-certificate": server.certificate("controller-manager.crt"), "client-key": key }),
            secrets: vec![body],
        },
        Credentials {
            name: "refused",
            user: json!({ "token": "canary-that-is-refused" }),
            secrets: vec!["canary-that-is-refused".to_owned()],
        },
    ]
}

/// An exec plugin that returns a token.
fn plugin(folder: &Path, token: &str) -> PathBuf {
    let path = folder.join("logs-plugin");
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": token },
    });
    fs::write(&path, format!("#!/bin/sh\ncat <<'END'\n{credential}\nEND\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// A kubeconfig with these credentials, based on the admin's.
fn kubeconfig(server: &Server, credentials: &Credentials) -> PathBuf {
    let admin = fs::read(server.kubeconfig(Identity::Admin).unwrap()).unwrap();
    let mut config: Value = serde_json::from_slice(&admin).unwrap();
    config["users"][0]["user"] = credentials.user.clone();
    let path = server.folder().join(format!("logs-{}.kubeconfig", credentials.name));
    fs::write(&path, config.to_string()).unwrap();
    path
}

async fn no_log_line_and_no_page_contains_secrets_at_any_verbosity(on: On) {
    let Some(server) = on.server("secrets in the log", Options::default()).await.unwrap() else { return };
    for credentials in credentials(&server) {
        let config = kubeconfig(&server, &credentials).display().to_string();
        for format in ["text", "json"] {
            let flags = [
                ("kubeconfig", &*config),
                ("authentication-kubeconfig", &*config),
                ("authentication-tolerate-lookup-failure", "true"),
                ("logging-format", format),
                ("v", "10"),
                ("leader-elect", "false"),
            ];
            let refused = credentials.name == "refused" && matches!(server, Server::Real(_));
            let mut manager = launch(&server, &flags).start().unwrap();
            if refused {
                wait_for_line(&manager, "401 Unauthorized").await;
            } else {
                manager.wait_until_healthy().await.unwrap();
                // The client certificate's user may not delete content of a namespace, and need not.
                if credentials.name == "client-key" {
                    wait_for_line(&manager, "Response").await
                } else {
                    empty_namespace(&server, &format!("logs-{}-{format}", credentials.name)).await
                }
            }
            let mut told = if refused { String::new() } else { pages(manager.port()).await };
            manager.signal(Signal::TERM).unwrap();
            manager.exit(TIME_LIMIT).await.unwrap();
            let log = manager.log().unwrap();
            assert!(
                log.contains("Response") && log.contains("FLAG: --kubeconfig="),
                "it has logged at the highest verbosity: {log}"
            );
            told += &log;
            for secret in credentials.secrets.iter().map(String::as_str).chain([UNKNOWN_USER]) {
                let line = told.lines().find(|it| it.contains(secret));
                assert_eq!(line, None, "{} in {format} contains {secret}", credentials.name);
            }
        }
    }
}

/// All pages for any client, and the responses for an unknown client, whose token is a secret too and may be refused.
async fn pages(port: u16) -> String {
    let stranger = Rest::unverified_as(port, json!({ "token": UNKNOWN_USER })).unwrap();
    let anybody = Rest::unverified(port).unwrap();
    let mut told = String::new();
    for page in PAGES {
        told += &stranger.send(Method::GET, page, None).await.unwrap().text;
        // An empty page would contain no secret either. Some pages exist only while controllers run.
        let shown = eventually(page, TIME_LIMIT, async || {
            let answer = anybody.send(Method::GET, page, None).await?;
            anyhow::ensure!(answer.code == 200 && !answer.text.is_empty(), "{} {}", answer.code, answer.text);
            Ok(Some(answer.text))
        });
        told += &shown.await.unwrap();
    }
    told
}
