//! Detection of failures on the threads that serve a GPU.
//!
//! CubeCL queues the work of a GPU on a separate thread. If that thread panics, for example over a tensor larger than
//! the GPU's largest buffer, CubeCL only logs the panic (`cubecl-common` 0.10, `device/handle/channel.rs`): kernels
//! that needed the buffer are skipped, and later reads return wrong data. Panics of these threads are therefore
//! recorded here, and checked before a result is used.

use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;

use burn::tensor::backend::DeviceOps;

use super::device::Device;
use crate::error::{Error, Result, panic_message};

/// All failures since the start of the program, in order.
static FAILURES: Mutex<Vec<Failure>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Failure {
    /// The device id, as it appears in the names of the device's threads.
    device_id: String,
    message: String,
}

/// Monitors a device for failures during a computation.
#[derive(Debug, Clone)]
pub struct DeviceWatch {
    device: Device,
    /// The device id, as it appears in the names of the device's threads.
    device_id: String,
    /// The number of failures before the watch began.
    earlier_failures: usize,
}

impl DeviceWatch {
    /// Begins to watch a device. The first watch of a program installs a hook before the existing panic hook. If the
    /// program replaces that hook later, subsequent failures go unnoticed.
    pub fn begin(device: &Device, handle: &impl DeviceOps) -> Self {
        let id = handle.id();
        Self::of(device, format!("{}-{}", id.type_id, id.index_id))
    }

    fn of(device: &Device, device_id: String) -> Self {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let next = take_hook();
            set_hook(Box::new(move |panic| {
                record(panic);
                next(panic);
            }));
        });
        Self { device: device.clone(), device_id, earlier_failures: failures().len() }
    }

    /// Checks for failures of the device. If there are none, data read from the device before this call is correct.
    ///
    /// # Errors
    /// Returns [`Error::DeviceMemory`] or [`Error::DeviceFailed`], depending on the message of the first failure.
    pub fn check(&self) -> Result<()> {
        match failures()[self.earlier_failures..].iter().find(|failure| failure.device_id == self.device_id) {
            None => Ok(()),
            Some(failure) => Err(self.failure(&failure.message)),
        }
    }

    /// Converts the message of a failure to an error.
    pub fn failure(&self, message: &str) -> Error {
        let device = self.device.to_string();
        match is_out_of_memory(message) {
            true => Error::DeviceMemory { device },
            false => Error::DeviceFailed { device, message: first_lines(message) },
        }
    }
}

/// Returns the first lines of a panic message, without the backtrace.
fn first_lines(message: &str) -> String {
    message.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect::<Vec<_>>().join(" ")
}

fn record(panic: &PanicHookInfo<'_>) {
    let thread = thread::current();
    // CubeCL's names for the threads of a device.
    let device_id = thread.name().and_then(|name| name.strip_prefix("DSU-").or(name.strip_prefix("DSD-")));
    if let Some(device_id) = device_id {
        let message = panic_message(panic.payload()).lines().take(16).collect::<Vec<_>>().join("\n");
        failures().push(Failure { device_id: device_id.to_string(), message });
    }
}

fn failures() -> MutexGuard<'static, Vec<Failure>> {
    FAILURES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if a message of a driver, wgpu or CubeCL reports that memory ran out.
fn is_out_of_memory(message: &str) -> bool {
    const PHRASES: [&str; 8] = [
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
    PHRASES.iter().any(|phrase| message.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_reports_only_later_panics_of_its_device() {
        let card = Device::fictitious_gpu();
        let fail = |thread: &str, message: &'static str| {
            let thread = thread::Builder::new().name(thread.into());
            assert!(thread.spawn(move || std::panic::panic_any(message)).unwrap().join().is_err());
        };
        let watch = DeviceWatch::of(&card, "7-7".into());
        fail("another", "on purpose");
        fail("DSD-7-8", "of another device");
        assert!(watch.check().is_ok());
        fail("DSD-7-7", "called `Result::unwrap()` on an `Err` value: BufferTooBig { size: 135 }");
        let later = DeviceWatch::of(&card, "7-7".into());
        assert!(later.check().is_ok());
        fail("DSU-7-7", "device lost\nbacktrace");
        assert!(matches!(watch.check(), Err(Error::DeviceMemory { .. })), "{:?}", watch.check());
        let message = later.check().unwrap_err().to_string();
        assert!(message.starts_with("wgpu on a GPU has failed: device lost"), "{message}");
    }
}
