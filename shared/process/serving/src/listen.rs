use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;

/// Where to listen, and with whom to share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// An unspecified address means every interface and both families.
    pub address: IpAddr,
    /// 0 lets the system choose.
    pub port: u16,
    /// `SO_REUSEPORT`: more than one process on one port.
    pub share_port: bool,
}

/// Connections that wait for us to accept them.
const BACKLOG: i32 = 1024;
/// What the system keeps of answers that a client does not read, which would otherwise grow to megabytes each.
const SEND_BUFFER: usize = 128 << 10;
/// The same for what we have not read yet.
const RECEIVE_BUFFER: usize = 64 << 10;

impl Listen {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the address is taken or not ours.
    pub(crate) fn open(self) -> io::Result<TcpListener> {
        let Self { address, port, .. } = self;
        if address.is_unspecified() {
            // As Go does: an unspecified address of one family means both, where the machine has both.
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
        // Go's and tokio's default; what --permit-address-sharing asks for.
        socket.set_reuse_address(true)?;
        if self.share_port {
            socket.set_reuse_port(true)?;
        }
        // Accepted connections inherit both.
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
        Listen { address: address.parse().unwrap(), port, share_port }.open()
    }

    #[tokio::test]
    async fn a_port_is_shared_only_when_both_sides_permit_it() {
        let first = listen("127.0.0.1", 0, true).unwrap();
        let port = first.local_addr().unwrap().port();
        assert!(listen("127.0.0.1", port, false).is_err());
        listen("127.0.0.1", port, true).unwrap();
    }

    #[tokio::test]
    async fn an_unspecified_address_means_every_family() {
        for address in ["0.0.0.0", "::"] {
            let listener = listen(address, 0, false).unwrap();
            let port = listener.local_addr().unwrap().port();
            tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        }
    }
}
