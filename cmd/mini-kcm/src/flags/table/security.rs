//! Flags of authentication, authorization and certificate signing.

use super::{
    Group,
    Kind::{Bool, Duration, List, Text},
    flag, waits,
};

pub(super) const AUTHENTICATION: Group = Group {
    name: "Authentication flags",
    flags: &[
        flag(
            "authentication-kubeconfig",
            Text,
            "",
            "Kubeconfig of the API server that reviews tokens. Empty: tokens are not looked at.",
        ),
        flag("authentication-skip-lookup", Bool, "false", "Do not read client authorities from the cluster."),
        flag("authentication-token-webhook-cache-ttl", Duration, "10s", "How long a token's review is believed."),
        flag(
            "authentication-tolerate-lookup-failure",
            Bool,
            "false",
            "Start although client authorities cannot be read from the cluster.",
        ),
        flag("client-ca-file", Text, "", "Authorities whose client certificates are believed."),
        flag(
            "requestheader-allowed-names",
            List,
            "",
            "Common names of front proxies; empty: any that the authority signed.",
        ),
        flag("requestheader-client-ca-file", Text, "", "Authority of front proxies, whose headers name the user."),
        flag(
            "requestheader-extra-headers-prefix",
            List,
            "x-remote-extra-",
            "Prefix of headers with extra facts about the user.",
        ),
        flag("requestheader-group-headers", List, "x-remote-group", "Headers that name the user's groups."),
        flag("requestheader-uid-headers", List, "", "Headers that carry the user's UID."),
        flag("requestheader-username-headers", List, "x-remote-user", "Headers that name the user."),
    ],
};

pub(super) const AUTHORIZATION: Group = Group {
    name: "Authorization flags",
    flags: &[
        flag(
            "authorization-always-allow-paths",
            List,
            "/healthz,/readyz,/livez",
            "Paths that anyone may get; a trailing '*' stands for any rest.",
        ),
        flag(
            "authorization-kubeconfig",
            Text,
            "",
            "Kubeconfig of the API server that decides who may ask. Empty: only the paths above.",
        ),
        flag("authorization-webhook-cache-authorized-ttl", Duration, "10s", "How long a yes is believed."),
        flag("authorization-webhook-cache-unauthorized-ttl", Duration, "10s", "How long a no is believed."),
    ],
};

pub(super) const SIGNING: Group = Group {
    name: "Certificatesigningrequest-signing-controller flags",
    flags: &[
        waits("cluster-signing-cert-file", Text, "", "Authority that signs certificate requests of the whole cluster."),
        waits("cluster-signing-duration", Duration, "8760h0m0s", "Longest life of a signed certificate."),
        waits("cluster-signing-key-file", Text, "", "Key of the authority of --cluster-signing-cert-file."),
        waits(
            "cluster-signing-kube-apiserver-client-cert-file",
            Text,
            "",
            "Authority for kubernetes.io/kube-apiserver-client.",
        ),
        waits(
            "cluster-signing-kube-apiserver-client-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kube-apiserver-client.",
        ),
        waits(
            "cluster-signing-kubelet-client-cert-file",
            Text,
            "",
            "Authority for kubernetes.io/kube-apiserver-client-kubelet.",
        ),
        waits(
            "cluster-signing-kubelet-client-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kube-apiserver-client-kubelet.",
        ),
        waits("cluster-signing-kubelet-serving-cert-file", Text, "", "Authority for kubernetes.io/kubelet-serving."),
        waits(
            "cluster-signing-kubelet-serving-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/kubelet-serving.",
        ),
        waits("cluster-signing-legacy-unknown-cert-file", Text, "", "Authority for kubernetes.io/legacy-unknown."),
        waits(
            "cluster-signing-legacy-unknown-key-file",
            Text,
            "",
            "Key of the authority for kubernetes.io/legacy-unknown.",
        ),
    ],
};
