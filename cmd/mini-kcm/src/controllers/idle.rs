//! Enabled controllers that do not run because other flags leave them no work. This is not an error, as in upstream.

use std::collections::BTreeMap;

use crate::flags::FlagValues;

/// The flags with a certificate authority for one signer.
const SIGNERS: &[&str] = &[
    "cluster-signing-kube-apiserver-client-cert-file",
    "cluster-signing-kube-apiserver-client-key-file",
    "cluster-signing-kubelet-client-cert-file",
    "cluster-signing-kubelet-client-key-file",
    "cluster-signing-kubelet-serving-cert-file",
    "cluster-signing-kubelet-serving-key-file",
    "cluster-signing-legacy-unknown-cert-file",
    "cluster-signing-legacy-unknown-key-file",
];

/// The names of controllers without work, each with the flag that it needs.
pub(super) fn idle(flags: &FlagValues) -> BTreeMap<&'static str, &'static str> {
    let given = |name: &str| !flags.text(name).is_empty();
    let pair = given("cluster-signing-cert-file") && given("cluster-signing-key-file");
    let can_sign = pair || SIGNERS.iter().any(|it| given(it));
    let needs = [
        ("garbage-collector-controller", "--enable-garbage-collector", flags.bool("enable-garbage-collector")),
        ("node-ipam-controller", "--allocate-node-cidrs", flags.bool("allocate-node-cidrs")),
        ("certificatesigningrequest-signing-controller", "--cluster-signing-cert-file and its key", can_sign),
    ];
    needs.into_iter().filter(|(_, _, met)| !met).map(|(name, need, _)| (name, need)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::tests::typed, controllers::KNOWN, flags::find};

    #[test]
    fn controller_without_work_does_not_run() {
        const COLLECTOR: &str = "garbage-collector-controller";
        const IPAM: &str = "node-ipam-controller";
        const SIGNING: &str = "certificatesigningrequest-signing-controller";
        for (args, want) in [
            (vec![], vec![SIGNING, IPAM]),
            (vec!["--allocate-node-cidrs"], vec![SIGNING]),
            (vec!["--enable-garbage-collector=false"], vec![SIGNING, COLLECTOR, IPAM]),
            (vec!["--cluster-signing-cert-file=a"], vec![SIGNING, IPAM]),
            (vec!["--cluster-signing-cert-file=a", "--cluster-signing-key-file=b"], vec![IPAM]),
            (vec!["--cluster-signing-legacy-unknown-cert-file=a"], vec![IPAM]),
        ] {
            let idle = idle(&typed(&args));
            assert_eq!(idle.keys().copied().collect::<Vec<_>>(), want, "{args:?}");
            assert!(idle.keys().all(|name| KNOWN.iter().any(|it| it.name == *name)));
        }
        assert!(SIGNERS.iter().all(|it| find(it).is_some()), "there are such flags");
    }
}
