//! The device to compute on, by what was asked for and what there is.

use super::missing::{absent, not_compiled};
use super::{Device, compiled, devices};
use crate::config::{BackendName, DeviceChoice, DeviceKind};
use crate::error::{Error, Result};

/// The devices of a backend that was asked for by name.
///
/// # Errors
/// If it is not compiled in, or finds none.
pub fn devices_of(name: BackendName) -> Result<Vec<Device>> {
    if !compiled().contains(&name) {
        return Err(not_compiled(name));
    }
    match devices(name) {
        found if found.is_empty() => Err(absent(name)),
        found => Ok(found),
    }
}

/// Of several workers on this machine, whose number among them is `local_rank`, each its own: of the GPUs like `device`
/// that backend's next one.
pub fn of_worker(device: Device, local_rank: usize) -> Device {
    if device.backend.is_cpu() {
        return device;
    }
    let alike = devices(device.backend).into_iter().filter(|other| other.kind == device.kind);
    let alike = alike.collect::<Vec<_>>();
    alike.get(local_rank % alike.len().max(1)).cloned().unwrap_or(device)
}

/// The device to compute on: of the backend asked for, or else of the best that is compiled in and
/// that this machine has the hardware for. A software device is never chosen unasked.
///
/// # Errors
/// If the backend asked for is not compiled in, or the device is not there.
pub fn choose(backend: Option<BackendName>, wanted: Option<&DeviceChoice>) -> Result<Device> {
    let names = backend.map_or_else(compiled, |name| vec![name]);
    // Without a backend a number counts GPUs, where this build can use any.
    let counts_cards = backend.is_none() && names.iter().any(|name| !name.is_cpu());
    let fits = |device: &&Device| match (wanted, device.kind) {
        (Some(kind @ DeviceChoice::Kind(_)), _) => device.is(kind),
        (_, DeviceKind::Software) if backend.is_none() => false,
        (Some(DeviceChoice::Index(_)), DeviceKind::Processor) if counts_cards => false,
        (wanted, _) => wanted.is_none_or(|wanted| device.is(wanted)),
    };
    let (mut searched, mut seen) = (Vec::new(), Vec::new());
    for &name in &names {
        let found = if backend.is_some() { devices_of(name)? } else { devices(name) };
        let Some(device) = found.iter().filter(fits).min_by_key(|device| device.kind) else {
            searched.push(name.name());
            seen.extend(found);
            continue;
        };
        if device.kind == DeviceKind::Software {
            log::warn!("{} is a software device: a CPU backend is faster", device.name);
        }
        // Whoever asked for this very kind knows that it computes.
        if !searched.is_empty() && !matches!(wanted, Some(DeviceChoice::Kind(_))) {
            let better = searched.join(" or ");
            log::warn!("no GPU found for {better}: {} computes instead", name.name());
        }
        return Ok(device.clone());
    }
    let listed = seen.iter().map(|device| {
        format!("{} ({} {}, {})", device.index, device.backend.name(), device.kind.name(), device.name)
    });
    let listed = listed.collect::<Vec<_>>().join("; ");
    let Some(wanted) = wanted else {
        let instead = match seen.is_empty() {
            true => "install the driver of your GPU".to_string(),
            false => format!("use --backend for one of {listed}"),
        };
        let searched = searched.join(" or ");
        let problem = format!("no GPU found for {searched}: {instead}, or build with --features ndarray");
        return Err(Error::Input(problem));
    };
    let problem = match seen.iter().any(|device| device.is(wanted)) {
        _ if seen.is_empty() => "is not there: this machine has no GPU that this build can use".to_string(),
        true => {
            format!("is no GPU of this machine: choose one of {listed}, by its kind or with its --backend")
        }
        false => format!("is not there: choose one of {listed}, by its number or kind"),
    };
    Err(Error::key("training.device", wanted, problem))
}
