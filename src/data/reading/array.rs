//! A summary of an array, to check before training.

use std::fmt;

use serde::Serialize;

/// The format, type and shape of an array.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArrayReading {
    /// The format.
    pub format: ArrayFormat,
    /// The type of the ids, such as `uint16`.
    pub dtype: String,
    /// The size of each dimension.
    pub shape: Vec<usize>,
}

/// The format of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ArrayFormat {
    /// NumPy's format.
    Npy,
    /// Bare ids.
    Raw,
    /// Bare ids after the header of llm.c.
    #[serde(rename = "llm.c")]
    LlmC,
}

impl fmt::Display for ArrayFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for ArrayReading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}, shape {}", self.format, self.dtype, shape(&self.shape))
    }
}

/// Returns a shape as NumPy prints it, such as `(5, 7)` or `(11,)`.
pub(in crate::data) fn shape(sizes: &[usize]) -> String {
    match sizes {
        [size] => format!("({size},)"),
        _ => format!("({})", sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}
