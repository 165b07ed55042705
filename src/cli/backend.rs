//! The arguments of every command that computes: on which backend and device.

use crate::backend::{Asked, choose};
use crate::error::Result;
use crate::training::{BackendName, Device, DeviceChoice, TrainingConfig};

/// Where to compute.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// The backend that computes. [default: training.backend, or else the best that is compiled in]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
    /// The device of the backend: its number in the list of `backends`, or discrete, integrated, virtual,
    /// software. [default: training.device, or else the best]
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceChoice>,
}

impl BackendArgs {
    /// The device to compute on: as the command line says, or else the config.
    ///
    /// # Errors
    /// If it is not compiled in, or not there.
    pub fn choose(&self, config: Option<&TrainingConfig>) -> Result<Device> {
        let of_config = config
            .map_or_else(Asked::default, |config| Asked { backend: config.backend, device: config.device });
        choose(match self.backend {
            // A number counts the devices of one backend.
            Some(name) if of_config.backend != Some(name) => {
                Asked { backend: Some(name), device: self.device }
            }
            _ => Asked { backend: of_config.backend, device: self.device.or(of_config.device) },
        })
    }
}
