use std::{net::Ipv4Addr, sync::Arc};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// A loopback TCP proxy that can freeze or cut its connections. It does not decrypt TLS.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    state: Arc<watch::Sender<State>>,
    task: JoinHandle<()>,
}

/// The state of connections, which are numbered from 0.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// The number of connections so far.
    accepted: u64,
    /// Connections with a smaller number are closed.
    cut_below: u64,
    /// Connections with a smaller number forward nothing.
    frozen_below: u64,
    /// New connections are closed at once.
    refusing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionState {
    Open,
    Frozen,
    Cut,
}

impl State {
    fn connection_state(&self, connection: u64) -> ConnectionState {
        if connection < self.cut_below {
            ConnectionState::Cut
        } else if connection < self.frozen_below {
            ConnectionState::Frozen
        } else {
            ConnectionState::Open
        }
    }
}

impl Proxy {
    /// Listens on a free port and forwards to `target`, which is a loopback port too.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(target: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let state = Arc::new(watch::Sender::new(State::default()));
        let task = tokio::spawn(accept(listener, target, state.clone()));
        Ok(Self { port, state, task })
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of connections so far.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.state.borrow().accepted
    }

    /// Freezes the existing connections in both directions; new ones work.
    pub fn freeze_present(&self) {
        self.state.send_modify(|it| it.frozen_below = it.accepted);
    }

    /// Freezes all connections, new ones too.
    pub fn freeze(&self) {
        self.state.send_modify(|it| it.frozen_below = u64::MAX);
    }

    /// Closes all connections; new ones work.
    pub fn cut_present(&self) {
        self.state.send_modify(|it| it.cut_below = it.accepted);
    }

    /// Closes all connections and refuses new ones.
    pub fn cut(&self) {
        self.state.send_modify(|it| {
            it.cut_below = it.accepted;
            it.refusing = true;
        });
    }

    /// Ends all faults. Frozen connections continue where they stopped.
    pub fn restore(&self) {
        self.state.send_modify(|it| {
            it.frozen_below = 0;
            it.refusing = false;
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, target: u16, state: Arc<watch::Sender<State>>) {
    loop {
        // If accepting a connection fails, the client opens it again.
        let Ok((client, _)) = listener.accept().await else { continue };
        let mut number = 0;
        let mut refusing = false;
        state.send_modify(|it| {
            number = it.accepted;
            it.accepted += 1;
            refusing = it.refusing;
        });
        if !refusing {
            tokio::spawn(forward(client, target, number, state.subscribe()));
        }
    }
}

async fn forward(client: TcpStream, target: u16, number: u64, mut state: watch::Receiver<State>) {
    if state.wait_for(|it| it.connection_state(number) != ConnectionState::Frozen).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
    // Without this, small frames are delayed. A socket that refuses it is being closed.
    let _ = client.set_nodelay(true);
    let _ = server.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The connection ends when one of its directions ends.
    tokio::select! {
        () = pump(from_client, to_server, number, state.clone()) => {}
        () = pump(from_server, to_client, number, state) => {}
    }
}

/// Copies bytes until one side closes or the connection is cut; copies nothing while it is frozen.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    number: u64,
    mut state: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match state
            .wait_for(|it| it.connection_state(number) != ConnectionState::Frozen)
            .await
            .map(|it| it.connection_state(number))
        {
            Ok(ConnectionState::Open) => {}
            _ => return,
        }
        let read = tokio::select! {
            biased;
            changed = state.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
            read = from.read(&mut buffer) => read,
        };
        let Ok(read @ 1..) = read else { return };
        // If it was frozen between reading and writing, the bytes wait here.
        match state
            .wait_for(|it| it.connection_state(number) != ConnectionState::Frozen)
            .await
            .map(|it| it.connection_state(number))
        {
            Ok(ConnectionState::Open) => {}
            _ => return,
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn echo() -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        port
    }

    async fn connect(proxy: &Proxy) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).await.unwrap()
    }

    async fn echo_byte(socket: &mut TcpStream, byte: u8) {
        socket.write_all(&[byte]).await.unwrap();
        assert_eq!(socket.read_u8().await.unwrap(), byte);
    }

    #[tokio::test]
    async fn frozen_connections_are_silent_and_continue_after_restore() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut old = connect(&proxy).await;
        echo_byte(&mut old, 1).await;
        proxy.freeze_present();
        let mut new = connect(&proxy).await;
        old.write_all(&[2]).await.unwrap();
        echo_byte(&mut new, 3).await;
        assert!(tokio::time::timeout(Duration::from_millis(50), old.read_u8()).await.is_err(), "frozen");
        proxy.restore();
        assert_eq!(old.read_u8().await.unwrap(), 2);
    }

    #[tokio::test]
    async fn cut_connections_close_and_new_ones_are_refused_until_restored() {
        let proxy = Proxy::start(echo().await).await.unwrap();
        let mut old = connect(&proxy).await;
        echo_byte(&mut old, 1).await;
        proxy.cut();
        assert!(old.read_u8().await.is_err());
        assert!(connect(&proxy).await.read_u8().await.is_err());
        proxy.restore();
        echo_byte(&mut connect(&proxy).await, 4).await;
        assert_eq!(proxy.accepted(), 3);
    }
}
