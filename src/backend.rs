//! From a backend's name to the code compiled for it: the one place, besides the program's
//! front, that names a backend.
//!
//! Work that trains or evaluates is a [`Job`], generic over the backend; [`run`] picks the
//! instance.

use burn_autodiff::Autodiff;

use crate::error::{Error, Result};
use crate::ops;
use crate::training::{self, BackendName, Control, Experiment, Outcome, RunFolder, Target};

#[cfg(not(any(feature = "ndarray", feature = "wgpu")))]
compile_error!("no backend is compiled in: build with --features ndarray, or with --features wgpu for a GPU");

/// Work that any backend can do.
pub trait Job {
    /// What comes out.
    type Output;

    /// Does the work on `device`.
    fn run<B: ops::AutodiffBackend>(self, device: B::Device) -> Result<Self::Output>;
}

/// The backends that this build holds, best first.
pub fn compiled() -> Vec<BackendName> {
    let is_compiled = |name: &BackendName| match name {
        BackendName::Wgpu => cfg!(feature = "wgpu"),
        BackendName::Ndarray => cfg!(feature = "ndarray"),
    };
    [BackendName::Wgpu, BackendName::Ndarray].into_iter().filter(is_compiled).collect()
}

/// The backend to use: the one asked for, or else the best that is compiled in and that this
/// machine has the hardware for. A software device is never chosen unasked.
///
/// # Errors
/// If the one asked for is not compiled in, or its hardware is not there.
pub fn choose(asked: Option<BackendName>) -> Result<BackendName> {
    let compiled = compiled();
    match asked {
        Some(name) if !compiled.contains(&name) => Err(missing(name)),
        #[cfg(feature = "wgpu")]
        Some(BackendName::Wgpu) => match wgpu::adapter() {
            Some(adapter) => {
                if adapter.is_software {
                    eprintln!(
                        "warning: wgpu computes on {}, a software device: ndarray is faster",
                        adapter.name
                    );
                }
                Ok(BackendName::Wgpu)
            }
            None => Err(wgpu::absent()),
        },
        Some(name) => Ok(name),
        #[cfg(all(feature = "wgpu", feature = "ndarray"))]
        None if wgpu::adapter().is_none_or(|adapter| adapter.is_software) => {
            eprintln!("no graphics card found for wgpu: ndarray computes instead");
            Ok(BackendName::Ndarray)
        }
        None => compiled.first().copied().ok_or_else(|| Error::Input("no backend is compiled in".into())),
    }
}

/// Runs `job` on the backend called `name`.
///
/// # Errors
/// Those of the job, and if the backend is not compiled in or cannot start.
pub fn run<J: Job>(name: BackendName, job: J) -> Result<J::Output> {
    match name {
        #[cfg(feature = "ndarray")]
        BackendName::Ndarray => job.run::<Autodiff<burn_ndarray::NdArray>>(Default::default()),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => match wgpu::adapter() {
            Some(_) => job.run::<Autodiff<burn_wgpu::Wgpu>>(Default::default()),
            None => Err(wgpu::absent()),
        },
        #[allow(unreachable_patterns)]
        name => Err(missing(name)),
    }
}

/// Where a run stands in the file system.
#[derive(Debug)]
pub enum Place {
    /// A new one, trained from the beginning.
    New(Target),
    /// One that is gone on with.
    Old(RunFolder),
}

/// Trains on the backend that `control` names.
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

    run(control.backend, Train(experiment, place, control))
}

fn missing(name: BackendName) -> Error {
    let compiled = compiled().into_iter().map(BackendName::name).collect::<Vec<_>>().join(", ");
    let name = name.name();
    let problem = format!(
        "is not compiled in (this build has {compiled}): build it with `cargo build --release --features {name}`"
    );
    Error::key("training.backend", name, problem)
}

/// Starting wgpu. It panics where no adapter is found, so that is caught here and told apart.
#[cfg(feature = "wgpu")]
mod wgpu {
    use std::panic::{catch_unwind, set_hook, take_hook};
    use std::sync::OnceLock;

    use burn_wgpu::WgpuDevice;
    use burn_wgpu::graphics::AutoGraphicsApi;

    use crate::error::Error;

    /// The device that wgpu computes on.
    pub struct Adapter {
        /// Its name, as its driver says it.
        pub name: String,
        /// Whether it is a program on the CPU, as Mesa's llvmpipe.
        pub is_software: bool,
    }

    /// The default adapter, started once; none where there is none.
    pub fn adapter() -> Option<&'static Adapter> {
        static ADAPTER: OnceLock<Option<Adapter>> = OnceLock::new();
        let start = || {
            let hook = take_hook();
            set_hook(Box::new(|_| {}));
            let setup = catch_unwind(|| {
                burn_wgpu::init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), Default::default())
            });
            set_hook(hook);
            let info = setup.ok()?.adapter.get_info();
            // The type of the device is known to wgpu's own crate only, whose word for it is this.
            let is_software = format!("{:?}", info.device_type) == "Cpu";
            Some(Adapter { name: info.name, is_software })
        };
        ADAPTER.get_or_init(start).as_ref()
    }

    pub fn absent() -> Error {
        let problem = "found no graphics adapter: install the driver of your card (or Mesa's \
                       mesa-vulkan-drivers for a software device), or use --backend ndarray";
        Error::key("training.backend", "wgpu", problem)
    }
}
