//! What a run computes on: one of the devices that a backend serves.

use std::fmt;

use sysinfo::{CpuRefreshKind, RefreshKind, System};

use crate::config::{BackendName, DeviceChoice, DeviceKind};

/// A device of this machine, as one backend sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Device {
    /// The backend.
    pub backend: BackendName,
    /// Its number among the backend's devices.
    pub index: usize,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its number among the backend's devices of that kind.
    pub index_of_kind: usize,
    /// Its name, as the system or its driver says it.
    pub name: String,
    /// Bytes of memory, where the system tells.
    pub memory: Option<u64>,
    /// Bytes that one tensor can take at most; none: as many as there are.
    pub largest_buffer: Option<u64>,
}

impl Device {
    /// The processor, as a CPU backend sees it.
    pub fn processor(backend: BackendName) -> Self {
        let what = RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing());
        let mut system = System::new_with_specifics(what);
        system.refresh_memory();
        let brand = system.cpus().first().map(|cpu| cpu.brand().trim().to_string());
        Self {
            backend,
            index: 0,
            kind: DeviceKind::Processor,
            index_of_kind: 0,
            name: brand.filter(|brand| !brand.is_empty()).unwrap_or_else(|| "processor".to_string()),
            memory: Some(system.total_memory()),
            largest_buffer: None,
        }
    }

    /// Whether it is the one that `choice` means.
    pub fn is(&self, choice: &DeviceChoice) -> bool {
        match choice {
            DeviceChoice::Index(index) => self.index == *index,
            DeviceChoice::Kind(kind) => self.kind.name() == kind,
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            DeviceKind::Processor => f.write_str(self.backend.name()),
            _ => write!(f, "{} on {}", self.backend.name(), self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Device {
        /// A GPU for tests that need none.
        pub(crate) fn made_up_card() -> Self {
            Self {
                backend: BackendName::Wgpu,
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
    fn a_device_is_chosen_by_number_or_by_kind() {
        let card = Device { index: 1, ..Device::made_up_card() };
        let chosen =
            ["1", "discrete", "0", "integrated", "second"].map(|text| card.is(&text.parse().unwrap()));
        assert_eq!(chosen, [true, true, false, false, false]);
    }
}
