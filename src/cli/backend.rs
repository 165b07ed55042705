//! The arguments of every command that computes: on which backend and device.

use crate::backend::{Asked, choose};
use crate::error::Result;
use crate::training::{BackendName, Device, DeviceChoice, TrainingConfig};

/// Where to compute.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// The backend that computes: cuda, wgpu, ndarray or flex. [default: training.backend, or else the best
    /// that is compiled in]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
    /// The device of the backend: its number in the list of `backends`, or discrete, integrated, virtual,
    /// software. [default: training.device, or else the best]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
}

impl BackendArgs {
    /// Keeps in a run's config what was asked for on the command line.
    pub fn record(&self, config: &mut TrainingConfig) {
        let Asked { backend, device } = self.asked(config);
        config.backend = backend;
        config.device = device;
    }

    /// The device to compute on: as the command line says, or else the config.
    ///
    /// # Errors
    /// If it is not compiled in, or not there.
    pub fn choose(&self, config: Option<&TrainingConfig>) -> Result<Device> {
        choose(match config {
            Some(config) => self.asked(config),
            None => Asked { backend: self.backend, device: self.device },
        })
    }

    fn asked(&self, config: &TrainingConfig) -> Asked {
        match self.backend {
            // A number counts the devices of one backend.
            Some(name) if config.backend != Some(name) => Asked { backend: Some(name), device: self.device },
            _ => Asked { backend: config.backend, device: self.device.or(config.device) },
        }
    }
}
