//! Argument lists from real clusters. This binary accepts them unchanged, whether or not their files exist, and the
//! checks of kube-bench pass on them.

use super::Config;
use crate::flags::{Invocation, parse};

/// The arguments in kubeadm's static pod manifest for a cluster with a pod network.
const KUBEADM: &str = "--allocate-node-cidrs=true \
    --authentication-kubeconfig=/etc/kubernetes/controller-manager.conf \
    --authorization-kubeconfig=/etc/kubernetes/controller-manager.conf --bind-address=127.0.0.1 \
    --client-ca-file=/etc/kubernetes/pki/ca.crt --cluster-cidr=10.244.0.0/16 --cluster-name=kubernetes \
    --cluster-signing-cert-file=/etc/kubernetes/pki/ca.crt --cluster-signing-key-file=/etc/kubernetes/pki/ca.key \
    --controllers=*,bootstrapsigner,tokencleaner --kubeconfig=/etc/kubernetes/controller-manager.conf \
    --leader-elect=true --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt \
    --root-ca-file=/etc/kubernetes/pki/ca.crt --service-account-private-key-file=/etc/kubernetes/pki/sa.key \
    --service-cluster-ip-range=10.96.0.0/12 --use-service-account-credentials=true";

/// The arguments that kind adds to kubeadm's. The last one is for IPv6.
const KIND: [&str; 2] = ["--enable-hostpath-provisioner=true", "--enable-hostpath-provisioner=true --bind-address=::"];

/// The arguments that Cluster API providers and operators add to kubeadm's.
const ADDED: [&str; 4] = [
    "--cloud-provider=external",
    "--cloud-provider=external --cloud-config=/etc/kubernetes/azure.json --configure-cloud-routes=false --v=4",
    "--cloud-provider=external --external-cloud-volume-plugin=openstack --node-cidr-mask-size=24",
    "--feature-gates=RotateKubeletServerCertificate=true --terminated-pod-gc-threshold=10 --profiling=false \
     --tls-min-version=VersionTLS12 \
     --tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
];

/// Complete lists of managed control planes and distributions.
const WHOLE: [&str; 2] = [
    "--allocate-node-cidrs --attach-detach-reconcile-sync-period=1m0s --cluster-cidr=100.96.0.0/11 \
     --cluster-name=shoot--garden --cluster-signing-duration=720h --concurrent-deployment-syncs=50 \
     --concurrent-endpoint-syncs=15 --concurrent-gc-syncs=30 --concurrent-namespace-syncs=50 \
     --concurrent-replicaset-syncs=50 --concurrent-rc-syncs=50 --concurrent-resource-quota-syncs=15 \
     --concurrent-service-endpoint-syncs=15 --concurrent-statefulset-syncs=15 \
     --concurrent-serviceaccount-token-syncs=15 --controllers=*,bootstrapsigner,tokencleaner \
     --horizontal-pod-autoscaler-downscale-stabilization=5m0s --horizontal-pod-autoscaler-initial-readiness-delay=30s \
     --horizontal-pod-autoscaler-tolerance=0.1 --leader-elect=true --node-monitor-grace-period=40s \
     --profiling=false --root-ca-file=/srv/ca.crt --secure-port=10257 --service-account-private-key-file=/srv/id_rsa \
     --service-cluster-ip-range=100.64.0.0/13 --tls-cert-file=/srv/tls.crt --tls-private-key-file=/srv/tls.key \
     --use-service-account-credentials=true --v=2",
    "--allocate-node-cidrs=true --bind-address=127.0.0.1 --cluster-cidr=10.42.0.0/16 \
     --cluster-signing-kube-apiserver-client-cert-file=/var/lib/tls/client-ca.nochain.crt \
     --cluster-signing-kube-apiserver-client-key-file=/var/lib/tls/client-ca.key \
     --cluster-signing-kubelet-client-cert-file=/var/lib/tls/client-ca.nochain.crt \
     --cluster-signing-kubelet-client-key-file=/var/lib/tls/client-ca.key \
     --cluster-signing-kubelet-serving-cert-file=/var/lib/tls/server-ca.nochain.crt \
     --cluster-signing-kubelet-serving-key-file=/var/lib/tls/server-ca.key \
     --cluster-signing-legacy-unknown-cert-file=/var/lib/tls/server-ca.nochain.crt \
     --cluster-signing-legacy-unknown-key-file=/var/lib/tls/server-ca.key --configure-cloud-routes=false \
     --controllers=*,tokencleaner,-service,-route,-cloud-node-lifecycle --kubeconfig=/var/lib/cred/controller.kubeconfig \
     --authentication-kubeconfig=/var/lib/cred/controller.kubeconfig --profiling=false \
     --root-ca-file=/var/lib/tls/server-ca.crt --secure-port=10257 --service-cluster-ip-range=10.43.0.0/16 \
     --service-account-private-key-file=/var/lib/tls/service.current.key --use-service-account-credentials=true",
];

fn config(list: &str) -> Config {
    match parse(list.split_whitespace().map(str::to_owned)) {
        Invocation::Run(typed) => Config::new(typed).unwrap_or_else(|errors| panic!("{list}: {errors:?}")),
        Invocation::Print(text) => panic!("{list} prints {text}"),
    }
}

