//! After the machine slept or its network changed, every link is verified, over new sockets
//! (design section 5.2).

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tracing::info;

use super::Gateway;
use crate::{
    clock::{Clock, Moment},
    events::{Event, Fact},
    lock::lock,
};

/// How often the clocks and the network are looked at. Nothing is sent.
const LOOK: Duration = Duration::from_secs(2);
/// The clocks of a busy machine drift apart a little; a sleep is more.
const ASLEEP: Duration = Duration::from_secs(5);
/// Links that were verified a moment ago are not verified again: the system's own signal and the
/// clocks tell of the same wake.
const SETTLED: Duration = Duration::from_secs(10);

/// Addresses that nobody has (RFC 5737, RFC 3849): only the way to them is looked up.
const FAR: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];

/// This machine's own addresses on the way out. `None`: there is no way.
type Outlook = [Option<IpAddr>; 2];

/// Notices that time was slept through.
pub(super) struct Vigil {
    clock: Clock,
    seen: Mutex<Seen>,
}

struct Seen {
    /// Counts sleep …
    real: Moment,
    /// … and this one doesn't.
    awake: Instant,
    verified: Option<Instant>,
}

impl Vigil {
    pub fn new(clock: Clock) -> Self {
        let seen = Seen { real: clock.now(), awake: Instant::now(), verified: None };
        Self { clock, seen: Mutex::new(seen) }
    }

    /// How long the machine slept since the last look.
    fn slept(&self) -> Duration {
        let mut seen = lock(&self.seen);
        let (real, awake) = (self.clock.now(), Instant::now());
        let slept = seen.real.until(real).saturating_sub(awake - seen.awake);
        (seen.real, seen.awake) = (real, awake);
        slept
    }

    /// Whether links should be verified now. If so, they count as verified.
    fn is_due(&self) -> bool {
        let mut seen = lock(&self.seen);
        let due = seen.verified.is_none_or(|at| at.elapsed() >= SETTLED);
        if due {
            seen.verified = Some(Instant::now());
        }
        due
    }
}

impl Gateway {
    /// The system says that it woke. The clocks tell the same a little later.
    pub fn woke(self: &Arc<Self>) {
        let slept = self.vigil.slept();
        self.verify_all(&Fact::Woke { asleep_ms: slept.as_millis() as u64 });
    }

    pub(super) async fn keep_vigil(self: Arc<Self>) {
        let mut outlook = outlook();
        loop {
            tokio::select! {
                () = sleep(LOOK) => {}
                () = self.ended.cancelled() => return,
            }
            let slept = self.vigil.slept();
            if slept >= ASLEEP {
                self.verify_all(&Fact::Woke { asleep_ms: slept.as_millis() as u64 });
            }
            let now = self::outlook();
            // One that comes too soon after another is still a change at the next look.
            if now != outlook && self.verify_all(&Fact::NetworkChanged) {
                outlook = now;
            }
        }
    }

    /// Verifies every link, each at a moment of its own. `false`: they were verified just now.
    fn verify_all(self: &Arc<Self>, because: &Fact) -> bool {
        if !self.vigil.is_due() {
            return false;
        }
        info!(?because, "verifying every connection");
        self.record(Event::new(because.clone()));
        // What time alone ends may have ended meanwhile.
        self.changed();
        self.sockets.renew();
        for upstream in self.upstreams() {
            let ended = self.ended.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    () = upstream.verify() => {}
                    () = ended.cancelled() => {}
                }
            });
        }
        true
    }
}

/// A UDP socket that is connected sends nothing; it only finds its way.
fn outlook() -> Outlook {
    FAR.map(|far| {
        let here: IpAddr = match far {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind(SocketAddr::new(here, 0)).ok()?;
        socket.connect(SocketAddr::new(far, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_that_only_the_clock_which_counts_sleep_has_seen_was_slept_through() {
        let now = Arc::new(AtomicU64::new(0));
        let vigil = Vigil::new(Clock::Driven(Arc::clone(&now)));
        now.fetch_add(2_000, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(vigil.slept(), Duration::ZERO, "awake");
        now.fetch_add(28_802_000, Ordering::SeqCst);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(vigil.slept(), Duration::from_hours(8), "a night");
        assert_eq!(vigil.slept(), Duration::ZERO, "told once");
    }

    #[tokio::test(start_paused = true)]
    async fn one_wake_that_is_told_twice_is_verified_once() {
        let vigil = Vigil::new(Clock::Driven(Arc::default()));
        assert!(vigil.is_due());
        assert!(!vigil.is_due());
        tokio::time::advance(SETTLED).await;
        assert!(vigil.is_due());
    }
}
