//! The identities of controllers on a real API server, and the checks of `--preflight`. They need a real server,
//! because client certificates, RBAC and its bootstrap roles are the server's own.

#![expect(clippy::unwrap_used, reason = "scenarios are tests")]

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use e2e::{
    Audit, AuditEvent, Build, ControlPlane, Flavour, Identity, Kubectl, Launch, Options, Rest, assets_or_skip, binary,
    eventually, kubectl_or_skip, namespaces, objects,
};
use http::Method;
use serde_json::json;

const TIME_LIMIT: Duration = Duration::from_secs(60);
/// The true conditions of a namespace that remains because an object in it has a finalizer.
const TERMINATING_CONDITIONS: [&str; 2] = ["NamespaceContentRemaining", "NamespaceFinalizersRemaining"];
const ACCOUNT: &str = "system:serviceaccount:kube-system:namespace-controller";
const ACCOUNTS: &str = "/api/v1/namespaces/kube-system/serviceaccounts";

async fn plane(what: &str) -> Option<ControlPlane> {
    let assets = assets_or_skip(what)?;
    Some(ControlPlane::start(assets, Options { audit: true, ..Options::default() }).await.unwrap())
}

/// Creates and deletes a namespace with content, and waits for its removal.
async fn create_and_delete(admin: &Rest, name: &str) {
    namespaces::create(admin, name).await.unwrap();
    admin.create_all(objects::dozen(name, 24)).await.unwrap();
    namespaces::delete(admin, name).await.unwrap();
    namespaces::wait_until_gone(admin, name, TIME_LIMIT).await.unwrap();
}

/// Calls of our manager, with any of its identities.
fn our_requests(audit: &mut Audit) -> Vec<AuditEvent> {
    audit.events().unwrap().iter().filter(|it| it.user_agent.starts_with("mini-kcm/v")).cloned().collect()
}

fn is_token_request(event: &AuditEvent) -> bool {
    event.resource() == "serviceaccounts/token" && event.succeeded()
}

/// A kubeconfig of a ServiceAccount in kube-system, which is created if it does not exist.
async fn kubeconfig_of(plane: &ControlPlane, admin: &Rest, account: &str) -> PathBuf {
    let account_path = format!("{ACCOUNTS}/{account}");
    if admin.find(&account_path).await.unwrap().is_none() {
        admin.create(ACCOUNTS, &json!({ "metadata": { "name": account } })).await.unwrap();
    }
    let token = admin.create(&format!("{account_path}/token"), &json!({})).await.unwrap();
    let token = token["status"]["token"].as_str().unwrap();
    let text = std::fs::read_to_string(plane.kubeconfig(Identity::Admin).unwrap()).unwrap();
    let path = plane.folder().join(format!("{account}.kubeconfig"));
    std::fs::write(&path, text.replace(&Identity::Admin.token(), token)).unwrap();
    path
}

