//! What fails on the threads that serve a card.
//!
//! CubeCL queues the work of a card for a thread of its own. Where that thread panics, as over a tensor
//! larger than the card's largest buffer, CubeCL only logs it (`cubecl-common` 0.10, `device/handle/channel.rs`):
//! the kernels that needed the buffer are skipped, and whatever is read later is wrong. So panics of these
//! threads are kept here, and who computed meanwhile asks before a result is believed.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use super::device::Device;
use crate::error::{Error, Result, panic_message};

/// What has failed since the program began, in order.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Watches a device while something computes on it.
#[derive(Debug, Clone)]
pub struct DeviceWatch {
    device: Device,
    /// Failures before it began.
    known: usize,
}

impl DeviceWatch {
    /// Begins to watch. The first watch of a program puts a hook of its own before the panic hook that
    /// is there; a program that replaces the hook later loses what fails after.
    pub fn begin(device: &Device) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = take_hook();
            set_hook(Box::new(move |panic| {
                keep(panic);
                next(panic);
            }));
        });
        Self { device: device.clone(), known: failures().len() }
    }

    /// Whether nothing has failed so far. What was read from the device before this is right.
    ///
    /// # Errors
    /// [`Error::DeviceMemory`] or [`Error::Failed`], by what the first failure says.
    pub fn check(&self) -> Result<()> {
        match failures().get(self.known) {
            None => Ok(()),
            Some(message) => Err(self.failure(message)),
        }
    }

    /// The error that a failure's message means.
    pub fn failure(&self, message: &str) -> Error {
        let device = self.device.to_string();
        if is_about_memory(message) {
            return Error::DeviceMemory { device };
        }
        let message = beginning(message);
        Error::Failed(format!("{device} has failed: {message}. A run goes on with train --resume RUN"))
    }
}

/// The beginning of a panic's message, before its backtrace.
pub fn beginning(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join(" ")
}

fn keep(panic: &PanicHookInfo<'_>) {
    if serves_a_device(thread::current().name().unwrap_or_default()) {
        failures().push(panic_message(panic.payload()).lines().take(16).collect::<Vec<_>>().join("\n"));
    }
}

/// By the names that CubeCL gives these threads.
fn serves_a_device(thread: &str) -> bool {
    thread.starts_with("DSU-") || thread.starts_with("DSD-")
}

fn failures() -> MutexGuard<'static, Vec<String>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this is how a driver, wgpu or CubeCL say that memory is missing.
fn is_about_memory(message: &str) -> bool {
    const WORDS: [&str; 8] = [
        "out of memory",
        "out-of-memory",
        "out_of_memory",
        "outofmemory",
        "can't allocate",
        "not enough memory",
        "buffertoobig",
        "greater than the maximum buffer size",
    ];
    let message = message.to_lowercase();
    WORDS.iter().any(|words| message.contains(words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{BackendName, DeviceKind};

    #[test]
    fn a_panic_of_a_device_thread_is_found_by_who_watched_then_and_no_other() {
        let card = Device {
            backend: BackendName::Wgpu,
            index: 0,
            kind: DeviceKind::Discrete,
            index_of_kind: 0,
            name: "a card".into(),
            memory: None,
            largest_buffer: None,
        };
        let fail = |thread: &str, message: &'static str| {
            let thread = thread::Builder::new().name(thread.into());
            assert!(thread.spawn(move || std::panic::panic_any(message)).unwrap().join().is_err());
        };
        let watch = DeviceWatch::begin(&card);
        fail("another", "on purpose");
        assert!(watch.check().is_ok());
        fail("DSD-0-0", "called `Result::unwrap()` on an `Err` value: BufferTooBig { size: 135 }");
        let later = DeviceWatch::begin(&card);
        assert!(later.check().is_ok());
        fail("DSU-0-0", "device lost\nbacktrace");
        assert!(matches!(watch.check(), Err(Error::DeviceMemory { .. })), "{:?}", watch.check());
        let told = later.check().unwrap_err().to_string();
        assert!(told.starts_with("wgpu on a card has failed: device lost"), "{told}");
    }
}
