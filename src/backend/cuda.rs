//! The CUDA devices of this machine.

use std::{panic::catch_unwind, sync::OnceLock};

use burn_cuda::CudaDevice;
use cudarc::driver::CudaContext;

use super::Device;
use crate::config::{BackendName, DeviceKind};

/// Returns the GPUs of this machine, detected once.
pub fn devices() -> Vec<Device> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    // Without the driver's library, the search panics.
    DEVICES.get_or_init(|| catch_unwind(find).unwrap_or_default()).clone()
}

fn find() -> Vec<Device> {
    let count = CudaContext::device_count().unwrap_or(0);
    let device = |index: usize| {
        let context = CudaContext::new(index).ok()?;
        let memory = context.total_mem().ok().map(|bytes| bytes as u64);
        Some(Device {
            backend: Some(BackendName::Cuda),
            index,
            kind: DeviceKind::Discrete,
            index_of_kind: index,
            name: context.name().unwrap_or_else(|_| "NVIDIA GPU".to_string()),
            memory,
            // The largest allocation of CubeCL on a GPU (cubecl-cuda 0.10, runtime.rs).
            largest_buffer: memory.map(|bytes| bytes / 4),
        })
    };
    (0..count.max(0) as usize).filter_map(device).collect()
}

/// Converts a device to Burn's type.
pub fn handle(device: &Device) -> CudaDevice {
    CudaDevice::new(device.index)
}
