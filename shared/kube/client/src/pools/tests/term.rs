//! No write starts after its term, however long it waited for a slot.

use super::*;

/// A server that does not respond to the first `busy` requests until the test allows it, and records all requests.
struct BusyServer {
    server: Server,
    requests: Arc<parking_lot::Mutex<Vec<String>>>,
    arrived: Arc<Semaphore>,
    allow_response: Arc<Semaphore>,
}

impl BusyServer {
    async fn start(options: Options, busy: usize) -> Self {
        let requests = Arc::<parking_lot::Mutex<Vec<String>>>::default();
        let (arrived, allow_response) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (log, on_arrival, allowed) = (requests.clone(), arrived.clone(), allow_response.clone());
        let server = Server::start(options, move |_, request| {
            let (log, on_arrival, allowed) = (log.clone(), on_arrival.clone(), allowed.clone());
            async move {
                let number = {
                    let mut log = log.lock();
                    log.push(request.uri().to_string());
                    log.len()
                };
                request.into_body().collect().await.unwrap();
                on_arrival.add_permits(1);
                if number <= busy {
                    allowed.acquire().await.unwrap().forget();
                }
                text_response(WRITTEN)
            }
        })
        .await;
        Self { server, requests, arrived, allow_response }
    }

    async fn wait_for_arrivals(&self, busy: usize) {
        let busy = u32::try_from(busy).unwrap();
        self.arrived.acquire_many(busy).await.unwrap().forget();
    }
}

#[tokio::test]
async fn write_that_waited_for_a_slot_beyond_the_term_is_not_sent() {
    let one_stream = || Options { most_streams: 1, ..HTTP2 };
    for (name, options, busy) in [("HTTP/2", one_stream(), 1), ("HTTP/1.1", HTTP1, HTTP1_CONNECTIONS)] {
        let server = BusyServer::start(options, busy).await;
        let manager = Manager::leading(config(&server.server));
        let api = manager.api();
        let late = async {
            server.wait_for_arrivals(busy).await;
            let late = write(&api, 10);
            let ending = async {
                // The late write has passed the fence and waits.
                tokio::task::yield_now().await;
                manager.advance_to_the_end_of_the_term();
                server.allow_response.add_permits(busy);
            };
            tokio::join!(late, ending).0
        };
        let (_, late) = tokio::join!(join_all((0..busy).map(|_| write(&api, 10))), late);
        assert!(matches!(late, Err(ApiError::NotSent(_))), "{name}: {late:?}");
        assert_eq!(server.requests.lock().len(), busy, "{name}");
    }
}

#[tokio::test]
async fn create_that_waited_has_a_timeout_from_when_it_is_sent() {
    let server = BusyServer::start(Options { most_streams: 1, ..HTTP2 }, 1).await;
    let manager = Manager::leading(config(&server.server));
    let api = manager.api();
    let (pods, pod) = (pods(), json!({ "kind": "Pod" }));
    let create = || api.create(&pods, "ns", &pod);
    let later = async {
        server.wait_for_arrivals(1).await;
        let waiting = async {
            tokio::task::yield_now().await;
            manager.clock.suspend(Duration::from_millis(2_100));
            server.allow_response.add_permits(1);
        };
        tokio::join!(create(), waiting).0
    };
    let (first, second) = tokio::join!(create(), later);
    first.unwrap();
    second.unwrap();
    let timeouts: Vec<_> =
        server.requests.lock().iter().map(|it| it.split_once("timeout=").unwrap().1.to_owned()).collect();
    assert_eq!(timeouts, ["13s", "11s"], "once each, of 14 s less what has passed");
    assert_eq!(server.server.connections(), 1);
}

