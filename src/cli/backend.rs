//! Backend and device arguments, shared by every command that computes.

use crate::backend::{Device, choose};
use crate::config::{BackendName, DeviceChoice, TrainingConfig, sets};
use crate::error::Result;

/// The backend and the device to compute on.
#[derive(Debug, clap::Args)]
pub struct BackendArgs {
    /// The backend to compute on: cuda, wgpu, ndarray or flex. [default: training.backend, else the best one with a
    /// device on this machine]
    #[arg(long, value_name = "NAME")]
    backend: Option<BackendName>,
    /// The device: its index in the output of `backends`, or discrete, integrated, virtual or software.
    /// [default: training.device, else the best one]
    #[arg(long, value_name = "DEVICE", allow_negative_numbers = true)]
    device: Option<DeviceChoice>,
}

impl BackendArgs {
    /// Chooses the device to compute on: as given on the command line, or else in the config, which `set` may override.
    ///
    /// # Errors
    /// Returns an error if the backend is not compiled in, or if the device does not exist.
    pub fn choose(&self, config: &TrainingConfig, set: &[String]) -> Result<Device> {
        let (backend, device) = self.requested(config, set);
        choose(backend, device.as_ref())
    }

    /// Same as [`Self::choose`]; also records the requested backend and device in the config of a run.
    ///
    /// # Errors
    /// Same as [`Self::choose`].
    pub fn choose_for_run(&self, config: &mut TrainingConfig, set: &[String]) -> Result<Device> {
        let (backend, requested) = self.requested(config, set);
        let device = choose(backend, requested.as_ref())?;
        // A device belongs to a backend, so the backend is recorded too. Another backend can still be chosen to inspect
        // the run.
        config.backend = backend.or(requested.as_ref().and(device.backend));
        config.device = requested;
        Ok(device)
    }

    fn requested(
        &self,
        config: &TrainingConfig,
        set: &[String],
    ) -> (Option<BackendName>, Option<DeviceChoice>) {
        // True if the config's device belongs to a backend other than the requested one.
        let is_of_other_backend =
            config.backend.is_some() && self.backend.is_some_and(|name| config.backend != Some(name));
        let from_config =
            config.device.clone().filter(|_| !is_of_other_backend || sets(set, "training.device"));
        (self.backend.or(config.backend), self.device.clone().or(from_config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discrete() -> DeviceChoice {
        DeviceChoice::Kind("discrete".into())
    }

    fn config(backend: Option<BackendName>) -> TrainingConfig {
        TrainingConfig { backend, device: Some(discrete()), ..Default::default() }
    }

    #[test]
    fn backend_option_drops_device_of_another_backend() {
        let (wgpu, cuda) = (Some(BackendName::Wgpu), Some(BackendName::Cuda));
        let on = |backend| BackendArgs { backend, device: None };
        let device = |args: BackendArgs, backend, set: &[&str]| {
            let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
            args.requested(&config(backend), &set).1
        };
        assert_eq!(device(on(wgpu), None, &[]), Some(discrete()));
        assert_eq!(device(on(wgpu), wgpu, &[]), Some(discrete()));
        assert_eq!(device(on(None), wgpu, &[]), Some(discrete()));
        assert_eq!(device(on(cuda), wgpu, &["training.steps=3"]), None);
        assert_eq!(device(on(cuda), wgpu, &["training.device = discrete"]), Some(discrete()));
        let second = BackendArgs { backend: cuda, device: Some(DeviceChoice::Index(1)) };
        assert_eq!(device(second, wgpu, &[]), Some(DeviceChoice::Index(1)));
    }

    #[cfg(feature = "ndarray")]
    #[test]
    fn device_option_also_sets_the_backend() {
        let mut config = TrainingConfig { backend: Some(BackendName::Ndarray), ..Default::default() };
        let processor = || Some(DeviceChoice::Kind("processor".into()));
        BackendArgs { backend: None, device: None }.choose_for_run(&mut config, &[]).unwrap();
        assert_eq!((config.backend, config.device.clone()), (Some(BackendName::Ndarray), None));
        config.backend = None;
        BackendArgs { backend: None, device: processor() }.choose_for_run(&mut config, &[]).unwrap();
        assert_eq!((config.backend, config.device), (Some(BackendName::Ndarray), processor()));
    }
}
