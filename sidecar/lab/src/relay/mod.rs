//! A path with delay, random loss and one-way cuts: the router's packets take a way through this process.
//!
//! Each direction has a TUN device in the router's namespace. What comes in from one side is routed into the device of
//! its direction, held here as long as [`Conditions`] say, and given back to the same device, from where the router
//! forwards it as it would have done at once. The addresses and everything else of [`Network`] stay as they are.
//!
//! The kernel cuts large segments to the device's MTU before this process sees them, so loss and delay are decided per
//! packet, as on a wire.

mod line;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Context as _, LabError, Result};
use tokio::sync::Notify;
use tokio_tun::Tun;

use self::line::Line;
pub use self::line::{Conditions, Counts};
use crate::clock::monotonic_ns;
use crate::command::run;
use crate::namespace::Namespace;
use crate::network::Network;

/// Which way packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host to the client.
    ToClient,
    /// From the client to the host.
    ToHost,
}

impl Direction {
    /// Both.
    pub const BOTH: [Self; 2] = [Self::ToClient, Self::ToHost];

    /// The router's device that packets of this direction come in from.
    const fn source_device(self) -> &'static str {
        match self {
            Self::ToClient => "to-host0",
            Self::ToHost => "to-client0",
        }
    }

    /// The TUN device of this direction, and its routing table.
    const fn device(self) -> (&'static str, &'static str) {
        match self {
            Self::ToClient => ("relay-client", "101"),
            Self::ToHost => ("relay-host", "102"),
        }
    }
}

/// How a relay begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RelayOptions {
    /// Conditions from the host to the client.
    pub to_client: Conditions,
    /// Conditions from the client to the host.
    pub to_host: Conditions,
    /// Decides which packets are lost and how the jitter falls.
    pub seed: u64,
    /// Packets that one direction can hold; more are dropped and counted.
    pub limit_packets: usize,
}

impl RelayOptions {
    /// A relay that only passes on.
    pub const CLEAR: Self = Self {
        to_client: Conditions::CLEAR,
        to_host: Conditions::CLEAR,
        seed: 1,
        // 100 MB a second in full packets for a second.
        limit_packets: 65_536,
    };

    /// Half of `round_trip` each way.
    #[must_use]
    pub const fn round_trip(round_trip: Duration) -> Self {
        let one_way = Conditions::CLEAR.delayed(Duration::from_micros(as_microseconds(round_trip) / 2));
        Self { to_client: one_way, to_host: one_way, ..Self::CLEAR }
    }

    /// The same with this probability of loss each way.
    #[must_use]
    pub const fn lossy(mut self, loss: f64) -> Self {
        self.to_client.loss = loss;
        self.to_host.loss = loss;
        self
    }

