//! Checks before a run that all workers have the same code, config, data and kind of processor. Otherwise their results
//! would differ, at least in the last bits.

use serde::{Deserialize, Serialize};

use super::{Workers, host};
use crate::backend::Device;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::files::sha256;

/// The properties of a worker that must equal those of worker 0, and its host for messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Identity {
    host: String,
    /// The version and hash of the program.
    program: String,
    config: String,
    /// The fingerprint of the data.
    data: u64,
    device: String,
}

/// Lists the instruction sets that select code paths in the kernels and in the libraries that they use.
#[cfg(target_arch = "x86_64")]
fn instructions() -> String {
    let has = [
        ("SSE4.1", is_x86_feature_detected!("sse4.1")),
        ("AVX", is_x86_feature_detected!("avx")),
        ("AVX2", is_x86_feature_detected!("avx2")),
        ("FMA", is_x86_feature_detected!("fma")),
        ("AVX-512", is_x86_feature_detected!("avx512f")),
        ("AVX-512 BF16", is_x86_feature_detected!("avx512bf16")),
        ("AMX BF16", causal_attention_kernels::uses_amx()),
    ];
    has.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

#[cfg(not(target_arch = "x86_64"))]
fn instructions() -> String {
    std::env::consts::ARCH.to_string()
}

impl Identity {
    /// Returns the identity of this worker.
    ///
    /// # Errors
    /// Returns an error if the program file cannot be read.
    pub fn new(config: &Config, data: u64, device: &Device) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            Error::Failed(format!("cannot find the path of this program: {error}; mount /proc"))
        })?;
        let device = match device.is_cpu() {
            true => format!("{device} with {}", instructions()),
            false => device.to_string(),
        };
        Ok(Self {
            host: host(),
            program: format!("{} {}", env!("CARGO_PKG_VERSION"), sha256(&program)?),
            config: config.to_toml(),
            data,
            device,
        })
    }

    /// Checks that every worker has the same identity.
    ///
    /// # Errors
    /// Returns an error on every worker if one of them differs from worker 0 in anything but its host.
    pub fn check(&self, workers: &Workers) -> Result<()> {
        let first = workers.broadcast(self.clone())?;
        workers.agree(self.compare(&first))
    }

    fn compare(&self, first: &Self) -> Result<()> {
        let first_name = format!("worker 0 on {}", first.host);
        let problem = if self.program != first.program {
            format!(
                "runs a different build of this program than {first_name}; start the same build on every machine"
            )
        } else if self.config != first.config {
            let mut lines = self.config.lines().zip(first.config.lines());
            let differing = lines.find(|(here, there)| here != there);
            let (here, there) = differing.unwrap_or(("a key", "a different key"));
            format!(
                "has the config `{here}` where {first_name} has `{there}`; use the same config on every worker"
            )
        } else if self.data != first.data {
            format!("reads different data than {first_name}; use the same files on every worker")
        } else if self.device != first.device {
            format!(
                "computes with {}, but {first_name} computes with {}, so results would differ in the last bits; \
                use machines of the same kind",
                self.device, first.device
            )
        } else {
            return Ok(());
        };
        Err(Error::Input(problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_difference() {
        let identity = |host: &str| Identity {
            host: host.into(),
            program: "1".into(),
            config: "a = 1\nb = 2\n".into(),
            data: 7,
            device: "ndarray with AVX2".into(),
        };
        let (own, first) = (identity("here"), identity("there"));
        assert!(own.compare(&first).is_ok(), "host names may differ");
        let error = |change: fn(&mut Identity)| {
            let mut own = own.clone();
            change(&mut own);
            own.compare(&first).unwrap_err().to_string()
        };
        assert!(
            error(|own| own.program.push('x'))
                .starts_with("runs a different build of this program than worker 0 on there")
        );
        assert!(
            error(|own| own.config = "a = 1\nb = 3\n".into()).starts_with("has the config `b = 3` where")
        );
        assert!(error(|own| own.data = 8).starts_with("reads different data"));
        assert!(
            error(|own| own.device.push_str(", FMA"))
                .starts_with("computes with ndarray with AVX2, FMA, but")
        );
    }
}
