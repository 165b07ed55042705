//! A compute device of a backend.

use std::fmt;

use burn::tensor::backend::Backend;
use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::config::{BackendName, DeviceChoice, DeviceKind};

/// A device of this machine, as seen by one backend.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The backend of the device; `None` for a backend of the calling program.
    pub backend: Option<BackendName>,
    /// The index among the backend's devices.
    pub index: usize,
    /// The kind of the device.
    pub kind: DeviceKind,
    /// The index among the backend's devices of the same kind.
    pub index_of_kind: usize,
    /// The name reported by the system or the driver.
    pub name: String,
    /// The memory in bytes, if the system reports it.
    pub memory: Option<u64>,
    /// The largest buffer of a tensor in bytes; `None` if it is limited only by memory.
    pub largest_buffer: Option<u64>,
}

impl Device {
    /// Returns the processor as the device of a CPU backend.
    pub fn processor(backend: BackendName) -> Self {
        let what = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let mut system = System::new_with_specifics(what);
        system.refresh_memory();
        let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_string());
        Self {
            backend: Some(backend),
            index: 0,
            kind: DeviceKind::Processor,
            index_of_kind: 0,
            name: brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| "processor".to_string()),
            memory: Some(system.total_memory()),
            largest_buffer: None,
        }
    }

    /// Returns the device of a backend of the calling program, whose memory is unknown.
    pub fn of_backend<B: Backend>(device: &B::Device) -> Self {
        Self {
            backend: None,
            index: 0,
            kind: DeviceKind::Discrete,
            index_of_kind: 0,
            name: B::name(device),
            memory: None,
            largest_buffer: None,
        }
    }

    /// Returns true if the device is the processor, and its tensors are in the memory of the machine.
    pub fn is_cpu(&self) -> bool {
        self.backend.is_some_and(BackendName::is_cpu)
    }

    /// Returns the name of the backend.
    pub fn backend_name(&self) -> String {
        self.backend.map_or_else(|| self.name.clone(), |backend| backend.to_string())
    }

    /// Returns true if the device matches `choice`.
    pub fn is(&self, choice: &DeviceChoice) -> bool {
        match choice {
            DeviceChoice::Index(index) => self.index == *index,
            DeviceChoice::Kind(kind) => self.kind.name() == kind,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.backend, self.kind) {
            (None, _) => f.write_str(&self.name),
            (Some(backend), DeviceKind::Processor) => write!(f, "{backend}"),
            (Some(backend), _) => write!(f, "{backend} on {}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Device {
        pub(crate) fn fictitious_gpu() -> Self {
            Self {
                backend: Some(BackendName::Wgpu),
                index: 0,
                kind: DeviceKind::Discrete,
                index_of_kind: 0,
                name: "a GPU".into(),
                memory: None,
                largest_buffer: None,
            }
        }
    }

    #[test]
    fn devices_match_by_index_or_kind() {
        let card = Device { index: 1, ..Device::fictitious_gpu() };
        let chosen =
            ["1", "discrete", "0", "integrated", "second"].map(|text| card.is(&text.parse().unwrap()));
        assert_eq!(chosen, [true, true, false, false, false]);
    }
}
