use std::{
    error::Error,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
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
use tokio::sync::Semaphore;

use super::{
    Unreachable,
    addresses::{dialed_together, share},
    body::{Outgoing, Retire, held},
    connect::{Connector, Protocol},
    credentials::Credentials,
    http1::{Single, Turn},
    http2::{Multiplexed, Stream},
};
use crate::{
    Body, BoxError, Incoming,
    error::chain,
    layers::{Deadline, Fence},
};

/// The limit of attempts with a server that closes each connection at once.
const MOST_TRIES: usize = 100;

/// How one kind of traffic uses connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Policy {
    pub(super) name: &'static str,
    /// The maximum number of streams on an HTTP/2 connection; more streams need another connection. `None` means one
    /// connection with the server's own limit. Other requests wait in this pool, where the fence can still stop a
    /// write. Inside the connection it could not.
    pub(super) streams: Option<usize>,
    /// The maximum number of connections if the server supports only HTTP/1.1.
    pub(super) http1: usize,
    pub(super) connect_timeout: Duration,
    /// The read buffer below TLS and HTTP/2, for connections with much incoming data.
    pub(super) read_buffer: Option<usize>,
}

/// The connections for one kind of traffic; cheap to clone.
#[derive(Clone)]
pub(super) struct Pool(Arc<Inner>);

struct Inner {
    policy: Policy,
    connector: Connector,
    credentials: Arc<Credentials>,
    spawner: Spawner,
    clock: Clock,
    /// One permit for each HTTP/1.1 connection in use, in FIFO order.
    turns: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The protocol of the last connection.
    speaks: Option<Protocol>,
    multiplexed: Vec<Arc<Multiplexed>>,
    resting: Vec<Single>,
    /// The present attempt to connect, which all waiting requests share. It is dropped with the last of them.
    opening: Option<WeakShared<Opening>>,
}

type Opening = BoxFuture<'static, Result<(), Unreachable>>;

enum Step {
    Take(Stream),
    /// Wait for a free stream on a connection that is full.
    Wait(Arc<Multiplexed>),
    Join(Shared<Opening>),
    Turn,
}

enum Opened {
    Multiplexed(Multiplexed),
    Single(Single),
}

enum Place {
    Stream(Stream),
    Turn(Turn),
}

/// A request without a response.
struct Failed {
    why: BoxError,
    /// True if the server has certainly not processed the request.
    never_processed: bool,
}

impl Pool {
    pub(super) fn new(
        policy: Policy,
        connector: Connector,
        credentials: Arc<Credentials>,
        spawner: Spawner,
        clock: Clock,
    ) -> Self {
        let turns = Arc::new(Semaphore::new(policy.http1));
        Self(Arc::new(Inner { policy, connector, credentials, spawner, clock, turns, state: Mutex::default() }))
    }

