use std::path::Path;

use anyhow::{Context, bail};
use futures::{AsyncBufReadExt, Stream, StreamExt, TryStreamExt, stream};
use http::{HeaderName, HeaderValue, Method, Request, header};
use http_body_util::BodyExt;
use kube::{
    Client, Config,
    client::Body,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE_PATCH: &str = "application/merge-patch+json";

/// A plain JSON client over HTTPS, for a scenario's own requests.
#[derive(Clone)]
pub struct Rest {
    client: Client,
}

/// A response with any status code.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status code.
    pub code: u16,
    /// The body as text.
    pub text: String,
}

impl Answer {
    /// The body as JSON; null if it is not JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or(Value::Null)
    }
}

impl Rest {
    /// A client with a kubeconfig.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub async fn from_kubeconfig(path: &Path) -> anyhow::Result<Self> {
        Self::from_config(config(path).await?)
    }

    /// A client for the same server without credentials.
    ///
    /// # Errors
    /// If the file cannot be used.
    pub async fn anonymous(path: &Path) -> anyhow::Result<Self> {
        let mut config = config(path).await?;
        config.auth_info = AuthInfo::default();
        Self::from_config(config)
    }

    /// A client without credentials for a loopback port whose certificate is not verified: a manager's own endpoints.
    ///
    /// # Errors
    /// If TLS cannot be set up.
    pub fn unverified(port: u16) -> anyhow::Result<Self> {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
        config.accept_invalid_certs = true;
        Self::from_config(config)
    }

    /// The same with the `user` of a kubeconfig.
    ///
    /// # Errors
    /// If TLS cannot be set up, or the user is invalid.
    pub fn unverified_as(port: u16, user: Value) -> anyhow::Result<Self> {
        Self::unverified_with_headers(port, user, &[])
    }

    /// The same with headers for every request: those in which a front proxy names its user.
    ///
    /// # Errors
    /// If TLS cannot be set up, the user is invalid, or a header is invalid.
    pub fn unverified_with_headers(port: u16, user: Value, headers: &[(&str, &str)]) -> anyhow::Result<Self> {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse()?);
        config.accept_invalid_certs = true;
        config.auth_info = serde_json::from_value(user)?;
        for (name, value) in headers {
            config.headers.push((HeaderName::try_from(*name)?, HeaderValue::try_from(*value)?));
        }
        Self::from_config(config)
    }

    /// A client for a loopback port without TLS.
    ///
    /// # Errors
    /// If the client cannot be set up.
    pub fn plain(port: u16) -> anyhow::Result<Self> {
        Self::from_config(Config::new(format!("http://127.0.0.1:{port}").parse()?))
    }

    fn from_config(mut config: Config) -> anyhow::Result<Self> {
        // A retried POST would look like a failure of the scenario.
        config.default_retry = false;
        Ok(Self { client: Client::try_from(config)? })
    }

    /// The underlying client, for requests with additional headers and for fake nodes.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends one request and returns the response.
    ///
    /// # Errors
    /// If there is no response.
    pub async fn send(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> anyhow::Result<Answer> {
        let mut request = Request::builder().method(method).uri(path);
        let bytes = match body {
            Some((media_type, value)) => {
                request = request.header(header::CONTENT_TYPE, media_type);
                serde_json::to_vec(value)?
            }
            None => Vec::new(),
        };
        let answer = self.client.send(request.body(Body::from(bytes))?).await?;
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok(Answer { code, text: String::from_utf8_lossy(&bytes).into_owned() })
    }

    /// Reads an object, or any other resource that exists.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.ok(Method::GET, path, None).await
    }

    /// Reads an object that may not exist.
    ///
    /// # Errors
    /// Unless the response is a success or 404.
    pub async fn find(&self, path: &str) -> anyhow::Result<Option<Value>> {
        let answer = self.send(Method::GET, path, None).await?;
        if answer.code == 404 {
            return Ok(None);
        }
        success(&Method::GET, path, answer).map(Some)
    }

    /// The items of a list.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn items(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        match self.get(path).await?["items"].take() {
            Value::Array(items) => Ok(items),
            other => bail!("{path} has no items but {other}"),
        }
    }

    /// Creates an object in the collection `path`.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn create(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.ok(Method::POST, path, Some((JSON, object))).await
    }

    /// Creates many objects, several at once.
    ///
    /// # Errors
    /// If one of them fails.
    pub async fn create_all(&self, objects: Vec<(String, Value)>) -> anyhow::Result<()> {
        let created = stream::iter(objects).map(anyhow::Ok).try_for_each_concurrent(16, async |(path, object)| {
            self.create(&path, &object).await?;
            Ok(())
        });
        created.await
    }

    /// Replaces an object.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn put(&self, path: &str, object: &Value) -> anyhow::Result<Value> {
        self.ok(Method::PUT, path, Some((JSON, object))).await
    }

    /// Merges a patch into an object.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn merge(&self, path: &str, patch: &Value) -> anyhow::Result<Value> {
        self.ok(Method::PATCH, path, Some((MERGE_PATCH, patch))).await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Value> {
        self.ok(Method::DELETE, path, None).await
    }

    /// Deletes an object without grace, as a kubelet does when the containers have ended.
    ///
    /// # Errors
    /// Unless the response is a success.
    pub async fn delete_now(&self, path: &str) -> anyhow::Result<Value> {
        let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0 });
        self.ok(Method::DELETE, path, Some((JSON, &options))).await
    }

    /// Watches `path`, which includes the query; each item is an event.
    ///
    /// # Errors
    /// If the watch is refused.
    pub async fn watch(&self, path: &str) -> anyhow::Result<impl Stream<Item = anyhow::Result<Value>> + Unpin + use<>> {
        let request = Request::builder().uri(path).body(Vec::new())?;
        let lines = self.client.request_stream(request).await?.lines();
        Ok(Box::pin(lines.map(|line| Ok(serde_json::from_str(&line?)?))))
    }

    async fn ok(&self, method: Method, path: &str, body: Option<(&str, &Value)>) -> anyhow::Result<Value> {
        let answer = self.send(method.clone(), path, body).await?;
        success(&method, path, answer)
    }
}

async fn config(path: &Path) -> anyhow::Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)
}

fn success(method: &Method, path: &str, answer: Answer) -> anyhow::Result<Value> {
    if !(200..300).contains(&answer.code) {
        bail!("{method} {path}: {} {}", answer.code, answer.text);
    }
    Ok(answer.json())
}
