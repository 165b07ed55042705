//! Selection of the compute device from the user's choice and the available hardware.

use super::missing::{absent, not_compiled};
use super::{Device, compiled, devices};
use crate::config::{BackendName, DeviceChoice, DeviceKind};
use crate::error::{Error, Result};

/// Returns the devices of a backend requested by name.
///
/// # Errors
/// Returns an error if the backend is not compiled in, or finds no device.
pub fn devices_of(name: BackendName) -> Result<Vec<Device>> {
    if !compiled().contains(&name) {
        return Err(not_compiled(name));
    }
    match devices(name) {
        found if found.is_empty() => Err(absent(name)),
        found => Ok(found),
    }
}

/// Returns the device of a worker: the workers of one machine are distributed round-robin over the GPUs of the same
/// backend and kind as `device`.
pub fn of_worker(device: Device, local_rank: usize) -> Device {
    if device.is_cpu() {
        return device;
    }
    let alike =
        device.backend.map(devices).unwrap_or_default().into_iter().filter(|other| other.kind == device.kind);
    let alike = alike.collect::<Vec<_>>();
    alike.get(local_rank % alike.len().max(1)).cloned().unwrap_or(device)
}

/// Returns the device to compute on: from the requested backend, or else from the best one that is compiled in and has
/// hardware on this machine. A software device is only chosen on request.
///
/// # Errors
/// Returns an error if the requested backend is not compiled in, or if the device does not exist.
pub fn choose(backend: Option<BackendName>, wanted: Option<&DeviceChoice>) -> Result<Device> {
    let names = backend.map_or_else(compiled, |name| vec![name]);
    // Without a backend, an index counts GPUs if this build supports any.
    let counts_gpus = backend.is_none() && names.iter().any(|name| !name.is_cpu());
    let fits = |device: &&Device| match (wanted, device.kind) {
        (Some(kind @ DeviceChoice::Kind(_)), _) => device.is(kind),
        (_, DeviceKind::Software) if backend.is_none() => false,
        (Some(DeviceChoice::Index(_)), DeviceKind::Processor) if counts_gpus => false,
        (wanted, _) => wanted.is_none_or(|wanted| device.is(wanted)),
    };
    let (mut searched, mut seen) = (Vec::new(), Vec::new());
    for &name in &names {
        let found = if backend.is_some() { devices_of(name)? } else { devices(name) };
        let Some(device) = found.iter().filter(fits).min_by_key(|device| device.kind) else {
            searched.push(name.to_string());
            seen.extend(found);
            continue;
        };
        if device.kind == DeviceKind::Software {
            log::warn!("{} is a software device; a CPU backend is faster", device.name);
        }
        // No warning if the user asked for this kind.
        if !searched.is_empty() && !matches!(wanted, Some(DeviceChoice::Kind(_))) {
            let better = searched.join(" or ");
            log::warn!("no GPU found for {better}; using {name} instead");
        }
        return Ok(device.clone());
    }
    let listed = seen.iter().map(|device| {
        format!("{} ({} {}, {})", device.index, device.backend_name(), device.kind.name(), device.name)
    });
    let listed = listed.collect::<Vec<_>>().join("; ");
    let Some(wanted) = wanted else {
        let instead = match seen.is_empty() {
            true => "install the driver of your GPU".to_string(),
            false => format!("use --backend for one of {listed}"),
        };
        let searched = searched.join(" or ");
        let problem = format!("no GPU found for {searched}; {instead}, or build with --features ndarray");
        return Err(Error::Input(problem));
    };
    let problem = match seen.iter().any(|device| device.is(wanted)) {
        _ if seen.is_empty() => "does not exist; `backends` lists the devices of this build".to_string(),
        true => {
            format!("is not a GPU of this machine; use one of {listed}, by its kind or with its --backend")
        }
        false => format!("does not exist; use one of {listed}, by its number or kind"),
    };
    Err(Error::key("training.device", wanted, problem))
}