    /// Sends a request, and once more if the server has certainly not processed it: after a GOAWAY between two
    /// requests, or if an idle connection was just closed.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, BoxError> {
        let again = request.clone();
        match self.send_once(request).await {
            Err(Failed { why, never_processed: true }) => {
                tracing::debug!(err = %chain(&*why), pool = self.0.policy.name, "Sending again what the server has not processed");
                self.send_once(again).await.map_err(|it| it.why)
            }
            other => other.map_err(|it| it.why),
        }
    }

    /// Returns a connection to the pool after its response has been read to the end.
    pub(super) fn rest(&self, single: Single) {
        if !single.retire.is_retired() {
            self.0.state.lock().resting.push(single);
        }
    }

    async fn send_once(&self, mut request: Request<Body>) -> Result<Response<Incoming>, Failed> {
        let place = self.place().await.map_err(Failed::of)?;
        // The wait may have been longer than the rest of the term.
        if let Some(fence) = request.extensions().get::<Fence>().cloned() {
            fence.pass(&mut request).map_err(Failed::of)?;
        }
        match place {
            Place::Stream(stream) => self.on_stream(stream, request).await,
            Place::Turn(turn) => self.on_turn(turn, request).await,
        }
    }

    async fn on_stream(&self, stream: Stream, request: Request<Body>) -> Result<Response<Incoming>, Failed> {
        let mut patience = self.patience(&request, stream.retire());
        let safe = is_safe(request.method());
        let (mut request, begun) = outgoing(request);
        self.0.connector.target.absolute(&mut request).map_err(Failed::of)?;
        let answer = stream.sender().try_send_request(request).await;
        patience.over();
        match answer {
            Ok(answer) => Ok(with_retire(answer, stream.retire().clone()).map(|body| held(body, stream))),
            Err(failure) => {
                let never_processed = never_processed(&failure, safe || begun.load(Ordering::Relaxed));
                if never_processed {
                    // The connection may not have processed its GOAWAY yet.
                    stream.retire().retire();
                }
                Err(Failed { why: failure.into_error().into(), never_processed })
            }
        }
    }

    async fn on_turn(&self, mut turn: Turn, request: Request<Body>) -> Result<Response<Incoming>, Failed> {
        let mut patience = self.patience(&request, &turn.single.retire);
        let safe = is_safe(request.method());
        let (mut request, _) = outgoing(request);
        self.0.connector.target.relative(&mut request).map_err(Failed::of)?;
        let answer = turn.single.sender.try_send_request(request).await;
        patience.over();
        match answer {
            Ok(answer) => Ok(with_retire(answer, turn.single.retire.clone()).map(|body| held(body, turn))),
            Err(failure) => {
                // An idle connection may be closed at the moment when a request is sent. A read can simply be sent
                // again.
                let closed = safe && failure.error().is_incomplete_message();
                let never_processed = closed || failure.message().is_some();
                Err(Failed { why: failure.into_error().into(), never_processed })
            }
        }
    }

    fn patience(&self, request: &Request<Body>, retire: &Retire) -> Patience {
        let clock = self.0.clock.clone();
        let deadline = request.extensions().get::<Deadline>().copied();
        Patience { deadline, since: clock.now(), clock, retire: retire.clone(), pool: self.0.policy.name }
    }

    /// A free stream or turn on a connection. Opens a connection if there is none.
    async fn place(&self) -> Result<Place, Unreachable> {
        for _ in 0..MOST_TRIES {
            match self.step() {
                Step::Take(stream) => return Ok(Place::Stream(stream)),
                Step::Wait(full) => {
                    let stream = full.wait().await;
                    if let Some(stream) = stream.filter(|_| full.is_usable(self.0.credentials.generation())) {
                        return Ok(Place::Stream(stream));
                    }
                }
                Step::Join(opening) => opening.await?,
                Step::Turn => {
                    if let Some(turn) = self.turn().await? {
                        return Ok(Place::Turn(turn));
                    }
                }
            }
        }
        Err(Unreachable("connections close as soon as they are open".to_owned()))
    }

    fn step(&self) -> Step {
        let generation = self.0.credentials.generation();
        let mut state = self.0.state.lock();
        state.multiplexed.retain(|it| it.is_usable(generation));
        state.resting.retain(|it| it.is_usable(generation));
        if let Some(stream) = state.multiplexed.iter().find_map(Multiplexed::take) {
            return Step::Take(stream);
        }
        if self.0.policy.streams.is_none()
            && let Some(full) = state.multiplexed.first()
        {
            return Step::Wait(full.clone());
        }
        if state.speaks == Some(Protocol::Http1) {
            return Step::Turn;
        }
        if let Some(opening) = state.opening.as_ref().and_then(WeakShared::upgrade) {
            return Step::Join(opening);
        }
        let pool = self.clone();
        let opening = async move { pool.open().await }.boxed().shared();
        state.opening = opening.downgrade();
        Step::Join(opening)
    }

    /// Connects for all waiting requests.
    async fn open(&self) -> Result<(), Unreachable> {
        let opened = self.connect().await;
        let mut state = self.0.state.lock();
        state.opening = None;
        match opened? {
            Opened::Multiplexed(connection) => state.add(connection),
            Opened::Single(single) => {
                state.speaks = Some(Protocol::Http1);
                state.resting.push(single);
            }
        }
        Ok(())
    }

    /// A turn on an HTTP/1.1 connection; `None` if the server supports HTTP/2 now.
    async fn turn(&self) -> Result<Option<Turn>, Unreachable> {
        let permit = self.0.turns.clone().acquire_owned().await.map_err(|err| Unreachable(err.to_string()))?;
        let generation = self.0.credentials.generation();
        loop {
            let Some(mut single) = self.0.state.lock().resting.pop() else { break };
            if single.is_usable(generation) && single.sender.ready().await.is_ok() {
                return Ok(Some(Turn { single, pool: self.clone(), _permit: permit }));
            }
        }
        match self.connect().await? {
            Opened::Single(single) => Ok(Some(Turn { single, pool: self.clone(), _permit: permit })),
            Opened::Multiplexed(connection) => {
                self.0.state.lock().add(connection);
                Ok(None)
            }
        }
    }

    /// Dials one address after the other. Each has its share of the time, and the last has the rest. An address that
    /// accepts a connection and stays silent must not be the first in the next dial too.
    async fn connect(&self) -> Result<Opened, Unreachable> {
        let Inner { policy, connector, credentials, clock, .. } = &*self.0;
        let until = clock.now() + policy.connect_timeout;
        let preparing = async {
            let (tls, generation) = credentials.tls().await?;
            Ok((tls, generation, connector.addresses().await?))
        };
        let (tls, generation, mut addresses) = self.before(until, preparing).await?;
        connector.failed.sort(&mut addresses, clock.now());
        let mut outcome = Err(Unreachable("the name of the server has no address".to_owned()));
        for (index, address) in addresses.iter().enumerate() {
            let is_last = index + 1 == addresses.len();
            let limit = if is_last { until } else { until.min(clock.now() + share(policy.connect_timeout)) };
            outcome = self.before(limit, self.open_on(&addresses[index..], tls.clone(), generation)).await;
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
    ) -> Result<Opened, BoxError> {
        let Inner { policy, connector, spawner, .. } = &*self.0;
        let (io, protocol) = connector.connect(dialed_together(addresses), tls).await?;
        tracing::debug!(target: "v2", pool = policy.name, ?protocol, "Connected to the API server");
        Ok(match protocol {
            Protocol::Http2 => Opened::Multiplexed(Multiplexed::open(io, spawner, generation, policy.streams).await?),
            Protocol::Http1 => Opened::Single(Single::open(io, spawner, generation).await?),
        })
    }

    async fn before<T>(
        &self,
        until: Instant,
        opening: impl Future<Output = Result<T, BoxError>>,
    ) -> Result<T, Unreachable> {
        let limit = until.saturating_duration_since(self.0.clock.now());
        match tokio::time::timeout(limit, opening).await {
            Ok(opened) => opened.map_err(|err| Unreachable(chain(&*err))),
            Err(_) => Err(Unreachable(format!("no connection within {:.1} s", limit.as_secs_f64()))),
        }
    }
}

