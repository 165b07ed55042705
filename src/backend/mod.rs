//! From a backend's name to the code compiled for it: the one place, besides the program's
//! front, that names a backend.
//!
//! Work that trains or evaluates is a [`Job`], generic over the backend; [`choose`] finds the device
//! that it runs on, and [`run`] picks the instance.

#[cfg(any(feature = "wgpu", feature = "cuda"))]
mod accelerator;
mod check;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "wgpu")]
mod wgpu;

pub use check::{Check, Part, check};

use crate::error::{Error, Result};
use crate::ops;
use crate::training::{
    self, BackendName, Control, Device, DeviceChoice, DeviceKind, Experiment, Outcome, RunFolder, Target,
    warn,
};

#[cfg(not(any(feature = "ndarray", feature = "flex", feature = "wgpu", feature = "cuda")))]
compile_error!(
    "no backend is compiled in: build with one of --features ndarray, flex (CPU), wgpu, vulkan, metal, cuda (GPU)"
);

/// Work that any backend can do.
pub trait Job {
    /// What comes out.
    type Output;

    /// Does the work on `device`.
    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Self::Output>;
}

/// What was asked for: all, some or nothing of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// The backend.
    pub backend: Option<BackendName>,
    /// The device.
    pub device: Option<DeviceChoice>,
}

/// The backends that this build holds, best first.
pub fn compiled() -> Vec<BackendName> {
    let is_compiled = |name: &BackendName| match name {
        BackendName::Cuda => cfg!(feature = "cuda"),
        BackendName::Wgpu => cfg!(feature = "wgpu"),
        BackendName::Ndarray => cfg!(feature = "ndarray"),
        BackendName::Flex => cfg!(feature = "flex"),
    };
    BackendName::ALL.into_iter().filter(is_compiled).collect()
}

/// The devices of this machine that a backend finds, by number; none where it is not compiled in.
pub fn devices(name: BackendName) -> Vec<Device> {
    match name {
        BackendName::Ndarray | BackendName::Flex => vec![Device::processor(name)],
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => wgpu::devices(),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => cuda::devices(),
        #[allow(unreachable_patterns)]
        _ => Vec::new(),
    }
}

/// The device to compute on: of the backend asked for, or else of the best that is compiled in and
/// that this machine has the hardware for. A software device is never chosen unasked.
///
/// # Errors
/// If the backend asked for is not compiled in, or the device is not there.
pub fn choose(asked: Asked) -> Result<Device> {
    let device = match asked.backend {
        Some(name) => of_backend(name, asked.device)?,
        None => best(asked.device)?,
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
        return Err(missing(name));
    }
    match devices(name) {
        found if found.is_empty() => Err(absent(name)),
        found => Ok(found),
    }
}

/// The best device of a backend that was asked for by name.
fn of_backend(name: BackendName, wanted: Option<DeviceChoice>) -> Result<Device> {
    let found = devices_of(name)?;
    let list = listed(&found);
    let fitting = found.into_iter().filter(|device| wanted.is_none_or(|wanted| wanted.fits(device)));
    fitting.min_by_key(|device| device.kind).ok_or_else(|| no_such_device(wanted, &list))
}

/// The best device of any backend.
fn best(wanted: Option<DeviceChoice>) -> Result<Device> {
    let compiled = compiled();
    let mut searched = Vec::new();
    let mut seen = Vec::new();
    for name in compiled {
        let found = devices(name);
        // A number says nothing of a kind, so it asks for no software device.
        let is_right = |device: &&Device| match wanted {
            Some(wanted @ DeviceChoice::Kind(_)) => wanted.fits(device),
            Some(wanted @ DeviceChoice::Index(_)) => {
                wanted.fits(device) && device.kind != DeviceKind::Software
            }
            None => device.kind != DeviceKind::Software,
        };
        if let Some(device) = found.iter().filter(is_right).min_by_key(|device| device.kind) {
            if !searched.is_empty() {
                let number = match wanted {
                    Some(DeviceChoice::Index(index)) => format!("{index} "),
                    Some(DeviceChoice::Kind(_)) | None => String::new(),
                };
                let mut problem = format!("no graphics card {number}found for {}", searched.join(" or "));
                if let Some(software) =
                    seen.iter().find(|device: &&Device| device.kind == DeviceKind::Software)
                {
                    problem += &format!(
                        " ({} is a software device, used by --backend {})",
                        software.name,
                        software.backend.name()
                    );
                }
                warn(&format!("{problem}: {} computes instead", device.backend.name()));
            }
            return Ok(device.clone());
        }
        searched.push(name.name());
        seen.extend(found);
    }
    if let Some(software) = seen.iter().find(|device| wanted.is_some_and(|wanted| wanted.fits(device))) {
        let problem = format!(
            "is a software device, {}, which is used only where it is asked for: use --backend {}",
            software.name,
            software.backend.name()
        );
        return Err(Error::key("training.device", software.index, problem));
    }
    if wanted.is_some() {
        return Err(no_such_device(wanted, &listed(&seen)));
    }
    let instead = match seen.first() {
        Some(device) => {
            format!("use --backend {} for the software device {}", device.backend.name(), device.name)
        }
        None => "install the driver of your card".to_string(),
    };
    Err(Error::Input(format!(
        "no graphics card found for {}: {instead}, or build with --features ndarray",
        searched.join(" or ")
    )))
}

