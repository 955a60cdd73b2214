use std::{
    error::Error,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
};

use clock::{Clock, Instant};
use futures::{
    FutureExt,
    future::{BoxFuture, Shared, WeakShared},
};
use http::{Method, Request, Response};
use hyper::client::conn::TrySendError;
use parking_lot::Mutex;
use rustls::ClientConfig;
use tasks::Spawner;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    PoolPolicy, Unreachable,
    addresses::{dialed_together, share},
    body::{ConnectionSlot, Outgoing, RetireHandle, slot_body},
    connect::{Connector, Protocol},
    credentials::Credentials,
    http1::Http1Connection,
    http2::{Http2Connection, Http2Slot},
};
use crate::{
    Body, BoxError, Incoming, error_chain,
    layers::{Deadline, Fence},
};

/// The limit of attempts with a server that closes each connection at once.
const MAX_TRIES: usize = 100;

/// The connections for one kind of traffic; cheap to clone.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

/// The slot of a request on a connection. If it is dropped before the end of the response, the connection is closed,
/// because the rest of the response would precede the next one.
struct Http1Slot {
    connection: Http1Connection,
    pool: Pool,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot for Http1Slot {
    fn complete(self) {
        let Self { connection, pool, _permit } = self;
        // Before the permit is released, so that its next owner finds this connection.
        pool.put_idle(connection);
    }
}

struct Inner {
    policy: PoolPolicy,
    connector: Connector,
    credentials: Arc<Credentials>,
    spawner: Spawner,
    clock: Clock,
    /// One permit for each HTTP/1.1 connection in use, in FIFO order.
    http1_permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The protocol of the last connection.
    protocol: Option<Protocol>,
    http2: Vec<Arc<Http2Connection>>,
    idle: Vec<Http1Connection>,
    /// The present attempt to connect, which all waiting requests share. It is dropped with the last of them.
    opening: Option<WeakShared<Opening>>,
}

type Opening = BoxFuture<'static, Result<(), Unreachable>>;

/// How a request gets its slot.
enum SlotSource {
    Free(Http2Slot),
    /// Waits for a free stream on a connection that is full.
    Full(Arc<Http2Connection>),
    Opening(Shared<Opening>),
    Http1,
}

enum OpenedConnection {
    Http2(Http2Connection),
    Http1(Http1Connection),
}

enum AcquiredSlot {
    Http2(Http2Slot),
    Http1(Http1Slot),
}

/// A request without a response.
struct SendFailure {
    why: BoxError,
    /// True if the server has certainly not processed the request.
    never_processed: bool,
}

impl Pool {
    pub(super) fn new(
        policy: PoolPolicy,
        connector: Connector,
        credentials: Arc<Credentials>,
        spawner: Spawner,
        clock: Clock,
    ) -> Self {
        let http1_permits = Arc::new(Semaphore::new(policy.http1));
        Self(Arc::new(Inner { policy, connector, credentials, spawner, clock, http1_permits, state: Mutex::default() }))
    }

    /// Sends a request, and once more if the server has certainly not processed it: after a GOAWAY between two
    /// requests, or if an idle connection was just closed.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let again = request.clone();
        match self.send_once(request).await {
            Err(SendFailure { why, never_processed: true }) => {
                tracing::debug!(err = %error_chain(&*why), pool = self.0.policy.name, "Sending a request again that the server has not processed");
                self.send_once(again).await.map_err(|it| it.why)
            }
            other => other.map_err(|it| it.why),
        }
    }

    /// Returns a connection to the pool after its response has been read to the end.
    pub(super) fn put_idle(&self, connection: Http1Connection) {
        if !connection.retire.is_retired() {
            self.0.state.lock().idle.push(connection);
        }
    }

    async fn send_once(&self, mut request: Request<Body>) -> Result<Response<Incoming>, SendFailure> {
        let slot = self.acquire_slot().await.map_err(SendFailure::of)?;
        // The wait may have been longer than the rest of the term.
        if let Some(fence) = request.extensions().get::<Fence>().cloned() {
            fence.check(&mut request).map_err(SendFailure::of)?;
        }
        match slot {
            AcquiredSlot::Http2(slot) => self.send_on_http2(slot, request).await,
            AcquiredSlot::Http1(slot) => self.send_on_http1(slot, request).await,
        }
    }

    async fn send_on_http2(&self, slot: Http2Slot, request: Request<Body>) -> Result<Response<Incoming>, SendFailure> {
        let mut guard = self.deadline_guard(&request, slot.retire());
        let safe = is_safe(request.method());
        let (mut request, begun) = outgoing(request);
        self.0.connector.target.set_absolute_uri(&mut request).map_err(SendFailure::of)?;
        let response = slot.sender().try_send_request(request).await;
        guard.disarm();
        match response {
            Ok(response) => Ok(with_retire(response, slot.retire().clone()).map(|body| slot_body(body, slot))),
            Err(failure) => {
                let never_processed = never_processed(&failure, safe || begun.load(Ordering::Relaxed));
                if never_processed {
                    // The connection may not have processed its GOAWAY yet.
                    slot.retire().retire();
                }
                Err(SendFailure { why: failure.into_error().into(), never_processed })
            }
        }
    }

