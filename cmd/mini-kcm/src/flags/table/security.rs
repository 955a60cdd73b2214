//! Flags of authentication, authorization and certificate signing.

use super::{
    Group,
    Kind::{Bool, Duration, List, Text},
    absent, flag,
};

pub(super) const AUTHENTICATION: Group = Group {
    name: "Authentication flags",
    flags: &[
        flag(
            "authentication-kubeconfig",
            Text,
            "",
            "Kubeconfig of the API server that reviews tokens. Empty: that of the pod; outside a pod, tokens are ignored.",
        ),
        flag("authentication-skip-lookup", Bool, "false", "Do not read client authorities from the cluster."),
        flag("authentication-token-webhook-cache-ttl", Duration, "10s", "How long the review of a token is cached."),
        flag(
            "authentication-tolerate-lookup-failure",
            Bool,
            "false",
            "Start although client authorities cannot be read from the cluster.",
        ),
        flag("client-ca-file", Text, "", "Authorities for client certificates."),
        flag(
            "requestheader-allowed-names",
            List,
            "",
            "Common names of front proxies; empty: every certificate that the authority signed.",
        ),
        flag(
            "requestheader-client-ca-file",
            Text,
            "",
            "Authority of front proxies; their request headers contain the user.",
        ),
        flag(
            "requestheader-extra-headers-prefix",
            List,
            "x-remote-extra-",
            "Prefix of headers with extra attributes of the user.",
        ),
        flag("requestheader-group-headers", List, "x-remote-group", "Headers with the user's groups."),
        flag("requestheader-uid-headers", List, "", "Headers with the user's UID."),
        flag("requestheader-username-headers", List, "x-remote-user", "Headers with the user's name."),
    ],
};

pub(super) const AUTHORIZATION: Group = Group {
    name: "Authorization flags",
    flags: &[
        flag(
            "authorization-always-allow-paths",
            List,
            "/healthz,/readyz,/livez",
            "Paths that need no authorization; a trailing '*' matches any rest.",
        ),
        flag(
            "authorization-kubeconfig",
            Text,
            "",
            "Kubeconfig of the API server that authorizes requests. Empty: that of the pod; outside a pod, only the paths above are allowed.",
        ),
        flag("authorization-webhook-cache-authorized-ttl", Duration, "10s", "How long an allowed request is cached."),
        flag("authorization-webhook-cache-unauthorized-ttl", Duration, "10s", "How long a denied request is cached."),
    ],
};

pub(super) const SIGNING: Group = Group {
    name: "Certificatesigningrequest-signing-controller flags",
    flags: &[
        absent(
            "cluster-signing-cert-file",
            Text,
            "",
            "Authority that signs certificate requests of the whole cluster.",
        ),
        absent("cluster-signing-duration", Duration, "8760h0m0s", "Maximum duration of a signed certificate."),
        absent("cluster-signing-key-file", Text, "", "Key of the authority of --cluster-signing-cert-file."),
        absent(
            "cluster-signing-kube-apiserver-client-cert-file",
            Text,
            "",
            "Authority for kubernetes.io/kube-apiserver-client.",
        ),
        absent(
            "cluster-signing-kube-apiserver-client-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kube-apiserver-client.",
        ),
        absent(
            "cluster-signing-kubelet-client-cert-file",
            Text,
            "",
            "Authority for kubernetes.io/kube-apiserver-client-kubelet.",
        ),
        absent(
            "cluster-signing-kubelet-client-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kube-apiserver-client-kubelet.",
        ),
        absent("cluster-signing-kubelet-serving-cert-file", Text, "", "Authority for kubernetes.io/kubelet-serving."),
        absent(
            "cluster-signing-kubelet-serving-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kubelet-serving.",
        ),
        absent("cluster-signing-legacy-unknown-cert-file", Text, "", "Authority for kubernetes.io/legacy-unknown."),
        absent(
            "cluster-signing-legacy-unknown-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/legacy-unknown.",
        ),
    ],
};
