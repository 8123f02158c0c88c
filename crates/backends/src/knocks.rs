//! Those who come to a sandbox's doors where its guest passes them on: the host's end of each connection.
//!
//! ```text
//! guest ── Knock, Said ──▶ one task for each connection ──▶ a socket of whoever serves the doors
//!       ◀─ Answer ───────                               ◀──
//! ```
//!
//! How many there can be, and how much of each waits here, is bounded: no guest is trusted to keep to it.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_core::wire::{CHUNK_MAX, INPUT_WINDOW, KNOCKS_FIRST, KNOCKS_MAX, NAME_MAX, Part, ToGuest};
use belljar_core::{BackendError, Knock, Later, Relay};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Semaphore, mpsc};

use crate::link::Outgoing;

/// Those who came and were not taken yet. Past that names are not answered, and a connection is refused.
const UNTAKEN: usize = 256;

/// Connections with a socket of ours. More than can be open: one that was withdrawn may still have something to hand on.
const TASKS_MAX: usize = 2 * KNOCKS_MAX;

#[derive(Debug)]
pub(crate) struct Knocks {
    state: Mutex<State>,
    tasks: Arc<Semaphore>,
}

#[derive(Debug)]
struct State {
    open: HashMap<u32, Open>,
    /// Ends with the link.
    arrivals: Option<mpsc::Sender<Knock>>,
    /// For whoever serves the doors; given once.
    arrived: Option<mpsc::Receiver<Knock>>,
    is_served: bool,
}

/// A connection that is not over.
#[derive(Debug)]
struct Open {
    /// `None` once it has said all. What waits in it is bounded by the window: no piece is empty but the last.
    said: Option<mpsc::UnboundedSender<Piece>>,
    /// How much more it may say before some was handed on.
    window: Arc<Semaphore>,
    /// How much the guest has room for of what comes back.
    room: Arc<Semaphore>,
}

#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    part: Part,
}

/// No guest of ours does this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfTurn;

impl Default for Knocks {
    fn default() -> Self {
        let (arrivals, arrived) = mpsc::channel(UNTAKEN);
        let (arrivals, arrived) = (Some(arrivals), Some(arrived));
        let state = State { open: HashMap::new(), arrivals, arrived, is_served: false };
        Knocks { state: Mutex::new(state), tasks: Arc::new(Semaphore::new(TASKS_MAX)) }
    }
}

impl Knocks {
    /// Whoever serves the doors takes them from here; once.
    pub(crate) fn relay(&self) -> Option<Box<dyn Relay>> {
        let mut state = self.state();
        state.is_served = true;
        state.arrived.take().map(|arrived| Box::new(Arrivals(arrived)) as Box<dyn Relay>)
    }

