use std::collections::BTreeSet;

use client::{ACCOUNT_NAMESPACE, account_user};
use controller::Registration;
use serde_json::{Value, json};

use crate::config::Config;

/// The namespace of the built-in manager, and of the ConfigMap that the serving port reads.
const KUBE_SYSTEM: &str = "kube-system";
/// The Lease of the built-in manager.
const BUILT_IN_LEASE: &str = "kube-controller-manager";

/// One verb on one resource or path, needed by one identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// The identity that needs it.
    pub requester: Requester,
    /// The API group; empty for core.
    pub group: String,
    /// The plural name, followed by `/` and the subresource if there is one.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The object name; empty for all.
    pub name: String,
    /// The non-resource URL. Group to name are empty in this case. Empty for a resource.
    pub path: String,
    /// The verb of RBAC.
    pub verb: String,
    /// The controller that needs it, or the function of the manager.
    pub purpose: String,
    /// False when the manager works without it, but less well.
    pub needed: bool,
}

/// The identity that sends requests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requester {
    /// The user of `--kubeconfig`.
    Manager,
    /// The user of `--authentication-kubeconfig`.
    Authenticator,
    /// The user of `--authorization-kubeconfig`.
    Authorizer,
    /// The ServiceAccount with this name in kube-system.
    Account(String),
}

impl Requester {
    /// The identity that sends the access review. The manager sends it for a ServiceAccount, because a request by the
    /// account itself needs a token, and getting one would create a missing account.
    #[must_use]
    pub(super) fn review_sender(&self) -> Self {
        match self {
            Self::Account(_) => Self::Manager,
            other => other.clone(),
        }
    }

    /// A name for roles and messages.
    #[must_use]
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Manager => "kubeconfig",
            Self::Authenticator => "authentication-kubeconfig",
            Self::Authorizer => "authorization-kubeconfig",
            Self::Account(name) => name,
        }
    }
}

/// The result of an access review.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AccessReviewResult {
    /// Access is allowed.
    Granted,
    /// Access is denied.
    Denied,
    /// The server could not decide.
    Unknown(String),
}

/// Every permission that a manager with this configuration needs, sorted, without duplicates.
#[must_use]
pub(super) fn needed_permissions(config: &Config) -> Vec<Permission> {
    // Every term begins with a read of the server's health, and ends when it is refused.
    let mut permissions = BTreeSet::from([Permission::of_path(Requester::Manager, "/healthz", "the start of a term")]);
    for registration in config.controllers.implemented() {
        add_for_controller(config, registration, &mut permissions);
    }
    add_for_election(config, &mut permissions);
    add_for_interlock(config, &mut permissions);
    add_for_serving(config, &mut permissions);
    permissions.into_iter().collect()
}

fn add_for_election(config: &Config, permissions: &mut BTreeSet<Permission>) {
    let Some(election) = &config.election else { return };
    let lease = |verb: &str, name: &str, purpose: &str| Permission {
        namespace: election.namespace.clone(),
        name: name.to_owned(),
        ..Permission::of(Requester::Manager, ["coordination.k8s.io", "leases"], verb, purpose)
    };
    // RBAC cannot restrict a create by object name.
    permissions.insert(lease("create", "", "leader election"));
    permissions.extend(["get", "update"].map(|verb| lease(verb, &election.name, "leader election")));
    let optional = [
        lease("watch", &election.name, "a take-over as soon as the Lease is released"),
        lease("list", "", "the check for other managers"),
    ];
    permissions.extend(optional.map(|it| Permission { needed: false, ..it }));
    let event = |verb: &str| Permission {
        namespace: election.namespace.clone(),
        ..Permission::of(Requester::Manager, ["", "events"], verb, "events of leader election")
    };
    permissions.extend(["create", "patch"].map(event));
}

