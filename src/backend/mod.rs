//! Backends and their devices: which there are, which to compute on, what fits into their memory, and
//! whether each computes right.
//!
//! Work is a [`Job`], generic over the backend; [`choose`] finds the device that it runs on, and [`run`]
//! picks the code that is compiled for that device's backend.

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

pub use check::{Check, Part, check};
pub use choice::{choose, devices_of, of_worker};
pub use compute::{compute, compute_as_run};
pub use device::Device;
pub use device_watch::DeviceWatch;
pub use memory::{MOST_SHARDS_AT_ONCE, MemoryEstimate, free, rows, shards_at_once};

use burn::tensor::backend::AutodiffBackend;
#[cfg(any(feature = "ndarray", feature = "flex"))]
use burn_autodiff::Autodiff;

use crate::{config::BackendName, error::Result};

#[cfg(not(any(feature = "ndarray", feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!(
    "no backend is compiled in: build with one of --features ndarray, flex (CPU), wgpu, vulkan, metal, cuda (GPU)"
);

/// Work that any backend can do.
pub trait Job {
    /// What comes out.
    type Output;

    /// Does the work on `device`.
    fn run<B: AutodiffBackend>(self, device: B::Device) -> Result<Self::Output>;
}

/// The backends that this build holds, best first.
pub fn compiled() -> Vec<BackendName> {
    let is_compiled = |name: &BackendName| match name {
        BackendName::Cuda => cfg!(feature = "cuda"),
        BackendName::Wgpu => cfg!(feature = "wgpu"),
        BackendName::Ndarray => cfg!(feature = "ndarray"),
        BackendName::Flex => cfg!(feature = "flex"),
    };
    BackendName::ALL.into_iter().filter(is_compiled).collect()
}

/// The devices of this machine that a backend finds, by number; none where it is not compiled in.
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

/// Runs `job` on `device`.
///
/// # Errors
/// Those of the job, and if the backend cannot start or fails.
pub fn run<J: Job>(device: &Device, job: J) -> Result<J::Output> {
    match device.backend {
        #[cfg(feature = "ndarray")]
        BackendName::Ndarray => job.run::<Autodiff<burn_ndarray::NdArray>>(Default::default()),
        #[cfg(feature = "flex")]
        BackendName::Flex => job.run::<Autodiff<burn_flex::Flex>>(Default::default()),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => accelerator::run::<burn_wgpu::Wgpu, J>(device, wgpu::handle(device), job),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => accelerator::run::<burn_cuda::Cuda, J>(device, cuda::handle(device), job),
        #[allow(unreachable_patterns)]
        name => {
            drop(job);
            Err(missing::not_compiled(name))
        }
    }
}
