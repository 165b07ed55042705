//! The RMS norms of queries and keys, which bound the scores however large the projections grow.

use burn::config::Config;
use burn::tensor::backend::Backend;

use crate::ops::Norm;
use crate::{Result, range};

/// The configuration of the norms of queries and keys.
#[derive(Config, Debug)]
pub struct QkNormConfig {
    /// The epsilon of the norms.
    pub epsilon: f64,
    /// True if one norm covers the queries of all heads, and another one all keys, instead of each head by itself.
    #[config(default = false)]
    pub all_heads: bool,
    /// True if the norms store their gains minus one.
    #[config(default = false)]
    pub unit_offset: bool,
}

impl QkNormConfig {
    /// Checks the epsilon.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) if it is not between 0 and 1.
    pub fn check(&self) -> Result<()> {
        range::check("epsilon", self.epsilon.into(), range::Range::BETWEEN_0_AND_1)
    }

    /// Returns the norm of the queries or the keys of `heads` heads of width `d_head`.
    pub fn init<B: Backend>(&self, heads: usize, d_head: usize, device: &B::Device) -> Norm<B> {
        let width = if self.all_heads { heads * d_head } else { d_head };
        Norm::rms(width, self.epsilon, device).with_unit_offset(self.unit_offset)
    }
}
