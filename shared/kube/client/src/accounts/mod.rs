//! The identities of controllers under `--use-service-account-credentials`.
//!
//! Each is a ServiceAccount in kube-system with tokens from TokenRequest. One task per account requests the first token
//! at once and renews it long before it expires, so that normally no request waits for a token. Reading order:
//! `schedule` decides when to request a token and how to handle a refusal, `request` sends the requests, and this file
//! combines them with timers.

mod request;
mod schedule;

use std::{collections::BTreeMap, sync::Arc};

use clock::Clock;
use futures::future::BoxFuture;
use http::HeaderValue;
use metrics::{IntCounterVec, Metrics};
use parking_lot::Mutex;
use tasks::Spawner;
use tokio::sync::Notify;

use self::{
    request::Issued,
    schedule::{RefusalOutcome, Schedule},
};
use crate::{
    Api, ApiError, NotSent, error_chain,
    layers::{Authorize, RequestCredential, TokenSource, bearer},
};

/// The namespace of the controllers' ServiceAccounts.
pub const ACCOUNT_NAMESPACE: &str = "kube-system";

/// The user name of the ServiceAccount of this name.
#[must_use]
pub fn account_user(name: &str) -> String {
    format!("system:serviceaccount:{ACCOUNT_NAMESPACE}:{name}")
}

/// The accounts of one manager; cheap to clone. Each account exists at most once.
#[derive(Clone)]
pub struct Accounts(Arc<Inner>);

struct Inner {
    api: Api,
    clock: Clock,
    spawner: Spawner,
    requests: IntCounterVec,
    accounts: Mutex<BTreeMap<Box<str>, Account>>,
}

/// One identity; cheap to clone.
#[derive(Clone)]
pub struct Account(Arc<Identity>);

struct Identity {
    name: Box<str>,
    clock: Clock,
    schedule: Mutex<Schedule<HeaderValue>>,
    /// Wakes the task of the account: a token was refused.
    refused: Notify,
    /// Wakes the requests that wait for the end of the next attempt, in FIFO order. A `watch` would wake them in random
    /// order.
    attempted: Notify,
}

impl Accounts {
    /// Accounts that request their tokens through `api`. The term does not fence it, so that a standby has its tokens
    /// ready.
    #[must_use]
    pub(crate) fn new(api: Api, clock: Clock, spawner: Spawner, metrics: &Metrics) -> Self {
        let requests = metrics.counters(
            "mini_kcm_service_account_token_requests_total",
            "Tokens requested for controllers' accounts, by result: issued or failed.",
            &["account", "result"],
        );
        Self(Arc::new(Inner { api, clock, spawner, requests, accounts: Mutex::default() }))
    }

    /// The account of this name in kube-system. Its first token is requested now.
    #[must_use]
    pub fn account(&self, name: &str) -> Account {
        let mut accounts = self.0.accounts.lock();
        if let Some(existing) = accounts.get(name) {
            return existing.clone();
        }
        let account = Account(Arc::new(Identity {
            name: name.into(),
            clock: self.0.clock.clone(),
            schedule: Mutex::new(Schedule::new(self.0.clock.now())),
            refused: Notify::new(),
            attempted: Notify::new(),
        }));
        accounts.insert(name.into(), account.clone());
        let renewing = self.0.clone().keep_renewed(account.clone());
        self.0.spawner.spawn("service account token", renewing);
        account
    }
}

impl Inner {
    /// Renews the token of an account until the manager ends.
    async fn keep_renewed(self: Arc<Self>, account: Account) {
        let Account(identity) = account;
        loop {
            let next = identity.schedule.lock().next_deadline();
            tokio::select! {
                biased;
                () = identity.refused.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            if identity.schedule.lock().next_deadline() <= self.clock.now() {
                self.renew(&identity).await;
            }
        }
    }

    async fn renew(&self, identity: &Identity) {
        let requested = self.clock.now();
        let issued = request::token(&self.api, &identity.name, &self.clock).await;
        let label = if issued.is_ok() { "issued" } else { "failed" };
        self.requests.with_label_values(&[&*identity.name, label]).inc();
        let mut schedule = identity.schedule.lock();
        let account = &*identity.name;
        match issued {
            Ok(Issued { token, life }) => {
                if schedule.is_failing() {
                    tracing::info!(account, "the token was renewed after failures");
                }
                tracing::debug!(account, ?life, "token issued");
                schedule.record_issued(token, life, requested);
            }
            Err(err) => {
                let why = error_chain(&err);
                let now = self.clock.now();
                match schedule.valid_token(now) {
                    Some(_) => tracing::warn!(account, err = %why, "cannot renew the token; the old one is still used"),
                    None => tracing::warn!(account, err = %why, "no token: its controllers cannot send requests"),
                }
                schedule.record_failure(why, now);
            }
        }
        drop(schedule);
        identity.attempted.notify_waiters();
    }
}

impl Account {
    pub(crate) fn authorize(&self) -> Authorize {
        bearer(self.0.clone())
    }
}

impl Identity {
    fn valid_credential(&self) -> Option<RequestCredential> {
        let current = self.schedule.lock().valid_token(self.clock.now())?;
        Some(RequestCredential { value: Some(current.token), serial: current.serial })
    }
}

impl TokenSource for Identity {
    fn token(&self) -> BoxFuture<'_, Result<RequestCredential, ApiError>> {
        Box::pin(async move {
            loop {
                // Registered before the check, so that an attempt that ends in between is not missed.
                let attempted = self.attempted.notified();
                if let Some(credential) = self.valid_credential() {
                    return Ok(credential);
                }
                if let Some(why) = self.schedule.lock().final_error() {
                    let text = format!("no token of ServiceAccount {ACCOUNT_NAMESPACE}/{}: {why}", self.name);
                    return Err(ApiError::NotSent(NotSent::Unidentified(text)));
                }
                attempted.await;
            }
        })
    }

    fn on_refused(&self, serial: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let attempted = self.attempted.notified();
            let outcome = self.schedule.lock().on_refused(serial, self.clock.now());
            match outcome {
                RefusalOutcome::Newer => true,
                RefusalOutcome::Final => false,
                RefusalOutcome::Renew => {
                    tracing::info!(account = %self.name, "the token was refused: requesting another");
                    self.refused.notify_one();
                    attempted.await;
                    self.valid_credential().is_some_and(|it| it.serial != serial)
                }
            }
        })
    }
}