/// Without these rights the built-in manager cannot be seen, and its controllers are held back here.
fn add_for_interlock(config: &Config, permissions: &mut BTreeSet<Permission>) {
    if config.controllers.implemented().next().is_none() {
        return;
    }
    let read = |verb: &str, kind: [&str; 2], name: &str| Permission {
        namespace: KUBE_SYSTEM.to_owned(),
        name: name.to_owned(),
        needed: false,
        ..Permission::of(Requester::Manager, kind, verb, "the check for the built-in manager")
    };
    permissions.insert(read("list", ["", "pods"], ""));
    // Otherwise these are among the rights of the election.
    let leases = ["coordination.k8s.io", "leases"];
    let election = config.election.as_ref().filter(|it| it.namespace == KUBE_SYSTEM);
    if election.is_none() {
        permissions.insert(read("list", leases, ""));
    }
    if election.is_none_or(|it| it.name != BUILT_IN_LEASE) {
        permissions.insert(read("get", leases, BUILT_IN_LEASE));
    }
}

/// The reviews of the serving port, each with the identity of its flag.
fn add_for_serving(config: &Config, permissions: &mut BTreeSet<Permission>) {
    let Some(serving) = &config.serving else { return };
    let review = |requester: Requester, group: &str, resource: &str, purpose: &str| {
        Permission::of(requester, [group, resource], "create", purpose)
    };
    permissions.insert(review(
        Requester::Authenticator,
        "authentication.k8s.io",
        "tokenreviews",
        "the serving port for its clients' tokens",
    ));
    permissions.insert(review(
        Requester::Authorizer,
        "authorization.k8s.io",
        "subjectaccessreviews",
        "the serving port for its clients' rights",
    ));
    if serving.options.authentication.needs_lookup() {
        permissions.insert(Permission {
            namespace: KUBE_SYSTEM.to_owned(),
            name: "extension-apiserver-authentication".to_owned(),
            ..Permission::of(
                Requester::Authenticator,
                ["", "configmaps"],
                "get",
                "the serving port for its clients' certificates",
            )
        });
    }
}

fn add_for_controller(config: &Config, registration: &Registration, permissions: &mut BTreeSet<Permission>) {
    let account = config.identity.own_accounts.then_some(registration.service_account);
    let requester = account.map_or(Requester::Manager, |name| Requester::Account(name.to_owned()));
    permissions.extend(
        registration.profile.paths.iter().map(|path| Permission::of_path(requester.clone(), path, registration.name)),
    );
    let requesters = [(requester, registration.profile.requests), (Requester::Manager, registration.profile.watches)];
    for (requester, rights) in requesters {
        for right in rights {
            let of =
                |verb: &&str| Permission::of(requester.clone(), [right.group, right.resource], verb, registration.name);
            permissions.extend(right.verbs.iter().map(of));
        }
    }
    if let Some(account) = account {
        let identity = |verb: &str, resource: &str, name: &str| Permission {
            namespace: ACCOUNT_NAMESPACE.to_owned(),
            name: name.to_owned(),
            ..Permission::of(Requester::Manager, ["", resource], verb, "--use-service-account-credentials")
        };
        permissions.extend([
            identity("get", "serviceaccounts", account),
            identity("create", "serviceaccounts", ""),
            identity("create", "serviceaccounts/token", account),
        ]);
    }
}

impl Permission {
    /// A permission on all objects in all namespaces.
    fn of(requester: Requester, [group, resource]: [&str; 2], verb: &str, purpose: &str) -> Self {
        let [group, resource, verb, purpose] = [group, resource, verb, purpose].map(str::to_owned);
        let [namespace, name, path] = [const { String::new() }; 3];
        Self { requester, group, resource, namespace, name, path, verb, purpose, needed: true }
    }

    /// A permission to read this non-resource URL.
    fn of_path(requester: Requester, path: &str, purpose: &str) -> Self {
        Self { path: path.to_owned(), ..Self::of(requester, ["", ""], "get", purpose) }
    }