    /// The same with another seed.
    #[must_use]
    pub const fn seeded(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

const fn as_microseconds(duration: Duration) -> u64 {
    duration.as_secs() * 1_000_000 + duration.subsec_micros() as u64
}

/// Packets that the kernel holds for this process while it does something else.
const DEVICE_QUEUE_PACKETS: &str = "20000";
/// Packets that are taken in before those that are due get their turn.
const BATCH_PACKETS: usize = 64;
/// The devices' MTU is 1500; the buffer has room for more.
const BUFFER_BYTES: usize = 64 * 1024;

/// What a direction's thread shares with the relay's owner.
struct Shared {
    conditions: Mutex<Conditions>,
    counts: Mutex<Counts>,
    stop: Notify,
}

impl Shared {
    fn conditions(&self) -> MutexGuard<'_, Conditions> {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Lane {
    direction: Direction,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Option<Result<()>>>>,
}

/// The way through this process. Dropping it removes the devices, and the router forwards at once again.
pub struct Relay {
    lanes: [Lane; 2],
}

/// Whether a packet is for a group: the router's own announcements on the device, which are not on their way anywhere.
fn is_multicast(packet: &[u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        // Destination addresses: RFC 791 section 3.1 and RFC 8200 section 3.
        Some(4) => packet.get(16).is_some_and(|byte| byte & 0xF0 == 0xE0),
        Some(6) => packet.get(24) == Some(&0xFF),
        _ => false,
    }
}

/// Reads, holds and gives back the packets of one direction until it is told to stop.
async fn carry(tun: &Tun, shared: &Shared, mut line: Line) -> Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let due = async {
            match line.next_due_ns() {
                Some(due_ns) => {
                    tokio::time::sleep(Duration::from_nanos(due_ns.saturating_sub(monotonic_ns()))).await;
                }
                None => std::future::pending().await,
            }
        };
        let received = tokio::select! {
            () = shared.stop.notified() => return Ok(()),
            () = due => None,
            received = tun.recv(&mut buffer) => Some(received.context("reading from a TUN device failed")?),
        };
        // One look at the conditions serves a whole batch.
        let conditions = *shared.conditions();
        if let Some(first) = received {
            let mut received = first;
            for _ in 0..BATCH_PACKETS {
                let packet = buffer.get(..received).unwrap_or_default();
                if !is_multicast(packet) {
                    line.accept(monotonic_ns(), packet, &conditions);
                }
                match tun.try_recv(&mut buffer) {
                    Ok(next) => received = next,
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error).context("reading from a TUN device failed"),
                }
            }
        }
        while let Some(packet) = line.release(monotonic_ns(), &conditions) {
            // The kernel takes a packet or refuses it; there is no waiting on this side of a TUN device.
            if tun.try_send(&packet).is_err() {
                line.refused(packet.len());
            }
        }
        *shared.counts.lock().unwrap_or_else(PoisonError::into_inner) = line.counts();
    }
}

/// The TUN device of one direction, in the namespace of the calling thread.
fn open_device(name: &str) -> Result<Tun> {
    let devices = Tun::builder()
        .name(name)
        .build()
        .with_context(|| format!("making the TUN device {name} failed: is there a /dev/net/tun?"))?;
    devices.into_iter().next().with_context(|| format!("the TUN device {name} has no queue"))
}

/// Lets the calling thread run as soon as a packet is due: on a machine that is busy with other stages, a relay that waits
/// for its turn would make the path longer and its retransmission timeouts much longer than was asked for.
fn keep_time() -> Result<()> {
    let thread = nix::unistd::gettid().to_string();
    run(None, "chrt", &["--fifo", "--pid", "10", &thread])
        .context("giving the relay real-time priority failed")
        .map(drop)
}

impl Lane {
    fn start(router: &Namespace, direction: Direction, conditions: Conditions, line: Line) -> Result<Self> {
        let shared = Arc::new(Shared {
            conditions: Mutex::new(conditions),
            counts: Mutex::new(Counts::default()),
            stop: Notify::new(),
        });
        let (name, _) = direction.device();
        let (is_open, opened) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let work = move || -> Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("building the relay's runtime failed")?;
            runtime.block_on(async {
                let tun = match keep_time().and_then(|()| open_device(name)) {
                    Ok(tun) => tun,
                    Err(error) => {
                        // Whoever starts the lane waits for exactly this.
                        let _ = is_open.send(Err(error));
                        return Ok(());
                    }
                };
                let _ = is_open.send(Ok(()));
                carry(&tun, &for_thread, line).await
            })
        };
        let thread = router.spawn(name, work)?;
        let lane = Self { direction, shared, thread: Some(thread) };
        opened.recv().context("a relay's thread ended before its device was there")??;
        Ok(lane)
    }

    /// Sends the packets that come in from this lane's side through its device.
    fn divert(&self, router: &Namespace) -> Result<()> {
        let (device, table) = self.direction.device();
        // Without a link-local address of its own the device carries nothing of the router's own making.
        run(Some(router), "ip", &["link", "set", device, "addrgenmode", "none"])?;
        run(Some(router), "ip", &["link", "set", device, "txqueuelen", DEVICE_QUEUE_PACKETS, "up"])?;
        // What comes back from the device has its sender behind another one.
        router.set_sysctl("ipv4/conf/all/rp_filter", "0")?;
        router.set_sysctl(&format!("ipv4/conf/{device}/rp_filter"), "0")?;
        for version in ["-4", "-6"] {
            run(Some(router), "ip", &[version, "route", "add", "default", "dev", device, "table", table])?;
            let rule = [
                version,
                "rule",
                "add",
                "pref",
                table,
                "iif",
                self.direction.source_device(),
                "lookup",
                table,
            ];
            run(Some(router), "ip", &rule)?;
        }
        Ok(())
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already; a failed device shows in the counts.
            let _ = thread.join();
        }
    }
}