/// Exit code and output.
fn preflight(kubeconfig: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binary(Build::Release).unwrap())
        .arg("--preflight")
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .args(flags)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_040_namespace_is_deleted_with_the_rights_of_the_account_alone() {
    let Some(plane) = plane("controllers' own accounts").await else { return };
    let (admin, mut audit) = (plane.admin().await.unwrap(), plane.audit());
    assert!(admin.find(&format!("{ACCOUNTS}/namespace-controller")).await.unwrap().is_none());
    let manager = Launch::new(&plane, Flavour::Ours)
        .unwrap()
        .kubeconfig(&plane.kubeconfig(Identity::ControllerManager).unwrap())
        .flag("use-service-account-credentials", "true")
        .flag("leader-elect-resource-name", "kube-controller-manager")
        .started()
        .await
        .unwrap();
    create_and_delete(&admin, "first").await;
    assert!(admin.find(&format!("{ACCOUNTS}/namespace-controller")).await.unwrap().is_some(), "it was created");
    let events = our_requests(&mut audit);
    let worked: BTreeSet<&str> = events.iter().filter(|it| it.is_work()).map(AuditEvent::user).collect();
    let managers = Identity::ControllerManager.user();
    assert_eq!(worked, BTreeSet::from([ACCOUNT, managers]), "the manager created the account");
    for event in &events {
        let (user, what) = (event.user(), format!("{} {} {}", event.verb, event.uri, event.code()));
        assert!(!matches!(event.code(), 401 | 403), "{user}: {what}");
        let by_manager = event.lease_holder().is_some() || event.verb == "watch" || is_token_request(event);
        assert!(!by_manager || user == managers, "{user}: {what}");
        let deed = event.is_work() && !event.resource().starts_with("serviceaccounts");
        assert!(!deed || user == ACCOUNT, "{user}: {what}");
        // Reads too: the manager's own user has the same read rights, so nothing else would show the difference.
        let controllers = event.user_agent.ends_with("/namespace-controller");
        assert!(!controllers || user == ACCOUNT, "{user}: {what}");
    }
    assert!(events.iter().any(|it| it.user() == ACCOUNT && it.verb == "list"), "it lists before it deletes");
    for resource in ["namespaces/finalize", "namespaces/status", "configmaps"] {
        assert!(
            events.iter().any(|it| it.resource() == resource && it.user() == ACCOUNT && it.is_work()),
            "{resource}"
        );
    }

    // The account is created again, so its old tokens are invalid; the server may cache them for some seconds.
    admin.delete(&format!("{ACCOUNTS}/namespace-controller")).await.unwrap();
    let mut round = 0;
    eventually("another token", TIME_LIMIT, async || {
        round += 1;
        create_and_delete(&admin, &format!("again-{round}")).await;
        Ok((audit.count(is_token_request)? >= 2).then_some(()))
    })
    .await
    .unwrap();
    create_and_delete(&admin, "last").await;
    let log = manager.log().unwrap();
    assert!(log.contains("the token was refused: requesting another"), "{log}");
    // A refused write to a path below /apis/ is not repeated, so only its sync may fail.
    let metrics = manager.endpoints().unwrap().send(Method::GET, "/metrics", None).await.unwrap().text;
    let refused = metrics.lines().filter(|it| it.starts_with("rest_client_requests_total{code=\"401\""));
    let refused: Vec<&str> = refused.collect();
    assert!(!refused.is_empty(), "{metrics}");
    let writes = refused.iter().filter(|it| !it.contains("method=\"GET\""));
    let writes: usize = writes.map(|it| it.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    let failed = log.matches("Sync failed").count();
    assert!(failed <= writes, "{failed} syncs failed, {writes} writes were refused: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_041_without_accounts_all_requests_have_the_user_of_the_kubeconfig() {
    let Some(plane) = plane("the kubeconfig's user").await else { return };
    let (admin, mut audit) = (plane.admin().await.unwrap(), plane.audit());
    let _manager = Launch::new(&plane, Flavour::Ours)
        .unwrap()
        .kubeconfig(&plane.kubeconfig(Identity::Replica(0)).unwrap())
        .started()
        .await
        .unwrap();
    create_and_delete(&admin, "only").await;
    let events = our_requests(&mut audit);
    assert!(events.iter().all(|it| it.user() == Identity::Replica(0).user()));
    let worked: Vec<&AuditEvent> = events.iter().filter(|it| it.is_work()).collect();
    assert!(
        worked.len() >= 3 && worked.iter().all(|it| it.user_agent.ends_with("/namespace-controller")),
        "{worked:?}"
    );
    assert!(events.iter().any(|it| it.user_agent.ends_with("/leader-election")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preflight_prints_the_missing_rules_and_they_are_enough() {
    let Some(plane) = plane("--preflight").await else { return };
    let Some(kubectl) = kubectl(&plane, "the rules that --preflight prints") else { return };
    let admin = plane.admin().await.unwrap();
    let nobody = kubeconfig_of(&plane, &admin, "nobody").await;
    let (code, said) = preflight(&nobody, &[]);
    assert_eq!(code, Some(1), "{said}");
    for words in [
        "system:serviceaccount:kube-system:nobody may not update namespaces/finalize",
        "resources: [\"namespaces/finalize\"]",
        "verbs: [\"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"watch\"]",
        "resourceNames: [\"kube-controller-manager\"]",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let file = plane.folder().join("missing.yaml");
    std::fs::write(&file, said).unwrap();
    apply(&kubectl, &file);
    // The server's authorizer gets new rules from a watch, so a moment later.
    eventually("the rules to be enough", TIME_LIMIT, async || {
        let (code, said) = preflight(&nobody, &[]);
        anyhow::ensure!(code == Some(0), "{said}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let _manager = Launch::new(&plane, Flavour::Ours)
        .unwrap()
        .kubeconfig(&nobody)
        .flag("leader-elect-resource-name", "kube-controller-manager")
        .started()
        .await
        .unwrap();
    create_and_delete(&admin, "granted").await;

    let manager = plane.kubeconfig(Identity::ControllerManager).unwrap();
    let (code, said) = preflight(&manager, &["--use-service-account-credentials"]);
    assert_eq!(code, Some(0), "upstream's own roles are enough: {said}");
    let asks = format!("--authentication-kubeconfig={}", nobody.display());
    let (code, said) = preflight(&manager, &[asks.as_str()]);
    assert_eq!(code, Some(1), "the serving port's questions have a user of their own: {said}");
    for words in [
        "system:serviceaccount:kube-system:nobody may not create tokenreviews",
        "name: \"mini-kcm:missing:authentication-kubeconfig\"",
    ] {
        assert!(said.contains(words), "{words} in {said}");
    }
    let gone = plane.folder().join("nowhere.kubeconfig");
    let text = std::fs::read_to_string(&nobody).unwrap();
    std::fs::write(&gone, text.replace(&format!(":{}", plane.port()), ":1")).unwrap();
    let (code, said) = preflight(&gone, &[]);
    assert!(code == Some(1) && said.contains("error: version"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifest_grants_all_needed_rights() {
    let Some(plane) = plane("manifests/base/rbac.yaml").await else { return };
    let Some(kubectl) = kubectl(&plane, "manifests/base/rbac.yaml") else { return };
    let admin = plane.admin().await.unwrap();
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests/base/rbac.yaml");
    apply(&kubectl, &manifest);
    let account = kubeconfig_of(&plane, &admin, "mini-kcm").await;
    let lease = "--leader-elect-resource-name=mini-kcm";
    eventually("the rules to be known", TIME_LIMIT, async || {
        let (code, said) = preflight(&account, &[lease, "--controllers=namespace-controller"]);
        anyhow::ensure!(code == Some(0) && !said.contains("warning"), "{said}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let _manager = Launch::new(&plane, Flavour::Ours)
        .unwrap()
        .kubeconfig(&account)
        .flag("leader-elect-resource-name", "mini-kcm")
        .started()
        .await
        .unwrap();
    create_and_delete(&admin, "own").await;
    let (code, said) = preflight(&account, &[lease, "--use-service-account-credentials"]);
    assert_eq!(code, Some(0), "{said}");
    let path = format!("{ACCOUNTS}/namespace-controller");
    assert!(admin.find(&path).await.unwrap().is_none(), "the check creates nothing");
    let refused: Vec<AuditEvent> = our_requests(&mut plane.audit()).into_iter().filter(|it| it.code() == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// A namespace that is being deleted and remains, because an object in it has a finalizer. Returns the users that wrote
/// its status.
async fn create_held_namespace(admin: &Rest, name: &str) -> BTreeSet<String> {
    namespaces::create(admin, name).await.unwrap();
    admin.create_all(vec![objects::with_finalizer("a/b", objects::config_map(name, "c"))]).await.unwrap();
    namespaces::delete(admin, name).await.unwrap();
    let stays = namespaces::wait_until_true(admin, name, &TERMINATING_CONDITIONS, TIME_LIMIT).await.unwrap();
    let fields = stays["metadata"]["managedFields"].as_array().unwrap();
    let status = fields.iter().filter(|it| it["subresource"] == "status");
    status.map(|it| it["manager"].as_str().unwrap().to_owned()).collect()
}

/// True if the Go manager can be started; otherwise a message was printed that `what` does not run.
fn go_manager(plane: &ControlPlane, what: &str) -> bool {
    let there = plane.assets().unwrap().binary("kube-controller-manager").is_some();
    if !there {
        e2e::report(&format!("NOT RUN: {what}: no kube-controller-manager"));
    }
    there
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_048_manager_works_beside_the_go_manager_without_that_controller() {
    let Some(plane) = plane("half a replacement").await else { return };
    if !go_manager(&plane, "half a replacement") {
        return;
    }
    let (admin, mut audit) = (plane.admin().await.unwrap(), plane.audit());
    let go = Launch::new(&plane, Flavour::Go).unwrap().flag("controllers", "*,-namespace-controller");
    let _go = go.started().await.unwrap();
    let _manager = Launch::new(&plane, Flavour::Ours).unwrap().started().await.unwrap();
    create_and_delete(&admin, "alone").await;
    assert_eq!(create_held_namespace(&admin, "held").await, BTreeSet::from(["mini-kcm".to_owned()]));
    let events = audit.events().unwrap();
    let by = |event: &AuditEvent, agent: &str| {
        event.is_work() && event.resource().starts_with("namespaces") && event.user_agent.starts_with(agent)
    };
    assert!(events.iter().any(|it| by(it, "mini-kcm/v") && it.resource() == "namespaces/finalize"));
    let second: Vec<&AuditEvent> = events.iter().filter(|it| by(it, "kube-controller-manager/")).collect();
    assert!(second.is_empty(), "{second:?}");
    let kubeconfig = plane.kubeconfig(Identity::Admin).unwrap();
    let (code, said) = preflight(&kubeconfig, &["--controllers=namespace-controller"]);
    assert_eq!(code, Some(0), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acceptance_shell_049_go_manager_with_the_same_controller_is_reported() {
    let Some(plane) = plane("two managers at one work").await else { return };
    if !go_manager(&plane, "two managers at one work") {
        return;
    }
    let admin = plane.admin().await.unwrap();
    let _go = Launch::new(&plane, Flavour::Go).unwrap().started().await.unwrap();
    let kubeconfig = plane.kubeconfig(Identity::Admin).unwrap();
    let mut round = 0;
    let said = eventually("its writes to be noticed", TIME_LIMIT, async || {
        round += 1;
        create_held_namespace(&admin, &format!("held-{round}")).await;
        let (code, said) = preflight(&kubeconfig, &["--controllers=namespace-controller"]);
        // A write in the first seconds of its term cannot be attributed to that term with certainty.
        Ok((code == Some(1)).then_some(said))
    })
    .await
    .unwrap();
    assert!(
        said.contains("kube-controller-manager does the work of namespace-controller too: it wrote held-"),
        "{said}"
    );
    assert!(said.contains("leads under the Lease e2e-"), "{said}");
    // A running manager checks two seconds after its start and five minutes later. Meanwhile the Lease has a holder
    // that is not a manager, because a write after the begin of a term of its own would be noticed only by the second
    // check.
    let lease = json!({
        "metadata": { "name": "taken" },
        "spec": {
            "holderIdentity": "somebody",
            "leaseDurationSeconds": 3600,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    });
    admin.create("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", &lease).await.unwrap();
    let launch = Launch::new(&plane, Flavour::Ours).unwrap().flag("leader-elect-resource-name", "taken");
    let manager = launch.started().await.unwrap();
    let counted =
        "mini_kcm_foreign_writes_total{controller=\"namespace-controller\",manager=\"kube-controller-manager\"} ";
    eventually("it to be counted", TIME_LIMIT, async || {
        let metrics = manager.endpoints()?.send(Method::GET, "/metrics", None).await?.text;
        Ok(metrics.contains(counted).then_some(()))
    })
    .await
    .unwrap();
    let told = ["another manager also runs this controller", "leads under the Lease e2e-"];
    eventually("it to be logged", TIME_LIMIT, async || {
        let log = manager.log()?;
        Ok(told.iter().all(|it| log.contains(it)).then_some(()))
    })
    .await
    .unwrap();
}

/// kubectl as admin; without one, a message was printed that `what` does not run.
fn kubectl(plane: &ControlPlane, what: &str) -> Option<Kubectl> {
    let program = kubectl_or_skip(what)?;
    Some(Kubectl::new(program, &plane.kubeconfig(Identity::Admin).unwrap()))
}

fn apply(kubectl: &Kubectl, file: &Path) {
    kubectl.run(&format!("apply -f {}", file.display())).unwrap();
}
