//! The jail process, from the host's side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use belljar_core::wire::{self, JailReply, JailRequest, Setup};
use belljar_core::{BackendError, Layer};
use belljar_images::Root;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Mutex;

use crate::carried::{GUEST, JAIL, TRANSPILE, ZYGOTE};
use crate::cgroup::Group;
use crate::ids::Lease;
use crate::setup;
use crate::sys;

const REPLY_MAX: usize = 4096;

/// How often, and how soon again, to look whether it has ended.
const END_LOOKS: u32 = 400;
const END_LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why there is no jail: the step that failed and the kernel's word for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) step: String,
    pub(crate) errno: i32,
}

/// What a jail is started with.
#[derive(Debug, Default)]
pub(crate) struct Given {
    pub(crate) setup: Setup,
    /// As [`crate::Host::trust`].
    pub(crate) trust: Option<Arc<str>>,
    /// The host user of its zygotes, where each sandbox has its own.
    pub(crate) zygote_id: Option<Lease>,
    /// What its zygotes are held by.
    pub(crate) group: Option<Group>,
    /// What the first process of each place becomes, if not the guest that we carry.
    pub(crate) guest: Option<OwnedFd>,
    /// The image that its shared root is of, which stays as long as it is used.
    pub(crate) image: Option<Root>,
}

#[derive(Debug)]
pub(crate) struct Jail {
    /// One request at a time; `None` only while dropping.
    control: Option<Mutex<AsyncFd<OwnedFd>>>,
    process: Child,
    landlock_abi: u32,
    alive: AtomicBool,
    group: Option<Group>,
    /// Given back when nobody has it any more.
    _zygote_id: Option<Lease>,
    _image: Option<Root>,
}

impl Jail {
    /// Starts the jail and waits for its root to stand: a few milliseconds, once per server. Inside a runtime.
    pub(crate) fn start(given: Given) -> Result<Jail, Refusal> {
        let Given { mut setup, trust, zygote_id, group, image, guest } = given;
        setup.zygote_id = zygote_id.as_ref().map(Lease::number);
        let at = |step: &'static str| {
            move |error: std::io::Error| Refusal { step: step.to_owned(), errno: error.raw_os_error().unwrap_or(0) }
        };
        let jail = sys::memory_file("belljar-jail", JAIL).map_err(at("keeping the jail in memory"))?;
        let guest = match guest {
            Some(guest) => guest,
            None => sys::memory_file("belljar-guest", GUEST).map_err(at("keeping the guest in memory"))?,
        };
        let transpile = sys::memory_file("belljar-transpile", TRANSPILE).map_err(at("keeping a program in memory"))?;
        let zygote = sys::memory_file("belljar-zygote", ZYGOTE).map_err(at("keeping a library in memory"))?;
        let trust = trust.as_deref().unwrap_or_default().as_bytes();
        let trust = sys::memory_file("belljar-trust", trust).map_err(at("keeping certificates in memory"))?;
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(std::io::Error::from)
            .map_err(at("making a control socket"))?;
        let given = [
            (&theirs, wire::CONTROL_FD),
            (&guest, wire::GUEST_FD),
            (&transpile, wire::TRANSPILE_FD),
            (&zygote, wire::ZYGOTE_FD),
            (&trust, wire::TRUST_FD),
        ];
        let process = sys::start_jail(&jail, given).map_err(at("starting the jail"))?;
        drop(theirs);
        // From here on dropping it ends the process.
        let mut jail = Jail {
            control: None,
            process,
            landlock_abi: 0,
            alive: AtomicBool::new(true),
            group,
            _zygote_id: zygote_id,
            _image: image,
        };

        let body = wire::encode_body(&setup).map_err(|_| Refusal { step: "writing the plan".to_owned(), errno: 0 })?;
        sys::send(ours.as_fd(), &body, &[]).map_err(at("sending the plan"))?;
        let mut buffer = [0; REPLY_MAX];
        let (length, _) = sys::receive(ours.as_fd(), &mut buffer).map_err(at("waiting for the jail"))?;
        match wire::decode_body(&buffer[..length]) {
            Ok(JailReply::Ready { landlock_abi }) => jail.landlock_abi = landlock_abi,
            Ok(JailReply::Failed { step, errno }) => return Err(Refusal { step, errno }),
            _ => return Err(Refusal { step: "waiting for the jail, which ended".to_owned(), errno: 0 }),
        }
        rustix::io::ioctl_fionbio(&ours, true).map_err(|errno| at("making a control socket")(errno.into()))?;
        let control = sys::watch(ours).map_err(at("watching the control socket"))?;
        jail.control = Some(Mutex::new(control));
        Ok(jail)
    }

    pub(crate) fn landlock_abi(&self) -> u32 {
        self.landlock_abi
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }

    pub(crate) fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Asks for a process, and gets its handle. Must not be dropped half-way: the answer would be taken for the next one's.
    pub(crate) async fn ask(&self, request: &JailRequest, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, BackendError> {
        // Without a descriptor for it the sandbox goes down by itself: its stream has no other end.
        let none = || setup("asking the jail", &"no room for another descriptor");
        self.exchange(request, fds).await?.ok_or_else(none)
    }

    /// Has a layer put into a sandbox. Must not be dropped half-way either.
    pub(crate) async fn add_layer(&self, layer: Layer, first_process: BorrowedFd<'_>) -> Result<(), BackendError> {
        self.exchange(&JailRequest::AddLayer(layer), &[first_process]).await.map(drop)
    }

    async fn exchange(&self, request: &JailRequest, fds: &[BorrowedFd<'_>]) -> Result<Option<OwnedFd>, BackendError> {
        // Only for an end of the jail itself. What else can go wrong, such as descriptors that cannot be passed because
        // too many are on their way, costs this request and no sandbox that stands.
        let lost = |why: &dyn std::fmt::Display| {
            self.alive.store(false, Ordering::Release);
            setup("asking the jail", why)
        };
        let body = wire::encode_body(request).map_err(|error| setup("asking the jail", &error))?;
        let Some(control) = &self.control else { return Err(lost(&"it is closing")) };
        let control = control.lock().await;
        sys::send(control.get_ref().as_fd(), &body, fds).map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset => lost(&error),
            _ => setup("asking the jail", &error),
        })?;
        let mut buffer = [0; REPLY_MAX];
        let (length, fd) = control
            .async_io(Interest::READABLE, |socket| sys::receive(socket.as_fd(), &mut buffer))
            .await
            .map_err(|error| lost(&error))?;
        match (wire::decode_body(&buffer[..length]), fd) {
            (Ok(JailReply::Opened | JailReply::Done), process) => Ok(process),
            (Ok(JailReply::Failed { step, errno }), _) => Err(setup(&step, &std::io::Error::from_raw_os_error(errno))),
            _ => Err(lost(&"it ended")),
        }
    }
}

impl Jail {
    fn has_ended(&mut self) -> bool {
        for _ in 0..END_LOOKS {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return true;
            }
            std::thread::sleep(END_LOOK_AGAIN);
        }
        false
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        // It ends when its socket closes, and with it all that it has made: what we started is only gone after that. Killed at
        // once, it would leave them in our cgroup for a moment longer than we are here. The kill is for one that hangs.
        drop(self.control.take());
        if !self.has_ended() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
        if let Some(group) = &self.group {
            group.remove_now();
        }
    }
}
