//! Work on a GPU, where panics of the driver or of Burn's kernels become errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::tensor::{Tensor, backend::Backend};
use burn_autodiff::Autodiff;

use super::Job;
use super::missing::{instead_of, needs};
use super::{Device, DeviceWatch};
use crate::error::{Error, Result, panic_message};

/// Runs `job` on a GPU, after a small computation has shown that the GPU works.
pub fn run<B: Backend, J: Job>(device: &Device, handle: B::Device, job: J) -> Result<J::Output> {
    let watch = DeviceWatch::begin(device, &handle);
    let works = catch_unwind(AssertUnwindSafe(|| {
        let one = Tensor::<B, 1>::ones([3], &handle);
        (one.clone() + one).into_data().to_vec::<f32>().is_ok_and(|sum| sum == [2.0; 3])
    }));
    if let Ok(true) = works {
        let outcome = catch_unwind(AssertUnwindSafe(|| job.run::<Autodiff<B>>(handle)));
        return finished(&watch, outcome);
    }
    Err(cannot_start(device, &watch, works.err()))
}

/// Returns the error for a device that does not start. CubeCL starts a device on a separate thread, whose panic has the
/// cause; the panic of the waiting thread only reports that it received no answer.
fn cannot_start(device: &Device, watch: &DeviceWatch, panic: Option<Box<dyn Any + Send>>) -> Error {
    let failure = watch.check().err().or_else(|| Some(watch.failure(panic_message(panic?.as_ref()))));
    let name = &device.name;
    let problem = match failure {
        Some(Error::DeviceFailed { message, .. }) => {
            format!("cannot start on {name}: {message}")
        }
        Some(error) => return error,
        None => format!("computes 1 + 1 wrongly on {name}; update its driver"),
    };
    let Some(backend) = device.backend else { return Error::Failed(problem) };
    let problem = format!(
        "{problem}; it needs {}; see `backends` for other devices, or {}",
        needs(backend),
        instead_of(backend)
    );
    Error::key("training.backend", backend, problem)
}

/// Returns the outcome if the device has not failed meanwhile. After a failure, results and errors are meaningless.
fn finished<T>(watch: &DeviceWatch, outcome: Result<Result<T>, Box<dyn Any + Send>>) -> Result<T> {
    watch.check()?;
    outcome.unwrap_or_else(|panic| match panic.downcast::<Error>() {
        // Data that is read during the work, such as a file that was truncated.
        Ok(error) => Err(*error),
        Err(panic) => Err(watch.failure(panic_message(panic.as_ref()))),
    })
}

#[cfg(test)]
mod tests {
    use burn::tensor::backend::AutodiffBackend;
    use burn_flex::FlexDevice;

    use super::*;

    #[test]
    fn driver_panics_become_errors_on_any_thread() {
        struct Unaware;
        impl Job for Unaware {
            type Output = f64;

            fn run<B: AutodiffBackend>(self, _: B::Device) -> Result<f64> {
                // The name of the thread that serves Flex's device.
                let thread = std::thread::Builder::new().name("DSD-0-0".into());
                let _ = thread.spawn(|| panic!("no such buffer")).unwrap().join();
                Ok(2.2127)
            }
        }

        let watch = DeviceWatch::begin(&Device::fictitious_gpu(), &FlexDevice);
        let outcome = |text: &'static str| {
            finished::<()>(&watch, catch_unwind(|| std::panic::panic_any(text))).unwrap_err().to_string()
        };
        let failed = outcome("device lost\nbacktrace");
        assert_eq!(failed, "wgpu on a GPU has failed: device lost backtrace");
        let memory = outcome("can't allocate buffer of size: 123");
        assert!(memory.contains("memory") && memory.contains("a GPU"), "{memory}");

        let refusal = |panic| cannot_start(&Device::fictitious_gpu(), &watch, panic).to_string();
        let started = refusal(Some(Box::new("no queue")));
        assert!(started.starts_with("`training.backend` = wgpu cannot start on a GPU: "), "{started}");
        assert!(started.contains(": no queue; it needs") && !started.contains("update"), "{started}");
        assert!(
            refusal(None).contains("computes 1 + 1 wrongly on a GPU; update its driver"),
            "{}",
            refusal(None)
        );

        // A job that succeeds although a thread of CubeCL has panicked.
        let error =
            run::<burn_flex::Flex, _>(&Device::fictitious_gpu(), Default::default(), Unaware).unwrap_err();
        assert!(error.to_string().contains("no such buffer"), "{error}");
    }
}
