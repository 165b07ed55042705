//! The largest tensors of a run, compared with the largest buffer of a GPU.
//!
//! The largest buffer of a GPU is often far smaller than its memory (wgpu's default is 128 MiB). A larger tensor ends a
//! run, so such a run is rejected before it leaves a trace.

use super::{device::Device, memory::MemoryEstimate};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::model::Sizes;
use crate::numbers::{Bytes, counted, thousands};
use crate::ops::Kernels;

impl MemoryEstimate {
    /// Checks that the largest tensors of training and evaluation each fit into a buffer of `device`.
    ///
    /// # Errors
    /// Returns [`Error::Key`] with the setting that makes a tensor too large, and the largest batch size that fits.
    pub fn check_tensors(&self, config: &Config, sizes: Sizes, device: &Device) -> Result<()> {
        let Some(most) = device.largest_buffer.map(|bytes| bytes as f64) else { return Ok(()) };
        let (model, training) = (&config.model, &config.training);
        let limit = format!("and one tensor on {device} takes at most {}", Bytes(most));
        // Queries, keys and values of a layer are one tensor, as is the inner layer of a feed-forward.
        let inner = model.up_width().max(model.qkv_width());
        let weights = bytes(&[model.d_model, inner.max(sizes.vocab)]);
        let problem = format!(
            "with a vocabulary of {} makes weights of {}, {limit}: choose a smaller model or vocabulary, or \
             another backend",
            thousands(sizes.vocab as f64),
            Bytes(weights)
        );
        Error::check_key(weights <= most, "model.d_model", model.d_model, problem)?;

        // Reference operations hold all scores; a fused block of attention holds those of at least one query.
        let time = sizes.context.max(sizes.source_context.unwrap_or(0));
        let queries = if training.kernels == Kernels::Fused { 1 } else { time };
        let of_a_row = [
            (bytes(&[model.heads, queries, time]), "attention scores"),
            (bytes(&[sizes.context, sizes.vocab]), "logits"),
            (bytes(&[time, inner]), "activations"),
        ];
        let (mut a_row, mut what) =
            of_a_row.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three of them");
        // Analysis of heads computes the full attention maps, one sequence at a time.
        let maps = bytes(&[model.heads, time, time]);
        if maps > most {
            (a_row, what) = (maps, "attention maps");
        }
        if self.rows as f64 * a_row <= most {
            return Ok(());
        }
        let tokens = counted(time, "token");
        let made = |bytes: f64| format!("makes {what} of {} in sequences of {tokens}, {limit}", Bytes(bytes));
        let fitting = (most / a_row) as usize;
        if fitting == 0 {
            let remedy = "lower it or the model's sizes, or choose another backend";
            let problem = format!("{} even for one of them: {remedy}", made(a_row));
            return Err(Error::key("data.length", config.data.length, problem));
        }
        let remedy =
            format!("training.batch_size = {fitting} (training.accumulate keeps the effective size)");
        let problem = format!("{}: try {remedy}", made(self.rows as f64 * a_row));
        Err(Error::key("training.batch_size", training.batch_size, problem))
    }
}

/// Returns the bytes of a tensor in single precision.
fn bytes(shape: &[usize]) -> f64 {
    shape.iter().map(|&size| size as f64).product::<f64>() * 4.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::BackendName;

    /// Returns the error for a GPU with buffers of 128 MiB.
    fn refused(set: &[&str]) -> Option<String> {
        let set = set.iter().map(ToString::to_string).collect::<Vec<_>>();
        let config = Config::parse("", std::path::Path::new("config.toml"), &set).unwrap();
        let device = Device { largest_buffer: Some(128 << 20), ..Device::processor(BackendName::Ndarray) };
        let (memory, sizes) = MemoryEstimate::from_config(&config, &device).unwrap();
        memory.check_tensors(&config, sizes, &device).err().map(|error| error.to_string())
    }

    #[test]
    fn suggested_batch_size_fits_and_larger_does_not() {
        const MODEL: [&str; 3] = ["model.d_model=16", "model.heads=4", "data.train_samples=64"];
        let by_blocks = |set: &[&str]| refused(&[&MODEL[..], set].concat());
        assert_eq!(by_blocks(&["training.batch_size=64", "data.length=2800"]), None);
        let told = by_blocks(&["training.batch_size=1", "data.length=3000"]).unwrap();
        assert!(told.starts_with("`data.length` = 3000 makes attention maps"), "{told}");

        let with = |set: &[&str]| by_blocks(&[&["training.kernels=composed"], set].concat());
        // 4 rows of 4 heads: 16 maps of 1,448 x 1,448 are just below 128 MiB.
        assert_eq!(with(&["training.batch_size=4", "data.length=1448"]), None);
        let told = with(&["training.batch_size=4", "data.length=1449"]).unwrap();
        assert!(told.starts_with("`training.batch_size` = 4 makes attention scores"), "{told}");
        assert!(told.contains("training.batch_size = 3"), "{told}");
        assert_eq!(with(&["training.batch_size=3", "data.length=1449"]), None);
        let told = with(&["training.batch_size=1", "data.length=3000"]).unwrap();
        assert!(told.starts_with("`data.length` = 3000"), "{told}");
    }

    #[test]
    fn logits_and_tables_count_too() {
        let told = refused(&["data.vocab=100000", "training.batch_size=8", "data.length=64"]).unwrap();
        assert!(told.contains("logits") && told.contains("training.batch_size = 5 "), "{told}");
        let told = refused(&["data.vocab=400000", "model.d_model=256"]).unwrap();
        assert!(told.starts_with("`model.d_model` = 256") && told.contains("weights"), "{told}");
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn feed_forward_counts_only_in_architectures_with_one() {
        let with = |set: &[&str]| {
            refused(&[&["data.length=16", "training.batch_size=2", "model.feed_forward=16"], set].concat())
        };
        let told = with(&["model.d_model=2048"]).unwrap();
        assert!(told.starts_with("`model.d_model` = 2048") && told.contains("weights of 269 MB"), "{told}");
        assert_eq!(with(&["model.d_model=2048", "model.architecture=one_layer"]), None);
    }
}
