use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// The address to listen on, and whether other processes may use the same port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenOptions {
    /// An unspecified address means all interfaces and both IP families.
    pub address: IpAddr,
    /// 0 means that the system chooses the port.
    pub port: u16,
    /// Sets `SO_REUSEPORT`, so that several processes can listen on one port.
    pub share_port: bool,
}

/// The maximum number of connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// The socket buffer for responses that a client does not read. Without this limit it grows to megabytes for each
/// connection.
const SEND_BUFFER: usize = 128 << 10;
/// The socket buffer for requests that are not read yet.
const RECEIVE_BUFFER: usize = 64 << 10;

impl ListenOptions {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the address is in use or does not belong to this host.
    pub(crate) fn open(self) -> io::Result<TcpListener> {
        let Self { address, port, .. } = self;
        if address.is_unspecified() {
            // As in Go, an unspecified address of one family means both families, if the host has both.
            let every = self.bind(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
            match every {
                Err(err) if address.is_ipv4() && err.kind() != io::ErrorKind::AddrInUse => {}
                every => return every,
            }
        }
        self.bind(SocketAddr::new(address, port))
    }

    fn bind(self, at: SocketAddr) -> io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(at), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))?;
        if at.is_ipv6() && at.ip().is_unspecified() {
            socket.set_only_v6(false)?;
        }
        // The default of Go and tokio; it is also what --permit-address-sharing sets.
        socket.set_reuse_address(true)?;
        if self.share_port {
            socket.set_reuse_port(true)?;
        }
        // Accepted connections inherit both buffer sizes.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.bind(&at.into())?;
        socket.listen(BACKLOG)?;
        TcpListener::from_std(socket.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listen(address: &str, port: u16, share_port: bool) -> io::Result<TcpListener> {
        ListenOptions { address: address.parse().unwrap(), port, share_port }.open()
    }

    #[tokio::test]
    async fn port_is_shared_only_when_both_sockets_permit_it() {
        let first = listen("127.0.0.1", 0, true).unwrap();
        let port = first.local_addr().unwrap().port();
        assert!(listen("127.0.0.1", port, false).is_err());
        listen("127.0.0.1", port, true).unwrap();
    }

    #[tokio::test]
    async fn unspecified_address_listens_on_both_families() {
        for address in ["0.0.0.0", "::"] {
            let listener = listen(address, 0, false).unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        }
    }
}
