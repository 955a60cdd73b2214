use std::collections::BTreeSet;

use client::{ACCOUNT_NAMESPACE, account_user};
use serde_json::{Value, json};

use crate::{config::Config, controllers::Known};

/// The namespace of the ConfigMap that the serving port reads.
const KUBE_SYSTEM: &str = "kube-system";

/// One verb on one resource or path, needed by one identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// The identity that needs it.
    pub who: Who,
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
pub enum Who {
    /// The user of `--kubeconfig`.
    Manager,
    /// The user of `--authentication-kubeconfig`.
    Authenticator,
    /// The user of `--authorization-kubeconfig`.
    Authorizer,
    /// The ServiceAccount with this name in kube-system.
    Account(String),
}

impl Who {
    /// The identity that sends the access review. The manager sends it for a ServiceAccount, because a request by the
    /// account itself needs a token, and getting one would create a missing account.
    #[must_use]
    pub(super) fn asker(&self) -> Self {
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
pub(super) enum Access {
    /// Access is allowed.
    Granted,
    /// Access is denied.
    Denied,
    /// The server could not decide.
    Unknown(String),
}

/// Every permission that a manager with this configuration needs, sorted, without duplicates.
#[must_use]
pub(super) fn wanted(config: &Config) -> Vec<Wanted> {
    // Every term begins with a read of the server's health, and ends when it is refused.
    let mut wanted = BTreeSet::from([Wanted::of_path(Who::Manager, "/healthz", "the start of a term")]);
    for (known, _) in config.controllers.ours() {
        of_controller(config, known, &mut wanted);
    }
    of_election(config, &mut wanted);
    of_serving(config, &mut wanted);
    wanted.into_iter().collect()
}

fn of_election(config: &Config, wanted: &mut BTreeSet<Wanted>) {
    let Some(election) = &config.election else { return };
    let lease = |verb: &str, name: &str, purpose: &str| Wanted {
        namespace: election.namespace.clone(),
        name: name.to_owned(),
        ..Wanted::of(Who::Manager, ["coordination.k8s.io", "leases"], verb, purpose)
    };
    // RBAC cannot restrict a create by object name.
    wanted.insert(lease("create", "", "leader election"));
    wanted.extend(["get", "update"].map(|verb| lease(verb, &election.name, "leader election")));
    let better = [
        lease("watch", &election.name, "a take-over as soon as the Lease is released"),
        lease("list", "", "the look for other managers"),
    ];
    wanted.extend(better.map(|it| Wanted { needed: false, ..it }));
    let event = |verb: &str| Wanted {
        namespace: election.namespace.clone(),
        ..Wanted::of(Who::Manager, ["", "events"], verb, "events of leader election")
    };
    wanted.extend(["create", "patch"].map(event));
}

/// The reviews of the serving port, each with the identity of its flag.
fn of_serving(config: &Config, wanted: &mut BTreeSet<Wanted>) {
    let Some(serving) = &config.serving else { return };
    let review =
        |who: Who, group: &str, resource: &str, purpose: &str| Wanted::of(who, [group, resource], "create", purpose);
    wanted.insert(review(
        Who::Authenticator,
        "authentication.k8s.io",
        "tokenreviews",
        "the serving port for its clients' tokens",
    ));
    wanted.insert(review(
        Who::Authorizer,
        "authorization.k8s.io",
        "subjectaccessreviews",
        "the serving port for its clients' rights",
    ));
    if serving.options.authentication.needs_lookup() {
        wanted.insert(Wanted {
            namespace: KUBE_SYSTEM.to_owned(),
            name: "extension-apiserver-authentication".to_owned(),
            ..Wanted::of(
                Who::Authenticator,
                ["", "configmaps"],
                "get",
                "the serving port for its clients' certificates",
            )
        });
    }
}

fn of_controller(config: &Config, known: &Known, wanted: &mut BTreeSet<Wanted>) {
    let account = known.identity().filter(|_| config.identity.own_accounts);
    let who = account.map_or(Who::Manager, |name| Who::Account(name.to_owned()));
    wanted.extend(known.profile.paths.iter().map(|path| Wanted::of_path(who.clone(), path, known.name)));
    let sides = [(who, known.profile.requests), (Who::Manager, known.profile.watches)];
    for (who, rights) in sides {
        for right in rights {
            let of = |verb: &&str| Wanted::of(who.clone(), [right.group, right.resource], verb, known.name);
            wanted.extend(right.verbs.iter().map(of));
        }
    }
    if let Some(account) = account {
        let identity = |verb: &str, resource: &str, name: &str| Wanted {
            namespace: ACCOUNT_NAMESPACE.to_owned(),
            name: name.to_owned(),
            ..Wanted::of(Who::Manager, ["", resource], verb, "--use-service-account-credentials")
        };
        wanted.extend([
            identity("get", "serviceaccounts", account),
            identity("create", "serviceaccounts", ""),
            identity("create", "serviceaccounts/token", account),
        ]);
    }
}

impl Wanted {
    /// A permission on all objects in all namespaces.
    fn of(who: Who, [group, resource]: [&str; 2], verb: &str, purpose: &str) -> Self {
        let [group, resource, verb, purpose] = [group, resource, verb, purpose].map(str::to_owned);
        let [namespace, name, path] = [const { String::new() }; 3];
        Self { who, group, resource, namespace, name, path, verb, purpose, needed: true }
    }

    /// A permission to read this non-resource URL.
    fn of_path(who: Who, path: &str, purpose: &str) -> Self {
        Self { path: path.to_owned(), ..Self::of(who, ["", ""], "get", purpose) }
    }

    /// The path and the body of the access review.
    #[must_use]
    pub(super) fn question(&self) -> (&'static str, Value) {
        let Self { who, group, resource, namespace, name, path, verb, .. } = self;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let mut spec = if path.is_empty() {
            json!({ "resourceAttributes": {
                "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name, "verb": verb,
            } })
        } else {
            json!({ "nonResourceAttributes": { "path": path, "verb": verb } })
        };
        let (reviews, kind) = match who {
            Who::Account(account) => {
                spec["user"] = json!(account_user(account));
                let all = format!("system:serviceaccounts:{ACCOUNT_NAMESPACE}");
                spec["groups"] = json!(["system:serviceaccounts", all, "system:authenticated"]);
                ("/apis/authorization.k8s.io/v1/subjectaccessreviews", "SubjectAccessReview")
            }
            Who::Manager | Who::Authenticator | Who::Authorizer => {
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
pub(super) fn access(answer: &[u8]) -> Access {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let status = &answer["status"];
    match (status["allowed"].as_bool(), status["evaluationError"].as_str()) {
        (Some(true), _) => Access::Granted,
        (Some(false), None | Some("")) => Access::Denied,
        (_, Some(why)) => Access::Unknown(why.to_owned()),
        (None, None) => Access::Unknown("the answer to the review has no status".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Asked, parse};

    fn texts(args: &[&str]) -> Vec<String> {
        let Asked::Run(typed) = parse(args.iter().map(|it| (*it).to_owned())) else { panic!("prints") };
        let config = Config::new(typed).unwrap();
        wanted(&config).iter().map(|it| format!("{:?}: {}", it.who, it.text())).collect()
    }

    #[test]
    fn what_is_needed_follows_from_the_flags() {
        let all = texts(&["--leader-elect-resource-name=l", "--leader-elect-resource-namespace=n"]);
        for line in [
            "Manager: watch leases of group coordination.k8s.io \"l\" in namespace n",
            "Manager: list leases of group coordination.k8s.io in namespace n",
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
            assert!(!own.iter().any(|it| it.contains("leases") || it == others), "{others} in {own:#?}");
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
    fn a_lease_that_cannot_be_watched_or_listed_is_only_doubtful() {
        let Asked::Run(typed) = parse(Vec::new()) else { panic!("prints") };
        let wanted = wanted(&Config::new(typed).unwrap());
        let doubtful: Vec<&str> = wanted.iter().filter(|it| !it.needed).map(|it| it.verb.as_str()).collect();
        assert_eq!(doubtful, ["list", "watch"]);
    }

    #[test]
    fn only_a_clear_no_is_a_no() {
        for (status, want) in [
            (json!({ "allowed": true }), Access::Granted),
            (json!({ "allowed": false, "reason": "" }), Access::Denied),
            (json!({ "allowed": false, "evaluationError": "webhook" }), Access::Unknown("webhook".to_owned())),
            (json!({ "allowed": true, "evaluationError": "one of two failed" }), Access::Granted),
        ] {
            assert_eq!(access(json!({ "status": status }).to_string().as_bytes()), want);
        }
        assert!(matches!(access(b"nonsense"), Access::Unknown(_)));
    }

    #[test]
    fn a_review_names_the_subresource_apart() {
        let wanted = Wanted::of(Who::Manager, ["", "namespaces/finalize"], "update", "");
        let (path, question) = wanted.question();
        assert!(path.ends_with("/selfsubjectaccessreviews"), "{path}");
        let asked = &question["spec"]["resourceAttributes"];
        assert_eq!((&asked["resource"], &asked["subresource"]), (&json!("namespaces"), &json!("finalize")));
        assert_eq!(question["spec"]["user"], Value::Null);
    }

    #[test]
    fn a_review_of_a_path_is_about_no_resource() {
        let (_, question) = Wanted::of_path(Who::Manager, "/healthz", "").question();
        assert_eq!(question["spec"], json!({ "nonResourceAttributes": { "path": "/healthz", "verb": "get" } }));
    }

    #[test]
    fn an_account_is_asked_about_and_not_itself() {
        let wanted = Wanted::of(Who::Account("a".to_owned()), ["", "pods"], "get", "");
        assert_eq!(wanted.who.asker(), Who::Manager);
        let (path, question) = wanted.question();
        assert!(path.ends_with("/subjectaccessreviews"), "{path}");
        assert_eq!(question["kind"], "SubjectAccessReview");
        assert_eq!(question["spec"]["user"], "system:serviceaccount:kube-system:a");
        assert!(question["spec"]["groups"].as_array().unwrap().contains(&json!("system:authenticated")));
    }
}
