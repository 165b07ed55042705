//! Runs the scripts in `tests/peers/`, and reads results computed by transformers.

use std::{fs, path::Path, process::Command};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;

use crate::text;

/// Runs a peer script; returns false if the peer is not installed.
pub(crate) fn peer(script: &str, arguments: &[&str]) -> bool {
    let python = std::env::var("PEER_PYTHON").unwrap_or_else(|_| "python3".to_string());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers").join(script);
    let Ok(output) = Command::new(&python).arg(script).args(arguments).output() else {
        eprintln!("skipped: `{python}` is not installed; set PEER_PYTHON to another Python");
        return false;
    };
    if output.status.code() == Some(77) {
        eprintln!("skipped: `{python}` lacks transformers: {}", text(&output.stdout));
        return false;
    }
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    true
}

/// The expected values that transformers computed for a model, stored next to its files.
pub(crate) struct Expected(Vec<u8>);

impl Expected {
    pub(crate) fn read(folder: &Path) -> Self {
        Self(fs::read(folder.join("expected.safetensors")).unwrap())
    }

    pub(crate) fn numbers(&self, name: &str) -> (Vec<usize>, Vec<f32>) {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        let numbers = view.data().as_chunks().0.iter().map(|&bytes| match view.dtype() {
            Dtype::I32 => i32::from_le_bytes(bytes) as f32,
            _ => f32::from_le_bytes(bytes),
        });
        (view.shape().to_vec(), numbers.collect())
    }

    /// Asserts that values agree within 1e-5 of the largest expected value.
    pub(super) fn assert_close(&self, name: &str, found: &[f32]) {
        let (_, expected) = self.numbers(name);
        assert_eq!(found.len(), expected.len(), "{name}");
        let largest = expected.iter().fold(0f32, |largest, value| largest.max(value.abs()));
        for (at, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() <= 1e-5 * largest, "{name} at {at}: {found}, not {expected}");
        }
    }
}

/// Formats ids as typed on the command line.
pub(super) fn typed(ids: &[f32]) -> String {
    ids.iter().map(f32::to_string).collect::<Vec<_>>().join(" ")
}

/// Collects all numbers of a value, in order.
pub(super) fn flat(value: &serde_json::Value) -> Vec<f32> {
    match value {
        serde_json::Value::Array(values) => values.iter().flat_map(flat).collect(),
        number => vec![number.as_f64().unwrap() as f32],
    }
}
