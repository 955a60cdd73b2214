use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use client::ACCOUNT_NAMESPACE;

use super::rights::{Wanted, Who};

/// The verbs for each group, resource and object.
type Rules<'a> = BTreeMap<(&'a str, &'a str, &'a str), BTreeSet<&'a str>>;

/// The objects that grant what is missing, as YAML to paste; empty when nothing is. `users` are the users of kubeconfigs.
#[must_use]
pub(super) fn yaml(missing: &[Wanted], users: &BTreeMap<Who, String>) -> String {
    let mut roles: BTreeMap<(&Who, &str), Rules<'_>> = BTreeMap::new();
    for it in missing {
        let rules = roles.entry((&it.who, &it.namespace)).or_default();
        rules.entry((&it.group, &it.resource, &it.name)).or_default().insert(&it.verb);
    }
    let mut text = String::new();
    for ((who, namespace), rules) in roles {
        let name = match who {
            Who::Manager => "mini-kcm:missing".to_owned(),
            other => format!("mini-kcm:missing:{}", other.name()),
        };
        role(&mut text, &name, namespace, &rules);
        binding(&mut text, &name, namespace, &subject(who, users));
    }
    text
}

fn head(text: &mut String, kind: &str, name: &str, namespace: &str) {
    let kind = if namespace.is_empty() { format!("Cluster{kind}") } else { kind.to_owned() };
    // Writing into a string cannot fail.
    let _ = writeln!(text, "---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name:?}");
    if !namespace.is_empty() {
        let _ = writeln!(text, "  namespace: {namespace:?}");
    }
}

fn role(text: &mut String, name: &str, namespace: &str, rules: &Rules<'_>) {
    head(text, "Role", name, namespace);
    text.push_str("rules:\n");
    for ((group, resource, object), verbs) in rules {
        let _ = writeln!(text, "  - apiGroups: [{group:?}]\n    resources: [{resource:?}]");
        if !object.is_empty() {
            let _ = writeln!(text, "    resourceNames: [{object:?}]");
        }
        let verbs: Vec<String> = verbs.iter().map(|it| format!("{it:?}")).collect();
        let _ = writeln!(text, "    verbs: [{}]", verbs.join(", "));
    }
}

fn binding(text: &mut String, name: &str, namespace: &str, subject: &str) {
    head(text, "RoleBinding", name, namespace);
    let kind = if namespace.is_empty() { "ClusterRole" } else { "Role" };
    let _ = writeln!(
        text,
        "roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {name:?}\nsubjects:\n{subject}"
    );
}

fn subject(who: &Who, users: &BTreeMap<Who, String>) -> String {
    let user = users.get(who).map(String::as_str).unwrap_or_default();
    let account = match who {
        Who::Account(name) => Some((ACCOUNT_NAMESPACE, name.as_str())),
        Who::Manager | Who::Authenticator | Who::Authorizer => {
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

    fn wanted(who: Who, group: &str, resource: &str, namespace: &str, name: &str, verb: &str) -> Wanted {
        let [group, resource, namespace, name, verb] = [group, resource, namespace, name, verb].map(str::to_owned);
        Wanted { who, group, resource, namespace, name, verb, purpose: String::new(), needed: true }
    }

    fn users(manager: &str) -> BTreeMap<Who, String> {
        BTreeMap::from([(Who::Manager, manager.to_owned())])
    }

    #[test]
    fn each_identity_and_scope_gets_a_role_of_its_own() {
        let account = || Who::Account("namespace-controller".to_owned());
        let text = yaml(
            &[
                wanted(account(), "", "namespaces/finalize", "", "", "update"),
                wanted(account(), "", "namespaces", "", "", "get"),
                wanted(account(), "", "namespaces", "", "", "delete"),
                wanted(Who::Manager, "coordination.k8s.io", "leases", "kube-system", "l", "update"),
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
        assert_eq!(yaml(&[], &users("nobody")), "");
    }

    #[test]
    fn a_manager_that_is_a_service_account_is_bound_as_one() {
        let manager = users("system:serviceaccount:ns:name");
        let text = yaml(&[wanted(Who::Manager, "", "pods", "", "", "get")], &manager);
        assert!(text.contains("kind: ServiceAccount\n    name: \"name\"\n    namespace: \"ns\""), "{text}");
    }
}