impl State {
    fn add(&mut self, connection: Multiplexed) {
        self.speaks = Some(Protocol::Http2);
        self.multiplexed.push(Arc::new(connection));
    }
}

impl Failed {
    /// For a request that was not sent and must not be sent again.
    fn of(why: impl Into<BoxError>) -> Self {
        Self { why: why.into(), never_processed: false }
    }
}

/// Retires a connection that has sent no response head by the deadline. A caller that is dropped earlier proves
/// nothing.
struct Patience {
    deadline: Option<Deadline>,
    since: Instant,
    clock: Clock,
    retire: Retire,
    pool: &'static str,
}

impl Patience {
    fn over(&mut self) {
        self.deadline = None;
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        let Some(Deadline { at, limit }) = self.deadline else { return };
        let now = self.clock.now();
        // If most of the time was a wait for the connection, the connection is not the cause.
        if now >= at && now.saturating_duration_since(self.since) >= limit / 2 {
            tracing::warn!(pool = self.pool, "No answer in time: later requests go to another connection");
            self.retire.retire();
        }
    }
}

fn outgoing(request: Request<Body>) -> (Request<Outgoing>, Arc<std::sync::atomic::AtomicBool>) {
    let (parts, body) = request.into_parts();
    let (body, begun) = Outgoing::new(body);
    (Request::from_parts(parts, body), begun)
}

fn with_retire<B>(mut answer: Response<B>, retire: Retire) -> Response<B> {
    answer.extensions_mut().insert(retire);
    answer
}

/// Sending such a request twice has the same effect as sending it once.
fn is_safe(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// True if the server has certainly not processed the request: hyper returned it, or the server reported so.
fn never_processed<T>(failure: &TrySendError<T>, tellable: bool) -> bool {
    if failure.message().is_some() {
        return true;
    }
    let mut source: Option<&(dyn Error + 'static)> = failure.error().source();
    while let Some(err) = source {
        if let Some(err) = err.downcast_ref::<h2::Error>() {
            let refused = err.is_reset() && err.reason() == Some(h2::Reason::REFUSED_STREAM);
            return err.is_remote() && (refused || (err.is_go_away() && tellable));
        }
        source = err.source();
    }
    false
}
