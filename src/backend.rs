//! From a backend's name to the code compiled for it: the one place, besides the program's
//! front, that names a backend.
//!
//! Work that trains or evaluates is a [`Job`], generic over the backend; [`run`] picks the
//! instance.

use burn_autodiff::Autodiff;

use crate::error::{Error, Result};
use crate::ops;
use crate::training::BackendName;

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

/// The backend to use: the one asked for, or else the best that is compiled in.
pub fn choose(asked: Option<BackendName>) -> Result<BackendName> {
    let compiled = compiled();
    match asked {
        Some(name) if compiled.contains(&name) => Ok(name),
        Some(name) => Err(missing(name)),
        None => compiled.first().copied().ok_or_else(|| Error::Input("no backend is compiled in".into())),
    }
}

/// Runs `job` on the backend called `name`.
pub fn run<J: Job>(name: BackendName, job: J) -> Result<J::Output> {
    match name {
        #[cfg(feature = "ndarray")]
        BackendName::Ndarray => job.run::<Autodiff<burn_ndarray::NdArray>>(Default::default()),
        #[cfg(feature = "wgpu")]
        BackendName::Wgpu => {
            let device = burn_wgpu::WgpuDevice::default();
            start_wgpu(&device)?;
            job.run::<Autodiff<burn_wgpu::Wgpu>>(device)
        }
        #[allow(unreachable_patterns)]
        name => Err(missing(name)),
    }
}

fn missing(name: BackendName) -> Error {
    let compiled = compiled().into_iter().map(BackendName::name).collect::<Vec<_>>().join(", ");
    let name = name.name();
    let problem = format!(
        "is not compiled in (this build has {compiled}): build it with `cargo build --release --features {name}`"
    );
    Error::key("training.backend", name, problem)
}

/// wgpu panics where no adapter is found, so it is started here, where that becomes an error.
#[cfg(feature = "wgpu")]
fn start_wgpu(device: &burn_wgpu::WgpuDevice) -> Result<()> {
    use burn_wgpu::graphics::AutoGraphicsApi;

    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let started = std::panic::catch_unwind(|| {
        burn_wgpu::init_setup::<AutoGraphicsApi>(device, Default::default());
    });
    std::panic::set_hook(hook);
    started.map_err(|_| {
        let problem = "found no graphics adapter: install the driver of your card (or Mesa's \
                       mesa-vulkan-drivers for a software device), or use --backend ndarray";
        Error::key("training.backend", "wgpu", problem)
    })
}
