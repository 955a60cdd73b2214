use std::{
    any::{Any, TypeId},
    sync::{Arc, Weak},
};

use api::{Cached, Meta, Resource, Typed};
use client::Watcher;
use clock::Clock;
use fastrand::Rng;
use metrics::Metrics;
use parking_lot::Mutex;
use tasks::{Spawner, Task};
use tokio::sync::mpsc;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    Dynamic, HandlerRegistration, Informer, MetaChange, Scope, Sink, Store, Watched,
    driver::{Driver, ReadState},
    dynamic::SinkReceiver,
    handlers::Handlers,
    informer::MetadataSource,
    metrics::{Families, Meter},
    receiver::{ObjectReceiver, StoreWithHandlers},
    reflector::{InformerKind, Reflector},
    store::Progress,
    watched::InformerState,
};

/// What informers get from the manager.
#[derive(Clone)]
pub struct Environment {
    /// The client for list and watch.
    pub watcher: Watcher,
    /// The clock.
    pub clock: Clock,
    /// The metrics registry of the manager.
    pub metrics: Metrics,
    /// Where the informers' tasks are started.
    pub spawner: Spawner,
    /// The seed of all random choices: timeouts, jitter, hashing.
    pub rng_seed: u64,
}

/// The informers of one manager: each is started at its first use, at most one per type. Cheap to clone.
#[derive(Clone)]
pub struct Informers(Arc<Inner>);

struct Inner {
    environment: Environment,
    families: Arc<Families>,
    rng: Mutex<Rng>,
    /// In the order of their start.
    typed: Mutex<Vec<TypedInformer>>,
    /// The state of all running informers, for the metrics.
    states: Mutex<Vec<Weak<InformerState>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A typed informer.
struct TypedInformer {
    of: TypeId,
    /// The `Informer<T>`.
    informer: Box<dyn Any + Send + Sync>,
    /// The same informer without its type parameter.
    metadata_source: Arc<dyn MetadataSource>,
    watched: Arc<dyn Watched>,
}

impl Informers {
    /// A registry without informers.
    #[must_use]
    pub fn new(environment: Environment) -> Self {
        let families = Arc::new(Families::new(&environment.metrics));
        let inner = Arc::new(Inner {
            rng: Mutex::new(Rng::with_seed(environment.rng_seed)),
            families,
            typed: Mutex::default(),
            states: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            environment,
        });
        let weak = Arc::downgrade(&inner);
        inner.environment.metrics.before_encode(move || {
            let Some(inner) = weak.upgrade() else { return };
            let running = inner.running();
            let silences = running.iter().filter_map(|it| Some((it.meter(), it.silent_for()?)));
            inner.families.create_series(silences);
        });
        let families = Arc::downgrade(&inner.families);
        inner.environment.metrics.after_encode(move || {
            if let Some(families) = families.upgrade() {
                families.remove_series();
            }
        });
        Self(inner)
    }

    /// The informer of `T`, started now if it is the first use.
    #[must_use]
    pub fn typed<T: Typed>(&self) -> Informer<T> {
        let mut typed = self.0.typed.lock();
        if let Some(informer) = find(&typed) {
            return informer;
        }
        let (informer, _, _) = self.0.start_with_store::<T>(T::resource(), None, InformerKind::Typed);
        typed.push(TypedInformer {
            of: TypeId::of::<T>(),
            informer: Box::new(informer.clone()),
            metadata_source: Arc::new(informer.clone()),
            watched: informer.watched(),
        });
        informer
    }

    /// The informer of `T`, if it was started before.
    #[must_use]
    pub fn existing<T: Typed>(&self) -> Option<Informer<T>> {
        find(&self.0.typed.lock())
    }

