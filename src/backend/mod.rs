//! Backends and their devices: detection, selection, memory limits and health checks.
//!
//! Work is a [`Job`], generic over the backend. [`choose`] finds the device to run it on, and [`run`] dispatches to the
//! code compiled for that device's backend.

#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod accelerator;
mod check;
mod choice;
mod compute;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod device_watch;
mod largest_tensor;
mod memory;
mod missing;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use check::{Check, CheckedPart, check};
pub use choice::{choose, devices_of, of_worker};
pub use compute::{compute, compute_as_run};
pub use device::Device;
pub use device_watch::DeviceWatch;
pub use memory::{MAX_CONCURRENT_SHARDS, MemoryEstimate, concurrent_shards, free_memory, rows};

use burn::tensor::backend::AutodiffBackend;
#[cfg(any(feature = "ndarray", feature = "flex"))]
use burn_autodiff::Autodiff;

use crate::config::BackendName;
use crate::error::{Error, Result};

#[cfg(not(any(feature = "ndarray", feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!(
    "no backend is compiled in; build with one of --features ndarray, flex (CPU), wgpu, vulkan, metal, cuda (GPU)"
);

/// Work that runs on any backend.
pub trait Job {
    /// The result of the job.
    type Output;

    /// Runs the job on `device`.
    ///
    /// # Errors
    /// Those of the job.
    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output>;
}

/// Returns the backends compiled into this build, best first.
pub fn compiled() -> Vec<BackendName> {
    let is_compiled = |name: &BackendName| match name {
        BackendName::Cuda => cfg!(feature = "cuda"),
        BackendName::Wgpu => cfg!(feature = "wgpu"),
        BackendName::Ndarray => cfg!(feature = "ndarray"),
        BackendName::Flex => cfg!(feature = "flex"),
    };
    BackendName::ALL.into_iter().filter(is_compiled).collect()
}

/// Returns the devices that a backend finds on this machine, by index; empty if the backend is not compiled in.
pub fn devices(name: BackendName) -> Vec<Device> {
    match name {
        BackendName::Ndarray | BackendName::Flex => vec![Device::processor(name)],
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => wgpu::devices(),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => cuda::devices(),
        #[allow(unreachable_patterns)]
        _ => Vec::new(),
    }
}

/// Runs `job` on `device`, which belongs to a backend of this crate.
///
/// # Errors
/// Returns the error of the job, or an error if the backend does not start or fails.
pub fn run<J: Job>(device: &Device, job: J) -> Result<J::Output> {
    match device.backend {
        #[cfg(feature = "ndarray")]
        Some(BackendName::Ndarray) => job.run::<Autodiff<burn_ndarray::NdArray>>(Default::default()),
        #[cfg(feature = "flex")]
        Some(BackendName::Flex) => job.run::<Autodiff<burn_flex::Flex>>(Default::default()),
        #[cfg(feature = "wgpu")]
        Some(BackendName::Wgpu) => accelerator::run::<burn_wgpu::Wgpu, J>(device, wgpu::handle(device), job),
        #[cfg(feature = "cuda")]
        Some(BackendName::Cuda) => accelerator::run::<burn_cuda::Cuda, J>(device, cuda::handle(device), job),
        #[allow(unreachable_patterns)]
        Some(name) => {
            drop(job);
            Err(missing::not_compiled(name))
        }
        None => {
            Err(Error::Input(format!("{device} is a backend of the calling program; train with `train_on`")))
        }
    }
}