    /// Somebody has come to a door.
    pub(crate) fn knock<O: Outgoing>(
        self: &Arc<Self>,
        outgoing: &O,
        id: u32,
        to: Ipv4Addr,
        port: u16,
    ) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        if id < KNOCKS_FIRST || state.open.contains_key(&id) || state.open.len() >= KNOCKS_MAX {
            return Err(OutOfTurn);
        }
        let permit = Arc::clone(&self.tasks).try_acquire_owned().ok().filter(|_| state.is_served);
        let arrived = permit.and_then(|permit| {
            let (ours, theirs) = UnixStream::pair().ok()?;
            let stream = OwnedFd::from(theirs.into_std().ok()?);
            let knock = Knock::Connection { to: SocketAddrV4::new(to, port), stream };
            state.arrive(knock).then_some((ours, permit))
        });
        let Some((ours, permit)) = arrived else {
            // It may end the link, and with that come back here.
            drop(state);
            outgoing.send_behind(&ToGuest::Stop { id });
            return Ok(());
        };
        let (said, pieces) = mpsc::unbounded_channel();
        let (window, room) = (Arc::new(Semaphore::new(INPUT_WINDOW)), Arc::new(Semaphore::new(INPUT_WINDOW)));
        state.open.insert(id, Open { said: Some(said), window: Arc::clone(&window), room: Arc::clone(&room) });
        drop(state);
        let (knocks, outgoing) = (Arc::clone(self), outgoing.clone());
        tokio::spawn(async move {
            let (read, write) = ours.into_split();
            let heard = pass_back(id, read, &room, &outgoing);
            let told = pass_on(id, write, pieces, &window, &outgoing);
            // Each ends by itself; one that fails ends both.
            let whole = tokio::try_join!(heard, told).is_ok();
            if knocks.state().open.remove(&id).is_some() && !whole {
                outgoing.send_behind(&ToGuest::Stop { id });
            }
            drop(permit);
        });
        Ok(())
    }

    /// A part of what a connection says.
    pub(crate) fn said(&self, id: u32, bytes: Vec<u8>, part: Part) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        // One that was given up here may still have been on its way.
        let Some(open) = state.open.get_mut(&id) else { return Ok(()) };
        if bytes.is_empty() && part == Part::MoreComes {
            return Err(OutOfTurn);
        }
        let permits = open.window.try_acquire_many(bytes.len() as u32).map_err(|_| OutOfTurn)?;
        permits.forget();
        let said = open.said.take().ok_or(OutOfTurn)?;
        let _ = said.send(Piece { bytes, part });
        if part == Part::MoreComes {
            open.said = Some(said);
        }
        Ok(())
    }

    /// Somebody asks for a name.
    pub(crate) fn name<O: Outgoing>(&self, outgoing: &O, id: u32, question: Vec<u8>) -> Result<(), OutOfTurn> {
        if id < KNOCKS_FIRST || question.len() > NAME_MAX {
            return Err(OutOfTurn);
        }
        let state = self.state();
        if state.is_served {
            let outgoing = outgoing.clone();
            let answer = move |bytes: Vec<u8>| {
                outgoing.send_behind(&ToGuest::Answer { id, bytes, part: Part::Last });
            };
            // One that is not answered is asked again.
            state.arrive(Knock::Name { question, answer: Box::new(answer) });
        }
        Ok(())
    }

    /// The guest has handed on so much of what came back.
    pub(crate) fn taken(&self, id: u32, bytes: u32) {
        if let Some(open) = self.state().open.get(&id) {
            // No guest can make the window larger than it was.
            let taken = (bytes as usize).min(INPUT_WINDOW.saturating_sub(open.room.available_permits()));
            open.room.add_permits(taken);
        }
    }

    /// A connection is gone, whatever was still to be said.
    pub(crate) fn withdraw(&self, id: u32) {
        if let Some(open) = self.state().open.remove(&id) {
            open.room.close();
        }
    }

    pub(crate) fn end(&self) {
        let mut state = self.state();
        for (_, open) in state.open.drain() {
            open.room.close();
        }
        // By which a relay that waits hears of it.
        state.arrivals.take();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether there was room for it.
    fn arrive(&self, knock: Knock) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals.try_send(knock).is_ok())
    }
}

/// Why a connection's task ends before both sides have said all.
struct Broken;

/// What comes back goes to the guest, as it has room.
async fn pass_back<O: Outgoing>(id: u32, mut read: OwnedReadHalf, room: &Semaphore, out: &O) -> Result<(), Broken> {
    loop {
        let permit = room.acquire().await.map_err(|_| Broken)?;
        let most = (room.available_permits() + 1).min(CHUNK_MAX);
        let mut bytes = Vec::with_capacity(most);
        let count = (&mut read).take(most as u64).read_buf(&mut bytes).await.map_err(|_| Broken)?;
        // Nobody else takes of it, so the rest is still there.
        permit.forget();
        let rest = room.acquire_many(count.saturating_sub(1) as u32).await.map_err(|_| Broken)?;
        rest.forget();
        let part = if count == 0 { Part::Last } else { Part::MoreComes };
        out.send(&ToGuest::Answer { id, bytes, part }).await.map_err(|_| Broken)?;
        if part == Part::Last {
            return Ok(());
        }
    }
}

/// What the program says goes to whoever serves it.
async fn pass_on<O: Outgoing>(
    id: u32,
    mut write: OwnedWriteHalf,
    mut pieces: mpsc::UnboundedReceiver<Piece>,
    window: &Semaphore,
    out: &O,
) -> Result<(), Broken> {
    while let Some(Piece { bytes, part }) = pieces.recv().await {
        write.write_all(&bytes).await.map_err(|_| Broken)?;
        if part == Part::Last {
            return write.shutdown().await.map_err(|_| Broken);
        }
        window.add_permits(bytes.len());
        out.send(&ToGuest::Taken { id, bytes: bytes.len() as u32 }).await.map_err(|_| Broken)?;
    }
    // It was withdrawn, or the link has ended.
    Err(Broken)
}

