//! The largest tensors of a run, compared with the largest buffer of a GPU.
//!
//! The largest buffer of a GPU is often far smaller than its memory (wgpu's default is 128 MiB). A run with a larger
//! tensor would fail, so it is rejected before it writes any files.

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
        let Some(limit) = device.largest_buffer.map(|bytes| bytes as f64) else { return Ok(()) };
        let (model, training) = (&config.model, &config.training);
        let explained_limit = format!("but a tensor on {device} can have at most {}", Bytes(limit));
        // The queries, keys and values of a layer are one tensor, as are the inner activations of a feed-forward layer.
        let inner = model.up_width().max(model.qkv_width());
        let weights = bytes(&[model.d_model, inner.max(sizes.vocab)]);
        let problem = format!(
            "with a vocabulary of {} needs weights of {}, {explained_limit}; use a smaller model or vocabulary, \
             or another backend",
            thousands(sizes.vocab as f64),
            Bytes(weights)
        );
        Error::check_key(weights <= limit, "model.d_model", model.d_model, problem)?;

        // Reference operations hold all scores; fused attention holds the scores of at least one query.
        let time = sizes.context.max(sizes.source_context.unwrap_or(0));
        let queries = if training.kernels == Kernels::Fused { 1 } else { time };
        let candidates = [
            (bytes(&[model.heads, queries, time]), "attention scores"),
            (bytes(&[sizes.context, sizes.vocab]), "logits"),
            (bytes(&[time, inner]), "activations"),
        ];
        let (mut bytes_per_row, mut what) =
            candidates.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).expect("three candidates");
        // The analysis of heads computes full attention maps, one sequence at a time.
        let maps = bytes(&[model.heads, time, time]);
        if maps > limit {
            (bytes_per_row, what) = (maps, "attention maps");
        }
        if self.rows as f64 * bytes_per_row <= limit {
            return Ok(());
        }
        let tokens = counted(time, "token");
        let needed = |bytes: f64| {
            format!("needs {what} of {} for sequences of {tokens}, {explained_limit}", Bytes(bytes))
        };
        let fitting = (limit / bytes_per_row) as usize;
        if fitting == 0 {
            let remedy = "lower it or the model's sizes, or use another backend";
            let problem = format!("{}, even for one sequence; {remedy}", needed(bytes_per_row));
            return Err(Error::key("data.length", config.data.length, problem));
        }
        let remedy = format!(
            "training.batch_size = {fitting} (raise training.accumulate to keep the effective batch size)"
        );
        let problem = format!("{}; set {remedy}", needed(self.rows as f64 * bytes_per_row));
        Err(Error::key("training.batch_size", training.batch_size, problem))
    }
}

/// Returns the size of a tensor in single precision, in bytes.
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
        let fused = |set: &[&str]| refused(&[&MODEL[..], set].concat());
        assert_eq!(fused(&["training.batch_size=64", "data.length=2800"]), None);
        let message = fused(&["training.batch_size=1", "data.length=3000"]).unwrap();
        assert!(message.starts_with("`data.length` = 3000 needs attention maps"), "{message}");

        let reference = |set: &[&str]| fused(&[&["training.kernels=reference"], set].concat());
        // 4 rows of 4 heads: 16 maps of 1,448 x 1,448 are just below 128 MiB.
        assert_eq!(reference(&["training.batch_size=4", "data.length=1448"]), None);
        let message = reference(&["training.batch_size=4", "data.length=1449"]).unwrap();
        assert!(message.starts_with("`training.batch_size` = 4 needs attention scores"), "{message}");
        assert!(message.contains("training.batch_size = 3"), "{message}");
        assert_eq!(reference(&["training.batch_size=3", "data.length=1449"]), None);
        let message = reference(&["training.batch_size=1", "data.length=3000"]).unwrap();
        assert!(message.starts_with("`data.length` = 3000"), "{message}");
    }

    #[test]
    fn logits_and_embedding_tables_are_checked() {
        let message = refused(&["data.vocab=100000", "training.batch_size=8", "data.length=64"]).unwrap();
        assert!(message.contains("logits") && message.contains("training.batch_size = 5 "), "{message}");
        let message = refused(&["data.vocab=400000", "model.d_model=256"]).unwrap();
        assert!(message.starts_with("`model.d_model` = 256") && message.contains("weights"), "{message}");
        assert_eq!(refused(&[]), None);
    }

    #[test]
    fn feed_forward_counts_only_in_architectures_with_one() {
        let with = |set: &[&str]| {
            refused(&[&["data.length=16", "training.batch_size=2", "model.feed_forward=16"], set].concat())
        };
        let message = with(&["model.d_model=2048"]).unwrap();
        assert!(
            message.starts_with("`model.d_model` = 2048") && message.contains("weights of 269 MB"),
            "{message}"
        );
        assert_eq!(with(&["model.d_model=2048", "model.architecture=one_layer"]), None);
    }
}