impl Relay {
    fn lane(&self, direction: Direction) -> &Lane {
        match direction {
            Direction::ToClient => &self.lanes[0],
            Direction::ToHost => &self.lanes[1],
        }
    }

    /// What one direction does to its packets now.
    #[must_use]
    pub fn conditions(&self, direction: Direction) -> Conditions {
        *self.lane(direction).shared.conditions()
    }

    /// Lets `change` change what one direction does to the packets that come from now on; a cut also takes those that
    /// are on their way.
    pub fn change(&self, direction: Direction, change: impl FnOnce(&mut Conditions)) {
        change(&mut self.lane(direction).shared.conditions());
    }

    /// Holds packets of this direction that come from now on for `delay`.
    pub fn set_delay(&self, direction: Direction, delay: Duration) {
        self.change(direction, |conditions| conditions.delay = delay);
    }

    /// Holds packets of this direction that come from now on for up to `jitter` longer than the delay.
    pub fn set_jitter(&self, direction: Direction, jitter: Duration) {
        self.change(direction, |conditions| conditions.jitter = jitter);
    }

    /// Loses packets of this direction that come from now on with probability `loss`.
    pub fn set_loss(&self, direction: Direction, loss: f64) {
        self.change(direction, |conditions| conditions.loss = loss);
    }

    /// Lets nothing of this direction out any more, and tells nobody.
    pub fn cut(&self, direction: Direction) {
        self.change(direction, |conditions| conditions.cut = true);
    }

    /// Cuts both directions.
    pub fn cut_both(&self) {
        for direction in Direction::BOTH {
            self.cut(direction);
        }
    }

    /// Ends the cuts of both directions; delay and loss stay.
    pub fn heal(&self) {
        for direction in Direction::BOTH {
            self.change(direction, |conditions| conditions.cut = false);
        }
    }

    /// What happened to the packets of one direction so far.
    #[must_use]
    pub fn counts(&self, direction: Direction) -> Counts {
        *self.lane(direction).shared.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails if a direction's thread has ended: its packets go nowhere then.
    ///
    /// # Errors
    /// Names the direction.
    pub fn check(&self) -> Result<()> {
        for lane in &self.lanes {
            if lane.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                return Err(LabError::new(format!("the relay's thread of {:?} has ended", lane.direction)));
            }
        }
        Ok(())
    }
}

impl Network {
    /// A network whose packets take the way through a [`Relay`]; everything else is as [`Network::create`] makes it.
    ///
    /// # Errors
    /// As [`Network::create`], or if there is no `/dev/net/tun`.
    pub fn create_with_relay(options: &RelayOptions) -> Result<(Self, Relay)> {
        let network = Self::create()?;
        let lane = |direction, conditions, seed| {
            let line = Line::new(seed, options.limit_packets);
            Lane::start(&network.router, direction, conditions, line)
        };
        let relay = Relay {
            lanes: [
                lane(Direction::ToClient, options.to_client, options.seed)?,
                // Another row of random numbers than the other direction's.
                lane(Direction::ToHost, options.to_host, !options.seed)?,
            ],
        };
        for lane in &relay.lanes {
            lane.divert(&network.router)?;
        }
        Ok((network, relay))
    }
}
