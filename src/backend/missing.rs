//! Errors for backends that cannot compute, with their requirements and alternatives.

use super::compiled;
use crate::{config::BackendName, error::Error};

/// Returns the error for a backend that finds no device.
pub fn absent(name: BackendName) -> Error {
    let problem = format!("finds no device; it needs {}; {}", needs(name), instead_of(name));
    Error::key("training.backend", name, problem)
}

/// Returns the software and hardware that a backend requires.
pub fn needs(name: BackendName) -> &'static str {
    match name {
        // Kernels are compiled at run time (cubecl-cuda 0.10, lib.rs, `install`).
        BackendName::Cuda => {
            "NVIDIA's driver, and the CUDA toolkit with nvrtc and its headers (in CUDA_PATH, or in a default \
            path such as /usr/local/cuda)"
        }
        BackendName::Wgpu if cfg!(target_os = "macos") => "a GPU that Metal supports",
        BackendName::Wgpu => {
            "the Vulkan driver of your GPU (or Mesa's mesa-vulkan-drivers for a software device)"
        }
        BackendName::Ndarray | BackendName::Flex => "a processor",
    }
}

/// Returns an alternative to a backend: the best other CPU backend of this build, else any other backend of this build,
/// else a build with a backend that runs anywhere.
pub fn instead_of(backend: BackendName) -> String {
    let compiled = compiled();
    let other = compiled.iter().find(|name| name.is_cpu() && **name != backend);
    match other.or(compiled.iter().find(|&&name| name != backend)) {
        Some(name) => format!("use --backend {name}"),
        None => "build with --features ndarray".to_string(),
    }
}

/// Returns the error for a backend that is not compiled in.
pub fn not_compiled(name: BackendName) -> Error {
    let compiled = compiled().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let instead = instead_of(name);
    let problem = format!(
        "is not compiled in (this build has {compiled}); build it with `cargo build --release --features {name}`, \
         or {instead}"
    );
    Error::key("training.backend", name, problem)
}
