//! One pool of sockets for every upstream, made anew when the old ones may lead nowhere.

use std::{
    env,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use reqwest::{Client, ClientBuilder, NoProxy, Proxy, redirect::Policy};
use tracing::warn;

use super::{Failure, FailureKind, Ran, remote};
use crate::lock::lock;

/// Long enough for a far host over a bad network, short enough for a person who waits.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// Common servers close a connection that was idle for 5 s. A request that is written just then
/// fails, and nobody can tell if it ran, so idle connections are given up a little earlier.
const IDLE: Duration = Duration::from_secs(4);

/// A peer that acknowledges nothing for so long is gone: a socket from before the machine slept
/// is found out on its first use. It doesn't bound how long a server may think.
#[cfg(target_os = "linux")]
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// A probe on quiet sockets, so that a stream which a router forgot ends instead of being silent
/// for ever.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// The sockets that all upstreams share.
pub struct Sockets(Mutex<Client>);

impl Sockets {
    pub fn open() -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self(Mutex::new(client()?))))
    }

    /// What the next request goes through.
    pub fn client(&self) -> Client {
        lock(&self.0).clone()
    }

    /// From now on every request opens a new socket. What runs on old ones runs on.
    pub fn renew(&self) {
        // What could be set up once can be again; if not, the old ones may still do.
        if let Ok(client) = client() {
            *lock(&self.0) = client;
        }
    }
}

/// For who needs a client of another kind.
impl From<Client> for Sockets {
    fn from(client: Client) -> Self {
        Self(Mutex::new(client))
    }
}

/// A client that all upstreams share. On a system without certificates it still reaches what needs
/// none, such as everything on this machine.
fn client() -> Result<Client, Failure> {
    let made = builder().build().or_else(|error| {
        warn!(
            error = remote::root(&error),
            "no server behind https:// can be reached; if this system has no CA certificates, install them (Debian's package ca-certificates)"
        );
        builder().tls_certs_only([]).build()
    });
    made.map_err(|error| {
        Failure::new(
            FailureKind::Misconfigured,
            Ran::CertainlyNot,
            format!("cannot set up HTTP: {}", remote::root(&error)),
        )
    })
}

/// No total time-out, since streams stay open; no redirect is followed by itself, since that is
/// decided in [`remote`].
fn builder() -> ClientBuilder {
    // Port 0 stands for the URL's own. Both families are tried, whatever the hosts file says.
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)]
        .map(|ip| SocketAddr::new(ip, 0));
    let builder = Client::builder()
        .user_agent(concat!("Traygate/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT)
        .pool_idle_timeout(IDLE)
        .tcp_keepalive(KEEPALIVE)
        .tcp_nodelay(true)
        .redirect(Policy::none())
        .resolve_to_addrs("localhost", &loopback)
        .no_proxy();
    #[cfg(target_os = "linux")]
    let builder = builder.tcp_user_timeout(UNACKNOWLEDGED);
    proxies().into_iter().fold(builder, ClientBuilder::proxy)
}

/// Makes a proxy of a variable's value.
type Named = fn(String) -> reqwest::Result<Proxy>;

/// The proxies that the environment names, with loopback left out of all of them: many desktops
/// set a proxy without an exception for the machine itself.
fn proxies() -> Vec<Proxy> {
    let exceptions = first_variable(&["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let exceptions = NoProxy::from_string(&format!("{exceptions},localhost,127.0.0.0/8,::1"));
    let named: [(&[&str], Named); 3] = [
        (&["HTTP_PROXY", "http_proxy"], |proxy| Proxy::http(proxy)),
        (&["HTTPS_PROXY", "https_proxy"], |proxy| Proxy::https(proxy)),
        (&["ALL_PROXY", "all_proxy"], |proxy| Proxy::all(proxy)),
    ];
    named
        .into_iter()
        .filter_map(|(variables, proxy)| proxy(first_variable(variables)?).ok())
        .map(|proxy| proxy.no_proxy(exceptions.clone()))
        .collect()
}

fn first_variable(names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()))
}
