//! The ranges of the keys, their relations, and the keys without effect.

use super::{Architecture, ModelConfig};
use crate::choice::UnusedKeys;
use crate::model::residual::NormPlacement;
use crate::ops::NormKind;
use crate::position::PositionScheme;
use crate::range::{Range, Ranged, Section};
use crate::{Error, Result};

/// The maximum of `d_model`, of `d_head` and of the numbers of heads.
const MAX_WIDTH: u64 = 65_536;

impl Section for ModelConfig {
    fn ranges(&self) -> Vec<Ranged> {
        let integer = |key, value: usize, min, max| (key, Some(value.into()), Range::Integer(min, max));
        let real = |key, value: f64, range| (key, Some(value.into()), range);
        vec![
            integer("d_model", self.d_model, 1, MAX_WIDTH),
            integer("heads", self.heads, 1, MAX_WIDTH),
            integer("d_head", self.d_head, 0, MAX_WIDTH),
            integer("key_value_heads", self.key_value_heads, 0, MAX_WIDTH),
            integer("layers", self.layers, 1, 1_024),
            integer("feed_forward", self.feed_forward, 1, 64),
            integer("d_inner", self.d_inner, 0, 64 * MAX_WIDTH),
            ("window", self.window.map(Into::into), Range::Integer(1, 1 << 20)),
            ("rotary_skip_every", self.rotary_skip_every.map(Into::into), Range::Integer(2, 1_024)),
            ("attention_scale", self.attention_scale.map(Into::into), Range::POSITIVE),
            ("attention_softcap", self.attention_softcap.map(Into::into), Range::POSITIVE),
            ("rope_theta_local", self.rope_theta_local.map(Into::into), Range::POSITIVE),
            ("rotary_fraction", self.rotary_fraction.map(Into::into), Range::UP_TO_1),
            integer("largest_position", self.largest_position, 1, 1 << 20),
            integer("rope_original_context", self.rope_original_context, 1, 1 << 40),
            real("dropout", self.dropout, Range::FRACTION),
            real("rope_theta", self.rope_theta, Range::POSITIVE),
            real("rope_factor", self.rope_factor, Range::FROM_1),
            real("rope_low_frequency_factor", self.rope_low_frequency_factor, Range::POSITIVE),
            real("rope_high_frequency_factor", self.rope_high_frequency_factor, Range::POSITIVE),
            real("embedding_scale", self.embedding_scale, Range::POSITIVE),
            real("softcap", self.softcap, Range::NON_NEGATIVE),
            real("norm_epsilon", self.norm_epsilon, Range::BETWEEN_0_AND_1),
            real("embedding_norm_epsilon", self.embedding_norm_epsilon, Range::BETWEEN_0_AND_1),
        ]
    }

    fn unused_keys(&self) -> UnusedKeys {
        let has_blocks = self.architecture != Architecture::OneLayer;
        let position = if has_blocks { self.position } else { PositionScheme::None };
        let mut unused = UnusedKeys::default();
        unused
            .other_choices("architecture", self.architecture)
            .unless(
                has_blocks || self.qk_norm || self.differential,
                &["norm_epsilon"],
                "models with blocks, `qk_norm` = true or `differential` = true",
            )
            .unless(self.d_inner == 0, &["feed_forward"], "`d_inner` = 0")
            .unless(self.qk_norm, &["qk_norm_scope"], "`qk_norm` = true")
            .unless(self.has_window(), &["window"], "models with a local layer")
            .unless(
                self.rotates(true),
                &["rope_theta_local"],
                "models with a local layer that has rotary positions",
            )
            .unless(
                self.rope_theta_local.is_none() || self.rotates(false),
                &["rope_theta", "rope_scaling"],
                "models with a global layer that has rotary positions, or without `rope_theta_local`",
            )
            .unless(
                (0..self.layers).any(|layer| self.skips_rotation(layer)),
                &["rotary_skip_every"],
                "models with at least that many layers",
            )
            .unless(
                self.norm_kind == NormKind::Rms || self.qk_norm || self.differential,
                &["norm_unit_offset"],
                "RMS norms (`norm_kind` = \"rms\", `qk_norm` = true or `differential` = true)",
            )
            .other_choices("position", position)
            .other_choices("rope_scaling", self.rope_scaling)
            .unless(self.embedding_norm && has_blocks, &["embedding_norm_epsilon"], "`embedding_norm` = true")
            .unless(
                has_blocks && !self.tie_embeddings,
                &["head_bias"],
                "models with blocks and `tie_embeddings` = false",
            );
        unused
    }
}

impl ModelConfig {
    /// Checks that the keys form a valid model.
    ///
    /// # Errors
    /// [`Error::Argument`] with the key, its value and the remedy.
    pub fn check(&self) -> Result<()> {
        self.check_ranges()?;
        self.attention(0).check()?;
        self.position.check(self.head_width())?;
        self.check_halves()?;
        self.check_pattern()?;
        self.check_rotation()?;
        let problem = "cannot be combined with `parallel` = true, which adds both sub-layers before any norm; use \"pre\", \
                       \"sandwich\" or \"output\"";
        let is_added = !self.parallel || self.norm != NormPlacement::Post;
        Error::check(is_added, "norm", format!("\"{}\"", self.norm), problem)?;
        let (low, high) = (self.rope_low_frequency_factor, self.rope_high_frequency_factor);
        let problem = format!("must be above `rope_low_frequency_factor` = {low}");
        Error::check(high > low, "rope_high_frequency_factor", high, problem)
    }

    /// Checks that rotary positions can rotate each half of a head in differential attention.
    fn check_halves(&self) -> Result<()> {
        let (width, is_rotary) = (self.head_width(), self.position == PositionScheme::Rotary);
        let problem = format!(
            "rotates each half of a head with `position` = \"rotary\", but halves are {} wide; set `d_head` to a \
             multiple of 4",
            width / 2
        );
        let has_pairs = !self.differential || !is_rotary || width.is_multiple_of(4);
        Error::check(has_pairs, "differential", true, problem)
    }

    /// Checks the fraction of a head that is rotated.
    fn check_rotation(&self) -> Result<()> {
        let Some(fraction) = self.rotary_fraction else { return Ok(()) };
        let (part, width) = match self.differential {
            true => ("head half", self.head_width() / 2),
            false => ("head", self.head_width()),
        };
        let rotated = self.rotation().width(width);
        let problem = format!("rotates none of the {width} elements of a {part}; choose a larger fraction");
        Error::check(rotated > 0, "rotary_fraction", fraction, problem)
    }

    /// Checks the pattern of local and global layers.
    fn check_pattern(&self) -> Result<()> {
        let names: Vec<String> = self.layer_pattern.iter().map(|span| format!("\"{span}\"")).collect();
        let shown = format!("[{}]", names.join(", "));
        let has_window = names.is_empty() || self.window.is_some();
        Error::check(
            has_window,
            "layer_pattern",
            &shown,
            "needs `window`, the number of keys that local layers see",
        )?;
        let problem = format!("has {} elements, more than the {} layers", names.len(), self.layers);
        Error::check(names.len() <= self.layers, "layer_pattern", &shown, problem)
    }
}