#[derive(Debug)]
struct Arrivals(mpsc::Receiver<Knock>);

impl Relay for Arrivals {
    fn next(&mut self) -> Later<'_, Knock> {
        Box::pin(async {
            let lost = || BackendError::Lost { why: "its guest agent is gone".to_owned() };
            self.0.recv().await.ok_or_else(lost)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const ID: u32 = KNOCKS_FIRST;
    const DOOR: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 18, 0, 1), 443);

    /// The way to a guest that takes nothing: who sends there waits for ever, and is counted.
    #[derive(Clone, Debug)]
    struct Deaf {
        waiting: Arc<Semaphore>,
        sent_away: Arc<AtomicUsize>,
    }

    impl Default for Deaf {
        fn default() -> Self {
            Deaf { waiting: Arc::new(Semaphore::new(0)), sent_away: Arc::default() }
        }
    }

    impl Outgoing for Deaf {
        async fn send(&self, _: &ToGuest) -> Result<(), BackendError> {
            self.waiting.add_permits(1);
            std::future::pending().await
        }

        fn send_behind(&self, _: &ToGuest) {
            self.sent_away.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Somebody who has come to a door that is served, but by nobody who listens yet.
    fn one_came() -> (Arc<Knocks>, Option<Box<dyn Relay>>) {
        let knocks = Arc::new(Knocks::default());
        let relay = knocks.relay();
        knocks.knock(&Deaf::default(), ID, DOOR.0, DOOR.1).unwrap();
        (knocks, relay)
    }

    #[tokio::test]
    async fn who_has_said_all_says_no_more() {
        let (knocks, _relay) = one_came();
        assert_eq!(knocks.said(ID, b"all".to_vec(), Part::MoreComes), Ok(()));
        assert_eq!(knocks.said(ID, Vec::new(), Part::Last), Ok(()));
        assert_eq!(knocks.said(ID, b"more".to_vec(), Part::MoreComes), Err(OutOfTurn));
        assert_eq!(knocks.said(ID + 1, b"gone".to_vec(), Part::Last), Ok(()), "one that was given up here");
    }

    /// Each has a socket of the host's.
    #[tokio::test]
    async fn withdrawn_ones_that_a_guest_does_not_let_end_are_few() {
        let (knocks, deaf) = (Arc::new(Knocks::default()), Deaf::default());
        let mut relay = knocks.relay().unwrap();
        for number in 0..TASKS_MAX as u32 {
            knocks.knock(&deaf, ID + number, DOOR.0, DOOR.1).unwrap();
            knocks.said(ID + number, b"x".to_vec(), Part::MoreComes).unwrap();
            let Knock::Connection { stream, .. } = relay.next().await.unwrap() else { panic!("no name was asked for") };
            // That it was taken the guest is to hear, and then that who serves the door has gone.
            deaf.waiting.acquire().await.unwrap().forget();
            std::os::unix::net::UnixStream::from(stream).read_exact(&mut [0]).unwrap();
            deaf.waiting.acquire().await.unwrap().forget();
            knocks.withdraw(ID + number);
        }
        assert_eq!(deaf.sent_away.load(Ordering::Relaxed), 0);
        knocks.knock(&deaf, ID + TASKS_MAX as u32, DOOR.0, DOOR.1).unwrap();
        assert_eq!(deaf.sent_away.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn pieces_of_nothing_do_not_pile_up() {
        let (knocks, _relay) = one_came();
        assert_eq!(knocks.said(ID, Vec::new(), Part::MoreComes), Err(OutOfTurn));
    }

    #[tokio::test]
    async fn what_waits_here_is_no_more_than_the_window() {
        let (knocks, _relay) = one_came();
        // Nothing else runs in this test: no piece is handed on meanwhile.
        for _ in 0..INPUT_WINDOW / CHUNK_MAX {
            assert_eq!(knocks.said(ID, vec![0; CHUNK_MAX], Part::MoreComes), Ok(()));
        }
        assert_eq!(knocks.said(ID, vec![0], Part::MoreComes), Err(OutOfTurn));
    }
}
