//! What a backend lacks where it cannot compute, and what computes instead.

use super::compiled;
use crate::{config::BackendName, error::Error};

/// The error for a backend that finds no device.
pub fn absent(name: BackendName) -> Error {
    let problem = format!("found no device: it needs {}, or {}", needs(name), instead_of(name));
    Error::key("training.backend", name.name(), problem)
}

/// What must be installed for a backend.
pub fn needs(name: BackendName) -> &'static str {
    match name {
        // Kernels are compiled as they are used (cubecl-cuda 0.10, lib.rs, `install`).
        BackendName::Cuda => {
            "NVIDIA's driver, and the CUDA toolkit with nvrtc and its headers (in CUDA_PATH, or else in the usual \
             place, as /usr/local/cuda)"
        }
        BackendName::Wgpu if cfg!(target_os = "macos") => "a GPU that Metal knows",
        BackendName::Wgpu => {
            "the Vulkan driver of your GPU (or Mesa's mesa-vulkan-drivers for a software device)"
        }
        BackendName::Ndarray | BackendName::Flex => "a processor",
    }
}

/// What to do instead of using a backend: take the best CPU backend of this build or another that it has, or
/// else build with one that computes anywhere.
pub fn instead_of(backend: BackendName) -> String {
    let compiled = compiled();
    let other = compiled.iter().find(|name| name.is_cpu() && **name != backend);
    match other.or(compiled.iter().find(|&&name| name != backend)) {
        Some(name) => format!("use --backend {}", name.name()),
        None => "build with --features ndarray".to_string(),
    }
}

/// The error for a backend that this build does not hold.
pub fn not_compiled(name: BackendName) -> Error {
    let compiled = compiled().into_iter().map(BackendName::name).collect::<Vec<_>>().join(", ");
    let (name, instead) = (name.name(), instead_of(name));
    let problem = format!(
        "is not compiled in (this build has {compiled}): build it with `cargo build --release --features {name}`, or \
         {instead}"
    );
    Error::key("training.backend", name, problem)
}