    /// Adds a metadata handler to the typed informer of a resource, if it was started before, like
    /// [`Informer::add_handler`]. So nothing is watched or stored twice. `None` if there is no typed informer of
    /// exactly this version.
    pub fn existing_metadata(
        &self,
        of: &Resource,
        name: &'static str,
        handler: impl Fn(MetaChange<'_>) + Send + Sync + 'static,
    ) -> Option<HandlerRegistration> {
        let metadata_source =
            self.0.typed.lock().iter().find(|it| it.watched.resource() == of)?.metadata_source.clone();
        Some(metadata_source.add_metadata_handler(name, Box::new(handler)))
    }

    /// A new informer of a resource's metadata with a store of its own. It is not shared and stops when its handle is
    /// dropped.
    #[must_use]
    pub fn dynamic(&self, resource: Resource, scope: Scope) -> Dynamic<Informer<Meta>> {
        let (informer, task, stop) =
            self.0.start_with_store::<Meta>(resource, scope.namespace(), InformerKind::Dynamic);
        let watched = informer.watched();
        Dynamic::new(informer, watched, task, stop)
    }

    /// A new informer of a resource's metadata that writes to `sink` and stores nothing. It stops when its handle is
    /// dropped.
    #[must_use]
    pub fn dynamic_into<S: Sink>(&self, resource: Resource, scope: Scope, sink: Arc<S>) -> Dynamic<Arc<S>> {
        let receiver = Arc::new(SinkReceiver(sink.clone()));
        let stop = self.0.stop.child_token();
        let meter = Arc::new(Meter::new(self.0.families.clone(), &resource, InformerKind::Dynamic));
        let options = InformerOptions {
            resource,
            namespace: scope.namespace(),
            kind: InformerKind::Dynamic,
            stop: stop.clone(),
            meter,
        };
        let (state, task) = self.0.start::<Meta, _>(options, receiver, Arc::default());
        Dynamic::new(sink, state, task, stop)
    }

    /// The freshness of all typed informers, in the order of their start.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<dyn Watched>> {
        self.0.typed.lock().iter().map(|it| it.watched.clone()).collect()
    }

    /// Stops all informers: no handler call begins after this call, and running ones have ended when this returns.
    pub async fn shut_down(&self) {
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

fn find<T: Typed>(typed: &[TypedInformer]) -> Option<Informer<T>> {
    let found = typed.iter().find(|it| it.of == TypeId::of::<T>())?;
    found.informer.downcast_ref::<Informer<T>>().cloned()
}

/// The parameters of a new informer.
struct InformerOptions {
    resource: Resource,
    namespace: Option<api::Atom>,
    kind: InformerKind,
    stop: CancellationToken,
    meter: Arc<Meter>,
}

impl Inner {
    /// Starts an informer with a store and handlers.
    fn start_with_store<T: Cached>(
        &self,
        resource: Resource,
        namespace: Option<api::Atom>,
        kind: InformerKind,
    ) -> (Informer<T>, Task, CancellationToken) {
        let stop = self.stop.child_token();
        let meter = Arc::new(Meter::new(self.families.clone(), &resource, kind));
        let progress = Arc::<Progress>::default();
        let store = Store::new(resource.clone(), progress.clone(), self.environment.rng_seed);
        let handlers = Handlers::new(self.environment.clock.clone(), stop.clone(), meter.clone());
        let receiver = Arc::new(StoreWithHandlers::new(store, handlers, meter.clone()));
        let options = InformerOptions { resource, namespace, kind, stop: stop.clone(), meter };
        let (state, task) = self.start(options, receiver.clone(), progress);
        (Informer::new(receiver, state), task, stop)
    }

    /// Starts the task that writes to `receiver`.
    fn start<T: Cached, F: ObjectReceiver<T>>(
        &self,
        options: InformerOptions,
        receiver: Arc<F>,
        progress: Arc<Progress>,
    ) -> (Arc<InformerState>, Task) {
        let InformerOptions { resource, namespace, kind, stop, meter } = options;
        let Environment { watcher, clock, spawner, .. } = &self.environment;
        let (send, commands) = mpsc::unbounded_channel();
        let path = resource.collection(namespace.as_deref());
        let state = Arc::new(InformerState::new(resource, clock.clone(), send, progress, meter));
        let mut all = self.states.lock();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(&state));
        drop(all);
        let driver = Driver {
            watcher: watcher.clone(),
            clock: clock.clone(),
            path,
            receiver,
            state: state.clone(),
            reflector: Reflector::new(kind, self.rng.lock().fork()),
            commands,
            stop,
            read_state: ReadState::new(clock),
        };
        let task = spawner.spawn("informer", self.tasks.track_future(driver.run()));
        (state, task)
    }

    fn running(&self) -> Vec<Arc<InformerState>> {
        self.states.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