    async fn send_on_http1(
        &self,
        mut slot: Http1Slot,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendFailure> {
        let mut guard = self.deadline_guard(&request, &slot.connection.retire);
        let safe = is_safe(request.method());
        let (mut request, _) = outgoing(request);
        self.0.connector.target.set_relative_uri(&mut request).map_err(SendFailure::of)?;
        let response = slot.connection.sender.try_send_request(request).await;
        guard.disarm();
        match response {
            Ok(response) => Ok(with_retire(response, slot.connection.retire.clone()).map(|body| slot_body(body, slot))),
            Err(failure) => {
                // An idle connection may be closed at the moment when a request is sent. A read can simply be sent
                // again.
                let closed = safe && failure.error().is_incomplete_message();
                let never_processed = closed || failure.message().is_some();
                Err(SendFailure { why: failure.into_error().into(), never_processed })
            }
        }
    }

    fn deadline_guard(&self, request: &Request<Body>, retire: &RetireHandle) -> DeadlineGuard {
        let clock = self.0.clock.clone();
        let deadline = request.extensions().get::<Deadline>().copied();
        DeadlineGuard { deadline, since: clock.now(), clock, retire: retire.clone(), pool: self.0.policy.name }
    }

    /// A free slot on a connection. Opens a connection if there is none.
    async fn acquire_slot(&self) -> Result<AcquiredSlot, Unreachable> {
        for _ in 0..MAX_TRIES {
            match self.find_slot() {
                SlotSource::Free(slot) => return Ok(AcquiredSlot::Http2(slot)),
                SlotSource::Full(connection) => {
                    let slot = connection.wait_for_slot().await;
                    if let Some(slot) = slot.filter(|_| connection.is_usable(self.0.credentials.generation())) {
                        return Ok(AcquiredSlot::Http2(slot));
                    }
                }
                SlotSource::Opening(opening) => opening.await?,
                SlotSource::Http1 => {
                    if let Some(slot) = self.acquire_http1_slot().await? {
                        return Ok(AcquiredSlot::Http1(slot));
                    }
                }
            }
        }
        Err(Unreachable("connections close as soon as they are open".to_owned()))
    }

    /// Finds a slot, or starts to open a connection.
    fn find_slot(&self) -> SlotSource {
        let generation = self.0.credentials.generation();
        let mut state = self.0.state.lock();
        state.http2.retain(|it| it.is_usable(generation));
        state.idle.retain(|it| it.is_usable(generation));
        if let Some(slot) = state.http2.iter().find_map(Http2Connection::try_take_slot) {
            return SlotSource::Free(slot);
        }
        if self.0.policy.streams.is_none()
            && let Some(full) = state.http2.first()
        {
            return SlotSource::Full(full.clone());
        }
        if state.protocol == Some(Protocol::Http1) {
            return SlotSource::Http1;
        }
        if let Some(opening) = state.opening.as_ref().and_then(WeakShared::upgrade) {
            return SlotSource::Opening(opening);
        }
        let pool = self.clone();
        let opening = async move { pool.open().await }.boxed().shared();
        state.opening = opening.downgrade();
        SlotSource::Opening(opening)
    }

    /// Connects for all waiting requests.
    async fn open(&self) -> Result<(), Unreachable> {
        let opened = self.connect().await;
        let mut state = self.0.state.lock();
        state.opening = None;
        match opened? {
            OpenedConnection::Http2(connection) => state.add(connection),
            OpenedConnection::Http1(connection) => {
                state.protocol = Some(Protocol::Http1);
                state.idle.push(connection);
            }
        }
        Ok(())
    }

    /// A slot on an HTTP/1.1 connection; `None` if the server supports HTTP/2 now.
    async fn acquire_http1_slot(&self) -> Result<Option<Http1Slot>, Unreachable> {
        let permit = self.0.http1_permits.clone().acquire_owned().await.map_err(|err| Unreachable(err.to_string()))?;
        let generation = self.0.credentials.generation();
        loop {
            let Some(mut connection) = self.0.state.lock().idle.pop() else { break };
            if connection.is_usable(generation) && connection.sender.ready().await.is_ok() {
                return Ok(Some(Http1Slot { connection, pool: self.clone(), _permit: permit }));
            }
        }
        match self.connect().await? {
            OpenedConnection::Http1(connection) => {
                Ok(Some(Http1Slot { connection, pool: self.clone(), _permit: permit }))
            }
            OpenedConnection::Http2(connection) => {
                self.0.state.lock().add(connection);
                Ok(None)
            }
        }
    }

    /// Dials one address after the other. Each has its share of the time, and the last has the rest. An address that
    /// accepts a connection and stays silent must not be the first in the next dial too.
    async fn connect(&self) -> Result<OpenedConnection, Unreachable> {
        let Inner { policy, connector, credentials, clock, .. } = &*self.0;
        let until = clock.now() + policy.connect_timeout;
        let preparing = async {
            let (tls, generation) = credentials.tls().await?;
            Ok((tls, generation, connector.addresses().await?))
        };
        let (tls, generation, mut addresses) = self.within(until, preparing).await?;
        connector.failed.sort(&mut addresses, clock.now());
        let mut outcome = Err(Unreachable("the name of the server has no address".to_owned()));
        for (index, address) in addresses.iter().enumerate() {
            let is_last = index + 1 == addresses.len();
            let limit = if is_last { until } else { until.min(clock.now() + share(policy.connect_timeout)) };
            outcome = self.within(limit, self.open_on(&addresses[index..], tls.clone(), generation)).await;
            let Err(Unreachable(why)) = &mut outcome else { break };
            *why = format!("{}: {why}", address.ip());
            connector.failed.insert(address.ip(), clock.now());
            if is_last || clock.now() >= until {
                break;
            }
            tracing::debug!(why, pool = policy.name, "Cannot connect: dialing the next address");
        }
        outcome
    }

    async fn open_on(
        &self,
        addresses: &[SocketAddr],
        tls: Option<Arc<ClientConfig>>,
        generation: u64,
    ) -> Result<OpenedConnection, BoxError> {
        let Inner { policy, connector, spawner, .. } = &*self.0;
        let (io, protocol) = connector.connect(dialed_together(addresses), tls).await?;
        tracing::debug!(target: "v2", pool = policy.name, ?protocol, "Connected to the API server");
        Ok(match protocol {
            Protocol::Http2 => {
                OpenedConnection::Http2(Http2Connection::open(io, spawner, generation, policy.streams).await?)
            }
            Protocol::Http1 => OpenedConnection::Http1(Http1Connection::open(io, spawner, generation).await?),
        })
    }

    async fn within<T>(
        &self,
        until: Instant,
        opening: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, Unreachable> {
        let limit = until.saturating_duration_since(self.0.clock.now());
        match tokio::time::timeout(limit, opening).await {
            Ok(opened) => opened.map_err(|err| Unreachable(error_chain(&*err))),
            Err(_) => Err(Unreachable(format!("no connection within {:.1} s", limit.as_secs_f64()))),
        }
    }
}

impl State {
    fn add(&mut self, connection: Http2Connection) {
        self.protocol = Some(Protocol::Http2);
        self.http2.push(Arc::new(connection));
    }
}

impl SendFailure {
    /// For a request that was not sent and must not be sent again.
    fn of(why: impl Into<BoxError>) -> Self {
        Self { why: why.into(), never_processed: false }
    }
}

/// Retires a connection that has sent no response head by the deadline. A caller that is dropped earlier proves
/// nothing.
struct DeadlineGuard {
    deadline: Option<Deadline>,
    since: Instant,
    clock: Clock,
    retire: RetireHandle,
    pool: &'static str,
}

impl DeadlineGuard {
    fn disarm(&mut self) {
        self.deadline = None;
    }
}

impl Drop for DeadlineGuard {
    fn drop(&mut self) {
        let Some(Deadline { at, limit }) = self.deadline else { return };
        let now = self.clock.now();
        // If most of the time was a wait for the connection, the connection is not the cause.
        if now >= at && now.saturating_duration_since(self.since) >= limit / 2 {
            tracing::warn!(pool = self.pool, "No response in time: later requests use another connection");
            self.retire.retire();
        }
    }
}

fn outgoing(request: Request<Body>) -> (Request<Outgoing>, Arc<std::sync::atomic::AtomicBool>) {
    let (parts, body) = request.into_parts();
    let (body, begun) = Outgoing::new(body);
    (Request::from_parts(parts, body), begun)
}

fn with_retire<B>(mut response: Response<B>, retire: RetireHandle) -> Response<B> {
    response.extensions_mut().insert(retire);
    response
}

/// Sending such a request twice has the same effect as sending it once.
fn is_safe(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// True if the server has certainly not processed the request: hyper returned it, or the server reported so.
fn never_processed<T>(failure: &TrySendError<T>, is_goaway_proof: bool) -> bool {
    if failure.message().is_some() {
        return true;
    }
    let mut source: Option<&(dyn Error + 'static)> = failure.error().source();
    while let Some(err) = source {
        if let Some(err) = err.downcast_ref::<h2::Error>() {
            let refused = err.is_reset() && err.reason() == Some(h2::Reason::REFUSED_STREAM);
            return err.is_remote() && (refused || (err.is_go_away() && is_goaway_proof));
        }
        source = err.source();
    }
    false
}