    /// The path and the body of the access review.
    #[must_use]
    pub(super) fn review_request(&self) -> (&'static str, Value) {
        let Self { requester, group, resource, namespace, name, path, verb, .. } = self;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut spec = if path.is_empty() {
            json!({ "resourceAttributes": {
                "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name, "verb": verb,
            } })
        } else {
            json!({ "nonResourceAttributes": { "path": path, "verb": verb } })
        };
        let (reviews, kind) = match requester {
            Requester::Account(account) => {
                spec["user"] = json!(account_user(account));
                let all = format!("system:serviceaccounts:{ACCOUNT_NAMESPACE}");
                spec["groups"] = json!(["system:serviceaccounts", all, "system:authenticated"]);
                ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview")
            }
            Requester::Manager | Requester::Authenticator | Requester::Authorizer => {
                ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "SelfSubjectAccessReview")
            }
        };
        (reviews, json!({ "apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec }))
    }

    /// A text for operators: `update namespaces/finalize`, `get /healthz`.
    #[must_use]
    pub fn text(&self) -> String {
        let Self { group, resource, namespace, name, path, verb, .. } = self;
        if !path.is_empty() {
            return format!("{verb} {path}");
        }
        let mut text = format!("{verb} {resource}");
        if !group.is_empty() {
            text.push_str(&format!(" of group {group}"));
        }
        if !name.is_empty() {
            text.push_str(&format!(" {name:?}"));
        }
        if !namespace.is_empty() {
            text.push_str(&format!(" in namespace {namespace}"));
        }
        text
    }
}

/// Parses the answer to an access review.
#[must_use]
pub(super) fn access(answer: &[u8]) -> AccessReviewResult {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let status = &answer["status"];
    match (status["allowed"].as_bool(), status["evaluationError"].as_str()) {
        (Some(true), _) => AccessReviewResult::Granted,
        (Some(false), None | Some("")) => AccessReviewResult::Denied,
        (_, Some(why)) => AccessReviewResult::Unknown(why.to_owned()),
        (None, None) => AccessReviewResult::Unknown("the answer to the review has no status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Invocation, parse};

    fn texts(args: &[&str]) -> Vec<String> {
        let Invocation::Run(typed) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("prints") };
        let config = Config::new(typed).unwrap();
        needed_permissions(&config).iter().map(|it| format!("{:?}: {}", it.requester, it.text())).collect()
    }

    #[test]
    fn needed_permissions_follow_from_the_flags() {
        let all = texts(&["--leader-elect-resource-name=l", "--leader-elect-resource-namespace=n"]);
        for line in [
            "Manager: watch leases of group coordination.k8s.io \"l\" in namespace n",
            "Manager: list leases of group coordination.k8s.io in namespace n",
            "Manager: list leases of group coordination.k8s.io in namespace kube-system",
            "Manager: get leases of group coordination.k8s.io \"kube-controller-manager\" in namespace kube-system",
            "Manager: list pods in namespace kube-system",
            "Authenticator: create tokenreviews of group authentication.k8s.io",
            "Authenticator: get configmaps \"extension-apiserver-authentication\" in namespace kube-system",
            "Authorizer: create subjectaccessreviews of group authorization.k8s.io",
            "Manager: create leases of group coordination.k8s.io in namespace n",
            "Manager: update leases of group coordination.k8s.io \"l\" in namespace n",
            "Manager: patch events in namespace n",
            "Manager: get /healthz",
            "Manager: get /api",
            "Manager: get /apis",
            "Manager: watch namespaces",
            "Manager: update namespaces/finalize",
            "Manager: deletecollection * of group *",
        ] {
            assert!(all.iter().any(|it| it == line), "{line} in {all:#?}");
        }
        assert!(!all.iter().any(|it| it.contains("serviceaccounts")));
        let own = texts(&["--use-service-account-credentials", "--leader-elect=false"]);
        for line in [
            "Manager: watch namespaces",
            "Manager: create serviceaccounts in namespace kube-system",
            "Manager: get serviceaccounts \"namespace-controller\" in namespace kube-system",
            "Manager: create serviceaccounts/token \"namespace-controller\" in namespace kube-system",
            "Account(\"namespace-controller\"): update namespaces/finalize",
            "Account(\"namespace-controller\"): get /api",
            "Account(\"namespace-controller\"): get /apis",
            "Manager: get /healthz",
        ] {
            assert!(own.iter().any(|it| it == line), "{line} in {own:#?}");
        }
        for others in ["Manager: update namespaces/finalize", "Manager: get /api"] {
            let is_election = |it: &str| it.contains("leases") && it.contains("in namespace");
            let is_interlock = |it: &str| {
                it.ends_with("list leases of group coordination.k8s.io in namespace kube-system")
                    || it.contains("get leases of group coordination.k8s.io \"kube-controller-manager\"")
            };
            let is_unwanted = |it: &&String| (is_election(it) && !is_interlock(it)) || *it == others;
            assert_eq!(own.iter().find(is_unwanted), None, "{others} in {own:#?}");
        }
        let nothing = ["--controllers=-namespace", "--leader-elect=false", "--secure-port=0"];
        assert_eq!(texts(&nothing), ["Manager: get /healthz"]);
        let (clients, proxies) = ("--client-ca-file=/ca.crt", "--requestheader-client-ca-file=/front-proxy-ca.crt");
        for (flags, asked) in [
            (&["--authentication-skip-lookup"][..], false),
            (&[clients, proxies][..], false),
            (&[clients][..], true),
            (&[proxies][..], true),
        ] {
            let all = texts(flags);
            assert_eq!(all.iter().any(|it| it.contains("configmaps")), asked, "{flags:?}: {all:#?}");
        }
    }

    #[test]
    fn list_and_watch_of_leases_and_the_list_of_pods_are_optional() {
        let Invocation::Run(typed) = parse(Vec::new()) else { panic!("prints") };
        let permissions = needed_permissions(&Config::new(typed).unwrap());
        let text = |it: &Permission| format!("{} {}", it.verb, it.resource);
        let optional: Vec<String> = permissions.iter().filter(|it| !it.needed).map(text).collect();
        assert_eq!(optional, ["list pods", "list leases", "watch leases"]);
    }

    #[test]
    fn only_a_denial_without_an_error_is_denied() {
        for (status, want) in [
            (json!({ "allowed": true }), AccessReviewResult::Granted),
            (json!({ "allowed": false, "reason": "" }), AccessReviewResult::Denied),
            (
                json!({ "allowed": false, "evaluationError": "webhook" }),
                AccessReviewResult::Unknown("webhook".to_owned()),
            ),
            (json!({ "allowed": true, "evaluationError": "one of two failed" }), AccessReviewResult::Granted),
        ] {
            assert_eq!(access(json!({ "status": status }).to_string().as_bytes()), want);
        }
        assert!(matches!(access(b"nonsense"), AccessReviewResult::Unknown(_)));
    }

    #[test]
    fn review_has_the_subresource_as_a_field() {
        let permission = Permission::of(Requester::Manager, ["", "namespaces/finalize"], "update", "");
        let (path, question) = permission.review_request();
        assert!(path.ends_with("/selfsubjectaccessreviews"), "{path}");
        let asked = &question["spec"]["resourceAttributes"];
        assert_eq!((&asked["resource"], &asked["subresource"]), (&json!("namespaces"), &json!("finalize")));
        assert_eq!(question["spec"]["user"], Value::Null);
    }

    #[test]
    fn review_of_a_path_has_no_resource() {
        let (_, question) = Permission::of_path(Requester::Manager, "/healthz", "").review_request();
        assert_eq!(question["spec"], json!({ "nonResourceAttributes": { "path": "/healthz", "verb": "get" } }));
    }

    #[test]
    fn manager_sends_the_review_for_a_service_account() {
        let permission = Permission::of(Requester::Account("a".to_owned()), ["", "pods"], "get", "");
        assert_eq!(permission.requester.review_sender(), Requester::Manager);
        let (path, question) = permission.review_request();
        assert!(path.ends_with("/subjectaccessreviews"), "{path}");
        assert_eq!(question["kind"], "SubjectAccessReview");
        assert_eq!(question["spec"]["user"], "system:serviceaccount:kube-system:a");
        assert!(question["spec"]["groups"].as_array().unwrap().contains(&json!("system:authenticated")));
    }
}
