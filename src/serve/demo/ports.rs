//! The addresses of the demonstration.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// The first port, unless another is asked for. Envoy's ingress.
pub const DEFAULT_BASE_PORT: u16 = 18080;

/// Ports before those of the model servers.
const OTHERS: u16 = 5;

/// Ports that follow each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    base: u16,
    model_servers: u16,
}

/// Why the ports cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// One cannot be listened on.
    #[error("port `{port}` ({purpose}) cannot be had: {source}; choose others with `--base-port`")]
    Taken {
        /// Which.
        port: u16,
        /// What for.
        purpose: String,
        /// Why not.
        source: io::Error,
    },
    /// There are not enough.
    #[error("`--base-port {base}` leaves no room for {needed} ports; `{most}` is the largest, and 1 the smallest")]
    Range {
        /// The first one.
        base: u16,
        /// How many are needed.
        needed: u16,
        /// The largest first one.
        most: u16,
    },
}

impl Ports {
    /// The ports from `base` on for so many model servers and the rest, all of which are free.
    ///
    /// # Errors
    ///
    /// If one is not.
    pub(super) fn checked(base: u16, model_servers: u16) -> Result<Self, PortError> {
        let needed = OTHERS + model_servers;
        let most = u16::MAX - needed + 1;
        if base == 0 || base > most {
            return Err(PortError::Range { base, needed, most });
        }
        let ports = Self { base, model_servers };
        for (purpose, address) in ports.all() {
            if let Err(source) = TcpListener::bind(address) {
                return Err(PortError::Taken {
                    port: address.port(),
                    purpose,
                    source,
                });
            }
        }
        Ok(ports)
    }

    /// Where clients connect to Envoy.
    pub(super) fn ingress(&self) -> SocketAddr {
        self.at(0)
    }

    /// Envoy's own pages.
    pub(super) fn admin(&self) -> SocketAddr {
        self.at(1)
    }

    /// Forebay's ext_proc port.
    pub(super) fn grpc(&self) -> SocketAddr {
        self.at(2)
    }

    /// Forebay's health checks.
    pub(super) fn health(&self) -> SocketAddr {
        self.at(3)
    }

    /// Forebay's pages.
    pub(super) fn metrics(&self) -> SocketAddr {
        self.at(4)
    }

    /// The model servers.
    pub(super) fn model_servers(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let ports = *self;
        (0..ports.model_servers).map(move |index| ports.at(OTHERS + index))
    }

    fn at(&self, offset: u16) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.base + offset).into()
    }

    fn all(&self) -> impl Iterator<Item = (String, SocketAddr)> {
        let others = [
            ("Envoy", self.ingress()),
            ("Envoy's admin page", self.admin()),
            ("Forebay's ext_proc service", self.grpc()),
            ("Forebay's health service", self.health()),
            ("Forebay's metrics page", self.metrics()),
        ];
        let servers = self.model_servers().enumerate();
        let servers = servers.map(|(index, address)| (format!("model server {}", index + 1), address));
        others
            .into_iter()
            .map(|(purpose, address)| (purpose.to_owned(), address))
            .chain(servers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_in_use_is_named_with_its_purpose_and_the_flag() {
        // Its port is free but for this listener, and so are those after it or the message is of another purpose.
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();

        let error = Ports::checked(port, 4).unwrap_err().to_string();

        assert_eq!(
            error,
            format!(
                "port `{port}` (Envoy) cannot be had: Address already in use (os error 98); choose others with \
                 `--base-port`"
            )
        );
    }

    #[test]
    fn all_ports_must_exist() {
        let error = Ports::checked(u16::MAX, 4).unwrap_err().to_string();

        assert_eq!(
            error,
            "`--base-port 65535` leaves no room for 9 ports; `65527` is the largest, and 1 the smallest"
        );
    }
}
