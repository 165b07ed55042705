//! The wgpu devices of this machine.

use std::collections::HashMap;
use std::panic::catch_unwind;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use burn_wgpu::WgpuDevice;
use wgpu::{Backends, DeviceType, Instance, InstanceDescriptor};

use super::Device;
use crate::config::{BackendName, DeviceKind};

/// The graphics API that CubeCL uses to find its devices.
const API: Backends = if cfg!(target_os = "macos") { Backends::METAL } else { Backends::VULKAN };

/// Returns the devices of this machine, detected once.
pub fn devices() -> Vec<Device> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    // If the driver panics, the list is empty.
    DEVICES.get_or_init(|| catch_unwind(find).unwrap_or_default()).clone()
}

fn find() -> Vec<Device> {
    let mut descriptor = InstanceDescriptor::new_without_display_handle();
    descriptor.backends = API;
    let instance = Instance::new(descriptor);
    // The list is available immediately: only browsers enumerate asynchronously.
    let Poll::Ready(adapters) =
        pin!(instance.enumerate_adapters(API)).poll(&mut Context::from_waker(Waker::noop()))
    else {
        return Vec::new();
    };
    let mut count_by_kind = HashMap::new();
    let kinds = adapters.into_iter().filter_map(|adapter| {
        let info = adapter.get_info();
        let kind = match info.device_type {
            DeviceType::DiscreteGpu => DeviceKind::Discrete,
            DeviceType::IntegratedGpu => DeviceKind::Integrated,
            DeviceType::VirtualGpu => DeviceKind::Virtual,
            DeviceType::Cpu => DeviceKind::Software,
            DeviceType::Other => return None,
        };
        // Burn has a single name for all software devices.
        if kind == DeviceKind::Software && count_by_kind.contains_key(kind.name()) {
            return None;
        }
        let index_of_kind =
            count_by_kind.entry(kind.name()).and_modify(|index| *index += 1).or_insert(0_usize);
        // The limits that CubeCL requests from its device. With VK_EXT_shader_64bit_indexing, CubeCL binds larger
        // buffers (cubecl-wgpu 0.10, backend/vulkan.rs), but wgpu does not report the larger limit.
        let limits = adapter.limits();
        let largest_buffer = limits.max_storage_buffer_binding_size.min(limits.max_buffer_size);
        Some((info.name, kind, *index_of_kind, largest_buffer))
    });
    let device = |(index, (name, kind, index_of_kind, largest_buffer))| Device {
        backend: Some(BackendName::Wgpu),
        index,
        kind,
        index_of_kind,
        name,
        // wgpu does not report the memory size.
        memory: None,
        largest_buffer: Some(largest_buffer),
    };
    kinds.enumerate().map(device).collect()
}

/// Converts a device to Burn's type.
pub fn handle(device: &Device) -> WgpuDevice {
    match device.kind {
        DeviceKind::Discrete => WgpuDevice::DiscreteGpu(device.index_of_kind),
        DeviceKind::Integrated => WgpuDevice::IntegratedGpu(device.index_of_kind),
        DeviceKind::Virtual => WgpuDevice::VirtualGpu(device.index_of_kind),
        DeviceKind::Software => WgpuDevice::Cpu,
        DeviceKind::Processor => WgpuDevice::DefaultDevice,
    }
}
