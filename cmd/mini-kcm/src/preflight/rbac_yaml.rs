use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use client::ACCOUNT_NAMESPACE;

use super::permissions::{Permission, Requester};

/// The verbs for each target of the rules.
type Rules<'a> = BTreeMap<RuleTarget<'a>, BTreeSet<&'a str>>;

/// The target of one rule. RBAC has no rule with both paths and resources.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum RuleTarget<'a> {
    /// A non-resource URL. Only a ClusterRole can grant it.
    Path(&'a str),
    /// Objects of a resource; an empty name means all objects.
    Resource { group: &'a str, resource: &'a str, name: &'a str },
}

/// The roles and bindings that grant the missing permissions, as YAML to paste; empty when none is missing. `users` are
/// the user names of the kubeconfigs.
#[must_use]
pub(super) fn yaml(missing: &[Permission], users: &BTreeMap<Requester, String>) -> String {
    let mut roles: BTreeMap<(&Requester, &str), Rules<'_>> = BTreeMap::new();
    for it in missing {
        let rules = roles.entry((&it.requester, &it.namespace)).or_default();
        rules.entry(RuleTarget::of(it)).or_default().insert(&it.verb);
    }
    let mut text = String::new();
    for ((requester, namespace), rules) in roles {
        let name = match requester {
            Requester::Manager => "mini-kcm:missing".to_owned(),
            other => format!("mini-kcm:missing:{}", other.name()),
        };
        add_role(&mut text, &name, namespace, &rules);
        add_binding(&mut text, &name, namespace, &subject(requester, users));
    }
    text
}

impl<'a> RuleTarget<'a> {
    fn of(permission: &'a Permission) -> Self {
        let Permission { group, resource, name, path, .. } = permission;
        if path.is_empty() { Self::Resource { group, resource, name } } else { Self::Path(path) }
    }
}

fn add_head(text: &mut String, kind: &str, name: &str, namespace: &str) {
    let kind = if namespace.is_empty() { format!("Cluster{kind}") } else { kind.to_owned() };
    // Writing into a string cannot fail.
    let _ = writeln!(text, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name:?}");
    if !namespace.is_empty() {
        let _ = writeln!(text, "  namespace: {namespace:?}");
    }
}

fn add_role(text: &mut String, name: &str, namespace: &str, rules: &Rules<'_>) {
    add_head(text, "Role", name, namespace);
    text.push_str("rules:\n");
    for (target, verbs) in rules {
        let _ = match target {
            RuleTarget::Path(path) => writeln!(text, "  - nonResourceURLs: [{path:?}]"),
            RuleTarget::Resource { group, resource, .. } => {
                writeln!(text, "  - apiGroups: [{group:?}]\n    resources: [{resource:?}]")
            }
        };
        if let RuleTarget::Resource { name, .. } = target
            && !name.is_empty()
        {
            let _ = writeln!(text, "    resourceNames: [{name:?}]");
        }
        let verbs: Vec<String> = verbs.iter().map(|it| format!("{it:?}")).collect();
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
}

fn add_binding(text: &mut String, name: &str, namespace: &str, subject: &str) {
    add_head(text, "RoleBinding", name, namespace);
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let _ = writeln!(
        text,
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name:?}\nsubjects:\n{subject}"
    );
}

fn subject(requester: &Requester, users: &BTreeMap<Requester, String>) -> String {
    let user = users.get(requester).map(String::as_str).unwrap_or_default();
    let account = match requester {
        Requester::Account(name) => Some((ACCOUNT_NAMESPACE, name.as_str())),
        Requester::Manager | Requester::Authenticator | Requester::Authorizer => {
            user.strip_prefix("system:serviceaccount:").and_then(|it| it.split_once(':'))
        }
    };
    match account {
        Some((namespace, name)) => {
            format!("  - kind: ServiceAccount\n    name: {name:?}\n    namespace: {namespace:?}")
        }
        None => format!("  - apiGroup: rbac.authorization.k8s.io\n    kind: User\n    name: {user:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permission(
        requester: Requester,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        verb: &str,
    ) -> Permission {
        let [group, resource, namespace, name, verb] = [group, resource, namespace, name, verb].map(str::to_owned);
        let (path, purpose) = (String::new(), String::new());
        Permission { requester, group, resource, namespace, name, path, verb, purpose, needed: true }
    }

    fn path(requester: Requester, path: &str) -> Permission {
        Permission { path: path.to_owned(), ..permission(requester, "", "", "", "", "get") }
    }

    fn users(manager: &str) -> BTreeMap<Requester, String> {
        BTreeMap::from([(Requester::Manager, manager.to_owned())])
    }

    #[test]
    fn each_requester_and_namespace_gets_its_own_role() {
        let account = || Requester::Account("namespace-controller".to_owned());
        let text = yaml(
            &[
                permission(account(), "", "namespaces/finalize", "", "", "update"),
                permission(account(), "", "namespaces", "", "", "get"),
                permission(account(), "", "namespaces", "", "", "delete"),
                path(account(), "/apis"),
                path(account(), "/api"),
                permission(Requester::Manager, "coordination.k8s.io", "leases", "kube-system", "l", "update"),
            ],
            &users("some: \"body\""),
        );
        let want = r#"---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: "mini-kcm:missing"
  namespace: "kube-system"
rules:
  - apiGroups: ["coordination.k8s.io"]
    resources: ["leases"]
    resourceNames: ["l"]
    verbs: ["update"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: "mini-kcm:missing"
  namespace: "kube-system"
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: "mini-kcm:missing"
subjects:
  - apiGroup: rbac.authorization.k8s.io
    kind: User
    name: "some: \"body\""
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: "mini-kcm:missing:namespace-controller"
rules:
  - nonResourceURLs: ["/api"]
    verbs: ["get"]
  - nonResourceURLs: ["/apis"]
    verbs: ["get"]
  - apiGroups: [""]
    resources: ["namespaces"]
    verbs: ["delete", "get"]
  - apiGroups: [""]
    resources: ["namespaces/finalize"]
    verbs: ["update"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: "mini-kcm:missing:namespace-controller"
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: "mini-kcm:missing:namespace-controller"
subjects:
  - kind: ServiceAccount
    name: "namespace-controller"
    namespace: "kube-system"
"#;
        assert_eq!(text, want);
        assert_eq!(yaml(&[], &users("unused")), "");
    }

    #[test]
    fn service_account_of_the_manager_is_the_subject_of_the_binding() {
        let manager = users("system:serviceaccount:ns:name");
        let text = yaml(&[permission(Requester::Manager, "", "pods", "", "", "get")], &manager);
        assert!(text.contains("kind: ServiceAccount\n    name: \"name\"\n    namespace: \"ns\""), "{text}");
    }
}
