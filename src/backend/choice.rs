//! The device to compute on, by what was asked for and what there is.

use super::Device;
use super::missing::{absent, not_compiled};
use super::{compiled, devices};
use crate::config::{BackendName, DeviceChoice, DeviceKind};
use crate::error::{Error, Result};
use crate::terminal::warn;

/// What was asked for: all, some or nothing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// The backend.
    pub backend: Option<BackendName>,
    /// The device.
    pub device: Option<DeviceChoice>,
}

/// The device to compute on: of the backend asked for, or else of the best that is compiled in and
/// that this machine has the hardware for. A software device is never chosen unasked.
///
/// # Errors
/// If the backend asked for is not compiled in, or the device is not there.
pub fn choose(asked: Asked) -> Result<Device> {
    let device = match asked.backend {
        Some(name) => of_backend(name, asked.device.as_ref())?,
        None => best(asked.device.as_ref())?,
    };
    if device.kind == DeviceKind::Software {
        warn(&format!("warning: {} is a software device: a CPU backend is faster", device.name));
    }
    Ok(device)
}

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

/// The best device of a backend that was asked for by name.
fn of_backend(name: BackendName, wanted: Option<&DeviceChoice>) -> Result<Device> {
    let found = devices_of(name)?;
    let list = listed(&found);
    let fitting = found.into_iter().filter(|device| wanted.is_none_or(|wanted| device.is(wanted)));
    fitting.min_by_key(|device| device.kind).ok_or_else(|| no_such_device(wanted, &list))
}

/// The best device of any backend.
fn best(wanted: Option<&DeviceChoice>) -> Result<Device> {
    let compiled = compiled();
    // Without a backend a number counts graphics cards, where this build can use any.
    let uses_cards = compiled.iter().any(|name| !name.is_cpu());
    let is_right = |device: &&Device| match (wanted, device.kind) {
        (Some(kind @ DeviceChoice::Kind(_)), _) => device.is(kind),
        (_, DeviceKind::Software) => false,
        (Some(DeviceChoice::Index(_)), DeviceKind::Processor) if uses_cards => false,
        (wanted, _) => wanted.is_none_or(|wanted| device.is(wanted)),
    };
    let mut searched = Vec::new();
    let mut seen = Vec::new();
    for name in compiled {
        let found = devices(name);
        if let Some(device) = found.iter().filter(is_right).min_by_key(|device| device.kind) {
            if !searched.is_empty() {
                warn_of_replacement(device, wanted, &searched, &seen);
            }
            return Ok(device.clone());
        }
        searched.push(name.name());
        seen.extend(found);
    }
    let Some(wanted) = wanted else {
        let instead = match seen.first() {
            Some(device) => {
                format!("use --backend {} for the software device {}", device.backend.name(), device.name)
            }
            None => "install the driver of your card".to_string(),
        };
        return Err(Error::Input(format!(
            "no graphics card found for {}: {instead}, or build with --features ndarray",
            searched.join(" or ")
        )));
    };
    Err(match seen.iter().any(|device| device.is(wanted)) {
        true => {
            let problem = format!(
                "is no graphics card of this machine: choose one of {}, by its kind or with its --backend",
                listed(&seen)
            );
            Error::key("training.device", wanted, problem)
        }
        false => no_such_device(Some(wanted), &listed(&seen)),
    })
}

/// Says that a better backend was compiled in and finds no card, but not to whoever asked for this very kind.
fn warn_of_replacement(device: &Device, wanted: Option<&DeviceChoice>, searched: &[&str], seen: &[Device]) {
    let number = match wanted {
        None => String::new(),
        Some(DeviceChoice::Index(index)) => format!("{index} "),
        Some(DeviceChoice::Kind(_) | DeviceChoice::Unknown(_)) => return,
    };
    let mut problem = format!("no graphics card {number}found for {}", searched.join(" or "));
    if let Some(software) = seen.iter().find(|device| device.kind == DeviceKind::Software) {
        problem += &format!(
            " ({} is a software device, used by --backend {})",
            software.name,
            software.backend.name()
        );
    }
    warn(&format!("{problem}: {} computes instead", device.backend.name()));
}

fn no_such_device(wanted: Option<&DeviceChoice>, list: &str) -> Error {
    let wanted = wanted.map(ToString::to_string).unwrap_or_default();
    let problem = match list {
        "" => "is not there: this machine has no graphics card that this build can use".to_string(),
        list => format!("is not there: choose one of {list}, by its number or kind"),
    };
    Error::key("training.device", wanted, problem)
}

fn listed(devices: &[Device]) -> String {
    let one = |device: &Device| {
        format!("{} ({} {}, {})", device.index, device.backend.name(), device.kind.name(), device.name)
    };
    devices.iter().map(one).collect::<Vec<_>>().join("; ")
}