fn all() -> Vec<String> {
    let based_on_kubeadm = KIND.iter().chain(&ADDED).map(|it| format!("{KUBEADM} {it}"));
    std::iter::once(KUBEADM.to_owned()).chain(based_on_kubeadm).chain(WHOLE.map(str::to_owned)).collect()
}

#[test]
fn acceptance_shell_047_argument_lists_of_kubeadm_kind_and_others_are_accepted_unchanged() {
    for list in all() {
        let config = config(&list);
        assert!(config.election.is_some() && config.serving.is_some(), "{list}");
        let namespace = config.controllers.implemented().any(|it| it.name == namespace_controller::NAME);
        assert!(namespace, "{list}");
    }
}

#[test]
fn acceptance_shell_047_bootstrap_controllers_stay_enabled_beside_a_disabled_one() {
    // The value that documents for kind and kubeadm recommend.
    let list = format!("{KUBEADM} --controllers=-job");
    let entries = config(&list).controllers.entries().to_vec();
    assert_eq!(entries, ["*", "bootstrap-signer-controller", "token-cleaner-controller", "-job-controller"]);
}

#[test]
fn kubeadms_list_gives_a_warning_about_what_the_cluster_will_lack() {
    let warnings = config(KUBEADM).warnings;
    let missing: Vec<&String> = warnings.iter().filter(|it| it.starts_with("not in this binary")).collect();
    assert_eq!(missing.len(), 1, "one warning: {warnings:?}");
    for words in [
        "EndpointSlices, so traffic to Services goes nowhere (endpointslice-controller)",
        "kubeadm join by token fails (bootstrap-signer-controller)",
        "deletion of expired bootstrap tokens (token-cleaner-controller)",
        "tokens in Secrets of service accounts (serviceaccount-token-controller)",
    ] {
        assert!(missing[0].contains(words), "{words} in {}", missing[0]);
    }
    let ignored = warnings.iter().filter(|it| it.contains("accepted without effect")).count();
    assert_eq!(ignored, 1, "one warning: {warnings:?}");
}

/// The expected value in a kube-bench check.
#[derive(Debug, Clone, Copy)]
enum Expectation {
    Set,
    Is(&'static str),
    IsNot(&'static str),
    IsOrUnset(&'static str),
    HasNotOrUnset(&'static str),
}

/// The checks 1.3.1 to 1.3.7 of its CIS 1.12 configuration. Each searches the process's line in `ps -ef`.
const KUBE_BENCH: [(&str, &str, Expectation); 7] = [
    ("1.3.1", "--terminated-pod-gc-threshold", Expectation::Set),
    ("1.3.2", "--profiling", Expectation::Is("false")),
    ("1.3.3", "--use-service-account-credentials", Expectation::IsNot("false")),
    ("1.3.4", "--service-account-private-key-file", Expectation::Set),
    ("1.3.5", "--root-ca-file", Expectation::Set),
    ("1.3.6", "--feature-gates", Expectation::HasNotOrUnset("RotateKubeletServerCertificate=false")),
    ("1.3.7", "--bind-address", Expectation::IsOrUnset("127.0.0.1")),
];

/// The flag's value as kube-bench extracts it: up to the next space.
fn value<'a>(line: &'a str, flag: &str) -> Option<&'a str> {
    let after = &line[line.find(flag)? + flag.len()..];
    after.trim_start_matches(['=', ':', ' ']).split_whitespace().next()
}

fn is_satisfied(line: &str, flag: &str, expectation: Expectation) -> bool {
    let found = value(line, flag);
    match expectation {
        Expectation::Set => found.is_some(),
        Expectation::Is(want) => found == Some(want),
        Expectation::IsNot(other) => found.is_some_and(|it| it != other),
        Expectation::IsOrUnset(want) => found.is_none_or(|it| it == want),
        Expectation::HasNotOrUnset(part) => found.is_none_or(|it| !it.contains(part)),
    }
}

#[test]
fn kube_bench_checks_pass_with_an_accepted_list() {
    // kubeadm's list with the additional flags of the benchmark.
    let hardened = format!("{KUBEADM} --profiling=false --terminated-pod-gc-threshold=10");
    let config = config(&hardened);
    assert!(config.election.is_some() && !config.observability.profiling, "the flags have their usual effect");
    let listen = config.serving.map(|it| it.options.listen.address.to_string());
    assert_eq!(listen.as_deref(), Some("127.0.0.1"));
    let line = format!("root 1 0 0 10:00 ? 00:00:01 kube-controller-manager {hardened}");
    for (check, flag, expectation) in KUBE_BENCH {
        assert!(is_satisfied(&line, flag, expectation), "{check} {flag} {expectation:?}");
    }
    for (bad, failing) in [
        (KUBEADM.to_owned(), vec!["1.3.1", "1.3.2"]),
        (hardened.replace("--bind-address=127.0.0.1", "--bind-address=0.0.0.0"), vec!["1.3.7"]),
        (format!("{hardened} --feature-gates=RotateKubeletServerCertificate=false"), vec!["1.3.6"]),
        (hardened.replace("credentials=true", "credentials=false"), vec!["1.3.3"]),
    ] {
        let failed: Vec<&str> = KUBE_BENCH
            .iter()
            .filter(|(_, flag, expectation)| !is_satisfied(&bad, flag, *expectation))
            .map(|it| it.0)
            .collect();
        assert_eq!(failed, failing, "{bad}");
    }
}