/// Runs `job` on `device`.
///
/// # Errors
/// Those of the job, and if the backend cannot start or fails.
pub fn run<J: Job>(device: &Device, job: J) -> Result<J::Output> {
    match device.backend {
        #[cfg(feature = "ndarray")]
        BackendName::Ndarray => cpu::<burn_ndarray::NdArray, J>(job),
        #[cfg(feature = "flex")]
        BackendName::Flex => cpu::<burn_flex::Flex, J>(job),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => accelerator::run::<burn_wgpu::Wgpu, J>(device, wgpu::handle(device), job),
        #[cfg(feature = "cuda")]
        BackendName::Cuda => accelerator::run::<burn_cuda::Cuda, J>(device, cuda::handle(device), job),
        #[allow(unreachable_patterns)]
        name => {
            drop(job);
            Err(missing(name))
        }
    }
}

#[cfg(any(feature = "ndarray", feature = "flex"))]
fn cpu<B: ops::Backend, J: Job>(job: J) -> Result<J::Output> {
    job.run::<burn_autodiff::Autodiff<B>>(Default::default())
}

/// Where a run stands in the file system.
#[derive(Debug)]
pub enum Place {
    /// A new one, trained from the beginning.
    New(Target),
    /// One that is gone on with.
    Old(RunFolder),
}

/// Trains on the device that `control` names.
///
/// # Errors
/// Those of [`training::train`] and [`training::resume`], and if the backend cannot start.
pub fn train(experiment: &Experiment, place: Place, control: &Control) -> Result<Outcome> {
    struct Train<'a>(&'a Experiment, Place, &'a Control);

    impl Job for Train<'_> {
        type Output = Outcome;

        fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Outcome> {
            let Train(experiment, place, control) = self;
            match place {
                Place::New(target) => training::train::<B>(experiment, &target, &device, control),
                Place::Old(folder) => training::resume::<B>(experiment, folder, &device, control),
            }
        }
    }

    run(&control.device, Train(experiment, place, control)).map_err(|error| match error {
        Error::DeviceMemory { device } if experiment.training.batch_size > 1 => {
            let batch_size = experiment.training.batch_size;
            let smaller = batch_size / 2;
            let problem = format!(
                "takes more memory than {device} has: try {smaller}, with training.accumulate = {} for the same \
                 steps",
                2 * experiment.training.accumulate
            );
            Error::key("training.batch_size", batch_size, problem)
        }
        error => error,
    })
}

/// What must be installed for a backend that finds no device.
fn absent(name: BackendName) -> Error {
    let looked = match name {
        BackendName::Cuda => {
            "found no NVIDIA card through the CUDA driver (libcuda): install NVIDIA's driver and the CUDA toolkit \
             (nvrtc)"
        }
        BackendName::Wgpu if cfg!(target_os = "macos") => "found no graphics adapter through Metal",
        BackendName::Wgpu => {
            "found no graphics adapter through Vulkan: install the driver of your card (or Mesa's \
             mesa-vulkan-drivers for a software device)"
        }
        BackendName::Ndarray | BackendName::Flex => "found no processor",
    };
    Error::key("training.backend", name.name(), format!("{looked}, or use --backend {}", instead_of(name)))
}

/// The backend to use instead of one: the best CPU backend of this build, another that it has, or else one
/// that computes anywhere.
fn instead_of(backend: BackendName) -> &'static str {
    let compiled = compiled();
    let other = compiled.iter().find(|name| name.is_cpu() && **name != backend);
    let other = other.or(compiled.iter().find(|&&name| name != backend));
    other.map_or("ndarray", |name| name.name())
}

fn no_such_device(wanted: Option<DeviceChoice>, list: &str) -> Error {
    let wanted = wanted.map(|wanted| wanted.to_string()).unwrap_or_default();
    let problem = match list {
        "" => "is not there: this machine has no graphics card that this build can use".to_string(),
        list => format!("is not there: choose one of {list}"),
    };
    Error::key("training.device", wanted, problem)
}

fn listed(devices: &[Device]) -> String {
    let one = |device: &Device| {
        format!("{} ({} {}, {})", device.index, device.backend.name(), device.kind.name(), device.name)
    };
    devices.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn missing(name: BackendName) -> Error {
    let compiled = compiled().into_iter().map(BackendName::name).collect::<Vec<_>>().join(", ");
    let (name, instead) = (name.name(), instead_of(name));
    let problem = format!(
        "is not compiled in (this build has {compiled}): build it with `cargo build --release --features {name}`, or \
         use --backend {instead}"
    );
    Error::key("training.backend", name, problem)
}
