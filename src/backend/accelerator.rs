//! Work on a card: what its driver or Burn's kernels panic with becomes an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::Tensor;
use burn_autodiff::Autodiff;

use super::Job;
use crate::error::{Error, Result, panic_message};
use crate::ops;
use crate::training::Device;

/// Runs `job` on a card, once a first small computation has shown that the card answers.
pub fn run<B: ops::Backend, J: Job>(device: &Device, handle: B::Device, job: J) -> Result<J::Output> {
    let answers = catch_unwind(AssertUnwindSafe(|| {
        let one = Tensor::<B, 1>::ones([3], &handle);
        (one.clone() + one).into_data().to_vec::<f32>().is_ok_and(|sum| sum == [2.0; 3])
    }));
    let problem = match answers {
        Ok(true) => {
            return finished(device, catch_unwind(AssertUnwindSafe(|| job.run::<Autodiff<B>>(handle))));
        }
        Ok(false) => "adds 1 and 1 wrongly".to_string(),
        Err(panic) => format!("cannot start: {}", message(panic)),
    };
    let problem = format!(
        "{} {problem}: update its driver, choose another device (see `backends`), or use --backend ndarray",
        device.name
    );
    Err(Error::key("training.backend", device.backend.name(), problem))
}

fn finished<T>(device: &Device, outcome: Result<Result<T>, Box<dyn Any + Send>>) -> Result<T> {
    outcome.unwrap_or_else(|panic| {
        let message = message(panic);
        if is_about_memory(&message) {
            return Err(Error::DeviceMemory { device: device.to_string() });
        }
        Err(Error::Failed(format!("{device} has failed: {message}. A run goes on with train --resume RUN")))
    })
}

/// Whether this is how a driver, wgpu or CubeCL say that memory is missing.
fn is_about_memory(message: &str) -> bool {
    let message = message.to_lowercase();
    ["out of memory", "out-of-memory", "out_of_memory", "outofmemory", "can't allocate", "not enough memory"]
        .iter()
        .any(|words| message.contains(words))
}

/// The beginning of a panic's message, before its backtrace.
fn message(panic: Box<dyn Any + Send>) -> String {
    panic_message(panic.as_ref())
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .take(3)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::{BackendName, DeviceKind};

    #[test]
    fn a_panic_of_the_driver_becomes_an_error() {
        let card = Device {
            backend: BackendName::Wgpu,
            index: 0,
            kind: DeviceKind::Discrete,
            index_of_kind: 0,
            name: "a card".into(),
            memory: None,
        };
        let outcome = |text: &'static str| {
            finished::<()>(&card, catch_unwind(|| std::panic::panic_any(text))).unwrap_err().to_string()
        };
        let failed = outcome("device lost\nbacktrace");
        assert!(failed.starts_with("wgpu on a card has failed: device lost"), "{failed}");
        let memory = outcome("can't allocate buffer of size: 123");
        assert!(memory.contains("memory") && memory.contains("a card"), "{memory}");
    }
}