#[tokio::test]
async fn write_is_not_sent_again_after_its_term() {
    let (arrived, refuse) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_arrival, allowed) = (arrived.clone(), refuse.clone());
    let raw: server::Raw = Arc::new(move |mut tls| {
        let (on_arrival, allowed) = (on_arrival.clone(), allowed.clone());
        async move {
            raw_request(&mut tls).await;
            on_arrival.notify_one();
            allowed.notified().await;
            tls.write_all(&GO_AWAY).await.unwrap();
            tls.flush().await.unwrap();
            let _ = tls.read_to_end(&mut Vec::new()).await;
        }
        .boxed()
    });
    let server = Server::start(Options { raw: Some(raw), ..HTTP2 }, |_, _| async { text_response(WRITTEN) }).await;
    let manager = Manager::leading(config(&server));
    let api = manager.api();
    let ending = async {
        arrived.notified().await;
        manager.advance_to_the_end_of_the_term();
        refuse.notify_one();
    };
    let (written, ()) = tokio::join!(write(&api, 10), ending);
    assert!(matches!(written, Err(ApiError::NotSent(_))), "{written:?}");
}

#[tokio::test]
async fn request_that_waits_on_a_retired_connection_gets_another() {
    let server = Server::start(Options { most_streams: 1, ..HTTP2 }, |connection, _| async move {
        if connection == 0 { open_ended("x\n") } else { text_response("second") }
    })
    .await;
    let manager = Manager::to(&server);
    let request = http::Request::new(crate::Body::default());
    let endless = manager.pools.reads.clone().oneshot(request).await.unwrap();
    let api = manager.api();
    let retiring = async {
        tokio::task::yield_now().await;
        endless.extensions().get::<RetireHandle>().unwrap().retire();
    };
    let (response, ()) = tokio::join!(read(&api), retiring);
    assert_eq!(response.unwrap(), "second");
    assert_eq!(server.connections(), 2);
}

/// A server that reads so little of a body that the rest must wait.
struct SlowServer {
    server: Server,
    arrived: Arc<Notify>,
    read_on: Arc<Notify>,
    /// The received bytes of the last body.
    received: Arc<AtomicUsize>,
}

impl SlowServer {
    async fn start() -> Self {
        let (arrived, read_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let received = Arc::new(AtomicUsize::new(usize::MAX));
        let (arrived_, read_on_, received_) = (arrived.clone(), read_on.clone(), received.clone());
        let server = Server::start(Options { stream_window: 64, ..HTTP2 }, move |_, request| {
            let (arrived, read_on, received) = (arrived_.clone(), read_on_.clone(), received_.clone());
            async move {
                arrived.notify_one();
                read_on.notified().await;
                received.store(0, Ordering::SeqCst);
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    received.fetch_add(frame.into_data().map_or(0, |it| it.len()), Ordering::SeqCst);
                }
                text_response(WRITTEN)
            }
        })
        .await;
        Self { server, arrived, read_on, received }
    }

    /// Ends the term when a request has arrived, then lets the server read on.
    async fn end_term(&self, term: &Term) {
        self.arrived.notified().await;
        term.end();
        self.read_on.notify_one();
    }
}

#[tokio::test]
async fn bytes_that_wait_inside_http2_are_not_sent_after_the_term() {
    let slow = SlowServer::start().await;
    let manager = Manager::to(&slow.server);
    let api = manager.api();
    let (written, ()) = tokio::join!(write(&api, 10_000), slow.end_term(&manager.term));
    let err = written.unwrap_err();
    assert!(matches!(&err, ApiError::Unknown { .. }), "{err}");
    assert!(slow.received.load(Ordering::SeqCst) < 10_000);
    // Reads continue.
    slow.read_on.notify_one();
    read(&api).await.unwrap();
}

#[tokio::test]
async fn bytes_of_a_controllers_own_identity_are_not_sent_after_the_term() {
    let slow = SlowServer::start().await;
    let manager = Manager::to(&slow.server);
    let request = || http::Request::put("/api").body(crate::Body::from(vec![b'x'; 10_000])).unwrap();
    let writing = manager.pools.account_writes.clone().oneshot(request());
    let (written, ()) = tokio::join!(writing, slow.end_term(&manager.term));
    assert!(written.is_err());
    assert!(slow.received.load(Ordering::SeqCst) < 10_000);
    // The connections of reads are not guarded.
    slow.read_on.notify_one();
    manager.pools.account_reads.clone().oneshot(request()).await.unwrap();
}
