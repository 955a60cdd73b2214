//! A small HTTP client for the cluster.

use std::time::Duration;

use bytes::Bytes;
use clock::{Clock, Timestamp};
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use test_cluster::{Options, ResponseBody, Service, TestCluster};
use tower::ServiceExt;

/// 2026-01-02T03:04:05Z
pub(crate) const EPOCH: i64 = 1_767_323_045;
pub(crate) const NOW: &str = "2026-01-02T03:04:05Z";
pub(crate) const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
pub(crate) const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

pub(crate) struct Server {
    pub(crate) cluster: TestCluster,
    pub(crate) clock: Clock,
    service: Service,
}

pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.text).unwrap_or_else(|err| panic!("{err}: {:?}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |it| it.to_str().unwrap())
    }

    /// Asserts the code and returns the body.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Value {
        assert_eq!(self.code, code, "{}", String::from_utf8_lossy(&self.text));
        self.json()
    }

    /// Asserts code, reason and a part of the message of a Status.
    #[track_caller]
    pub(crate) fn refused(self, code: u16, reason: &str, part: &str) -> Value {
        let body = self.expect(code);
        assert_eq!(body["reason"].as_str().unwrap_or_default(), reason, "{body}");
        assert!(body["message"].as_str().unwrap().contains(part), "{body}");
        body
    }
}

impl Server {
    pub(crate) fn new() -> Self {
        Self::with(Options::default())
    }

    pub(crate) fn with(options: Options) -> Self {
        let clock = Clock::virtual_from(Timestamp::from_second(EPOCH).unwrap());
        let cluster = TestCluster::with_options(clock.clone(), options);
        Self { service: cluster.service(), cluster, clock }
    }

    pub(crate) async fn try_send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<http::Response<ResponseBody>, test_cluster::BoxError> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.service.clone().oneshot(request.body(body.into().into()).unwrap()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Answer {
        let answer = self.try_send(method, path, headers, body).await.unwrap();
        let (head, body) = answer.into_parts();
        let text = body.collect().await.unwrap().to_bytes();
        Answer { code: head.status.as_u16(), headers: head.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Answer {
        self.send("GET", path, &[("accept", accept)], "").await
    }

    /// Posts an object with the required fields of its kind added.
    pub(crate) async fn make(&self, path: &str, mut body: Value) -> Answer {
        let pod = match path {
            PODS => &mut body["spec"],
            DEPLOYMENTS | JOBS => &mut body["spec"]["template"]["spec"],
            _ => return self.post(path, body).await,
        };
        if pod["containers"].is_null() {
            pod["containers"] = json!([{ "name": "c" }]);
        }
        for container in pod["containers"].as_array_mut().into_iter().flatten() {
            if container["image"].is_null() {
                container["image"] = json!("i");
            }
        }
        if path == JOBS {
            pod["restartPolicy"] = json!("Never");
        }
        if path == DEPLOYMENTS {
            body["spec"]["selector"] = json!({ "matchLabels": { "app": "a" } });
            body["spec"]["template"]["metadata"]["labels"]["app"] = json!("a");
        }
        self.post(path, body).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, &[], body.to_string()).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.send("PUT", path, &[], body.to_string()).await
    }

    pub(crate) async fn patch(&self, path: &str, language: &str, body: Value) -> Answer {
        let content_type = format!("application/{language}");
        self.send("PATCH", path, &[("content-type", &content_type)], body.to_string()).await
    }

    pub(crate) async fn smp(&self, path: &str, body: Value) -> Answer {
        self.patch(path, "strategic-merge-patch+json", body).await
    }

    pub(crate) async fn merge(&self, path: &str, body: Value) -> Answer {
        self.patch(path, "merge-patch+json", body).await
    }

    pub(crate) async fn delete(&self, path: &str, options: Value) -> Answer {
        let body = if options.is_null() { String::new() } else { options.to_string() };
        self.send("DELETE", path, &[], body).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let answer = self.try_send("GET", path, &[("accept", accept)], "").await.unwrap();
        assert_eq!(answer.status(), 200);
        Watch { body: answer.into_body(), rest: Vec::new() }
    }
}

pub(crate) struct Watch {
    body: ResponseBody,
    rest: Vec<u8>,
}

impl Watch {
    /// Type and object of the next event; `None` at the normal end.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        self.try_next().await.map(|it| it.unwrap())
    }

    pub(crate) async fn try_next(&mut self) -> Option<Result<(String, Value), test_cluster::BoxError>> {
        loop {
            if let Some(end) = self.rest.iter().position(|it| *it == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                return Some(Ok((event["type"].as_str().unwrap().to_owned(), event["object"].take())));
            }
            match self.body.frame().await? {
                Ok(frame) => self.rest.extend_from_slice(frame.data_ref().unwrap()),
                Err(err) => return Some(Err(err)),
            }
        }
    }

    /// `TYPE name` of each of the next events.
    pub(crate) async fn names(&mut self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let (word, object) = self.next().await.unwrap();
            names.push(format!("{word} {}", object["metadata"]["name"].as_str().unwrap_or("-")));
        }
        names
    }

    /// True when no event comes for a second.
    pub(crate) async fn is_silent(&mut self) -> bool {
        tokio::time::timeout(Duration::from_secs(1), self.next()).await.is_err()
    }
}

pub(crate) const MAPS: &str = "/api/v1/namespaces/default/configmaps";
pub(crate) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
pub(crate) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(crate) const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

pub(crate) fn map(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "namespace": "default" } })
}

pub(crate) fn pod(name: &str, node: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "namespace": "default" },
        "spec": { "containers": [{ "name": "c", "image": "i" }] },
    });
    if !node.is_empty() {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

pub(crate) fn names(list: &Value) -> Vec<&str> {
    list["items"].as_array().unwrap().iter().map(|it| it["metadata"]["name"].as_str().unwrap()).collect()
}

pub(crate) fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap()
}
