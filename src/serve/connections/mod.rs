//! How many connections a port takes, and which of them make room.
//!
//! A port that is full closes the connection that is least worth keeping: one that never brought a request before one that
//! did, and among those the one without a request for the longest time. A connection with a request under way is never
//! closed for another one. So whoever opens connections and says nothing displaces others of the same kind, and not the
//! gateway.

mod kept;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

pub use kept::Kept;

/// Connections of a port unless configured. A gateway opens one for each of its worker threads.
pub const DEFAULT_LIMIT: usize = 1024;

/// A listener rests after an error, which usually is that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The connections of one port.
#[derive(Clone, Debug)]
pub struct Connections {
    table: Arc<Table>,
}

#[derive(Debug)]
struct Table {
    limit: usize,
    kept: Mutex<Vec<Arc<Entry>>>,
    /// Orders the times at which connections were used last.
    turn: AtomicU64,
    /// Connections that were closed for others, or refused.
    closed: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    /// Requests under way.
    open: AtomicUsize,
    has_served: AtomicBool,
    used: AtomicU64,
    /// Cancelled once the connection has to make room.
    displaced: CancellationToken,
}

/// The place of one connection, given back when this is dropped.
#[derive(Debug)]
pub struct Place(Use);

/// A connection, as its requests know it.
#[derive(Clone, Debug)]
pub struct Use {
    table: Arc<Table>,
    entry: Arc<Entry>,
}

/// A request under way on a connection, which is not closed for another one meanwhile.
#[derive(Debug)]
pub struct UnderWay(Use);

// === impl Connections ===

impl Connections {
    /// No more than `limit` connections at a time.
    pub fn new(limit: usize) -> Self {
        Self {
            table: Arc::new(Table {
                limit,
                kept: Mutex::default(),
                turn: AtomicU64::new(0),
                closed: AtomicU64::new(0),
            }),
        }
    }

    /// A place for a new connection. `None` if all are taken by connections with a request under way.
    pub fn admit(&self) -> Option<Place> {
        let entry = Arc::new(Entry {
            open: AtomicUsize::new(0),
            has_served: AtomicBool::new(false),
            used: AtomicU64::new(self.table.next_turn()),
            displaced: CancellationToken::new(),
        });
        let mut kept = self.table.kept.lock();
        if kept.len() >= self.table.limit {
            self.table.closed.fetch_add(1, Ordering::Relaxed);
            let idle = kept.iter().enumerate().filter(|(_, it)| it.is_idle());
            let (least, _) = idle.min_by_key(|(_, it)| it.worth())?;
            kept.swap_remove(least).displaced.cancel();
        }
        kept.push(Arc::clone(&entry));
        Some(Place(Use {
            table: Arc::clone(&self.table),
            entry,
        }))
    }

    /// The next connection of a listener, and its place.
    pub async fn accept(&self, listener: &TcpListener) -> (TcpStream, Place) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match self.admit() {
                    Some(place) => return (stream, place),
                    None => {
                        let limit = self.limit();
                        tracing::warn!(%peer, limit, "connection not taken: all that the port may have have requests under way");
                    }
                },
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Connections that were closed, or not taken, because the port was full.
    pub fn closed(&self) -> u64 {
        self.table.closed.load(Ordering::Relaxed)
    }

    /// The most connections at a time.
    pub fn limit(&self) -> usize {
        self.table.limit
    }

    /// Open connections.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.table.kept.lock().len()
    }
}

impl Table {
    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// The least goes first.
    fn worth(&self) -> (bool, u64) {
        let used = self.used.load(Ordering::Relaxed);
        (self.has_served.load(Ordering::Relaxed), used)
    }
}

// === impl Place ===

impl Place {
    /// The connection, as its requests know it.
    pub fn for_requests(&self) -> Use {
        self.0.clone()
    }

    fn has_served(&self) -> bool {
        self.0.entry.has_served.load(Ordering::Relaxed)
    }

    /// Cancelled once this connection has to make room.
    pub fn displaced(&self) -> &CancellationToken {
        &self.0.entry.displaced
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Use { table, entry } = &self.0;
        let mut kept = table.kept.lock();
        // One that was displaced is not there any more.
        if let Some(index) = kept.iter().position(|it| Arc::ptr_eq(it, entry)) {
            kept.swap_remove(index);
        }
    }
}

// === impl Use ===

impl Use {
    /// A request begins.
    pub fn begin(&self) -> UnderWay {
        self.entry.open.fetch_add(1, Ordering::Relaxed);
        self.entry.has_served.store(true, Ordering::Relaxed);
        UnderWay(self.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let Use { table, entry } = &self.0;
        entry.used.store(table.next_turn(), Ordering::Relaxed);
        entry.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_displaced(place: &Place) -> bool {
        place.displaced().is_cancelled()
    }

    #[test]
    fn a_connection_that_goes_leaves_its_place() {
        let connections = Connections::new(1);

        drop(connections.admit());
        let place = connections.admit();

        assert!(place.is_some());
        assert_eq!((connections.len(), connections.closed()), (1, 0));
    }

    #[test]
    fn silent_connections_make_room_before_those_that_brought_requests() {
        let connections = Connections::new(3);
        let [gateway, silent, later] = [(); 3].map(|()| connections.admit().unwrap());
        drop(gateway.for_requests().begin());

        let _first = connections.admit().unwrap();
        assert!(is_displaced(&silent) && !is_displaced(&later) && !is_displaced(&gateway));
        let _second = connections.admit().unwrap();
        assert!(is_displaced(&later) && !is_displaced(&gateway));

        drop((silent, later));
        assert_eq!((connections.len(), connections.closed()), (3, 2));
    }

    #[test]
    fn of_those_that_brought_requests_the_one_that_rested_longest_makes_room() {
        let connections = Connections::new(2);
        let [first, second] = [(); 2].map(|()| connections.admit().unwrap());
        drop(second.for_requests().begin());
        drop(first.for_requests().begin());

        let _new = connections.admit().unwrap();

        assert!(is_displaced(&second) && !is_displaced(&first));
    }

    #[test]
    fn none_with_a_request_under_way_makes_room() {
        let connections = Connections::new(2);
        let places = [(); 2].map(|()| connections.admit().unwrap());
        let requests = places.each_ref().map(|place| place.for_requests().begin());

        assert!(connections.admit().is_none());
        drop(requests);
        assert!(connections.admit().is_some());
        assert_eq!(connections.closed(), 2);
    }
}
