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
    schedule::{Refused, Schedule},
};
use crate::{
    Api, ApiError, NotSent,
    error::chain,
    layers::{Authorize, Shown, Tokens, bearer},
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
    wanted: Notify,
    /// Wakes the requests that wait for the end of the next attempt, in FIFO order. A `watch` would wake them in random
    /// order.
    tried: Notify,
}

impl Accounts {
    /// Accounts that request their tokens through `api`. The term does not fence it, so that a standby has its tokens
    /// ready.
    #[must_use]
    pub(crate) fn new(api: Api, clock: Clock, spawner: Spawner, metrics: &Metrics) -> Self {
        let requests = metrics.counters(
            "mini_kcm_service_account_token_requests_total",
            "Tokens asked for as a controller's own identity, by result: issued or failed.",
            &["account", "result"],
        );
        Self(Arc::new(Inner { api, clock, spawner, requests, accounts: Mutex::default() }))
    }

    /// The account of this name in kube-system. Its first token is requested now.
    #[must_use]
    pub fn account(&self, name: &str) -> Account {
        let mut accounts = self.0.accounts.lock();
        if let Some(known) = accounts.get(name) {
            return known.clone();
        }
        let account = Account(Arc::new(Identity {
            name: name.into(),
            clock: self.0.clock.clone(),
            schedule: Mutex::new(Schedule::new(self.0.clock.now())),
            wanted: Notify::new(),
            tried: Notify::new(),
        }));
        accounts.insert(name.into(), account.clone());
        let kept = self.0.clone().keep(account.clone());
        self.0.spawner.spawn("service account token", kept);
        account
    }
}

impl Inner {
    /// Renews the token of an account until the manager ends.
    async fn keep(self: Arc<Self>, account: Account) {
        let Account(identity) = account;
        loop {
            let next = identity.schedule.lock().next();
            tokio::select! {
                biased;
                () = identity.wanted.notified() => {}
                () = tokio::time::sleep_until(next) => {}
            }
            if identity.schedule.lock().next() <= self.clock.now() {
                self.renew(&identity).await;
            }
        }
    }

    async fn renew(&self, identity: &Identity) {
        let asked = self.clock.now();
        let answer = request::token(&self.api, &identity.name, &self.clock).await;
        let result = if answer.is_ok() { "issued" } else { "failed" };
        self.requests.with_label_values(&[&*identity.name, result]).inc();
        let mut schedule = identity.schedule.lock();
        let account = &*identity.name;
        match answer {
            Ok(Issued { token, life }) => {
                if schedule.is_failing() {
                    tracing::info!(account, "a token has come after all");
                }
                tracing::debug!(account, ?life, "token issued");
                schedule.issued(token, life, asked);
            }
            Err(err) => {
                let why = chain(&err);
                let now = self.clock.now();
                match schedule.usable(now) {
                    Some(_) => tracing::warn!(account, err = %why, "cannot renew the token; the old one is used on"),
                    None => tracing::warn!(account, err = %why, "no token: its controllers can do nothing"),
                }
                schedule.failed(why, now);
            }
        }
        drop(schedule);
        identity.tried.notify_waiters();
    }
}

impl Account {
    pub(crate) fn authorize(&self) -> Authorize {
        bearer(self.0.clone())
    }
}

impl Identity {
    fn usable(&self) -> Option<Shown> {
        let held = self.schedule.lock().usable(self.clock.now())?;
        Some(Shown { value: Some(held.token), serial: held.serial })
    }
}

impl Tokens for Identity {
    fn token(&self) -> BoxFuture<'_, Result<Shown, ApiError>> {
        Box::pin(async move {
            loop {
                // Registered before the check, so that an attempt that ends in between is not missed.
                let tried = self.tried.notified();
                if let Some(shown) = self.usable() {
                    return Ok(shown);
                }
                if let Some(why) = self.schedule.lock().gives_up() {
                    let text = format!("no token of ServiceAccount {ACCOUNT_NAMESPACE}/{}: {why}", self.name);
                    return Err(ApiError::NotSent(NotSent::Unidentified(text)));
                }
                tried.await;
            }
        })
    }

    fn refused(&self, serial: u64) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let tried = self.tried.notified();
            let decision = self.schedule.lock().refused(serial, self.clock.now());
            match decision {
                Refused::Newer => true,
                Refused::Stands => false,
                Refused::Renew => {
                    tracing::info!(account = %self.name, "the token was refused: asking for another");
                    self.wanted.notify_one();
                    tried.await;
                    self.usable().is_some_and(|it| it.serial != serial)
                }
            }
        })
    }
}
