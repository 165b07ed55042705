//! Inputs of attention operations with any options, and their comparison with the reference implementation.

use super::super::reference::{Tensors, compute};
use super::super::*;
use crate::testing::{assert_close, random, widened};

/// The inputs of an attention operation, and the data that [`Attention`] borrows.
pub(super) struct Case {
    pub(super) shape: Attention<'static>,
    pub(super) options: Options,
    pub(super) visible: Vec<KeyRange>,
    pub(super) hidden_keys: Vec<u8>,
    pub(super) hidden_pairs: Vec<u8>,
    pub(super) bias: Vec<f32>,
    pub(super) sinks: Vec<f32>,
    pub(super) cosines: Vec<f32>,
    pub(super) sines: Vec<f32>,
    pub(super) query: Vec<f32>,
    pub(super) key: Vec<f32>,
    pub(super) value: Vec<f32>,
    pub(super) context_gradient: Vec<f32>,
}

/// The pattern of visible keys.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Visibility {
    #[default]
    All,
    /// The keys up to the query itself, with the first query at position `first_query`.
    Causal { first_query: usize },
    /// The last few keys of the causal range.
    Window { first_query: usize, keys: usize },
    /// An arbitrary range for each query of each sequence, possibly empty.
    Any,
}

impl Visibility {
    pub(super) const CAUSAL: Self = Self::Causal { first_query: 0 };

    fn first_query(self) -> usize {
        match self {
            Self::All | Self::Any => 0,
            Self::Causal { first_query } | Self::Window { first_query, .. } => first_query,
        }
    }

    fn visible(self, [batch, query_time, key_time]: [usize; 3]) -> Vec<KeyRange> {
        let keys = |first: usize, end: usize| KeyRange { first: first.min(end) as u32, end: end as u32 };
        let up_to = |query: usize| key_time.min(self.first_query() + query + 1);
        let numbers = random(9, 2 * batch * query_time);
        let key = |index: usize| ((numbers[index].abs() * 1e4) as usize) % (key_time + 1);
        match self {
            Self::All => vec![],
            Self::Causal { .. } => (0..query_time).map(|query| keys(0, up_to(query))).collect(),
            Self::Window { keys: width, .. } => {
                (0..query_time).map(|query| keys(up_to(query).saturating_sub(width), up_to(query))).collect()
            }
            Self::Any => {
                let ends = (0..batch * query_time).map(|row| [key(2 * row), key(2 * row + 1)]);
                ends.map(|[a, b]| keys(a.min(b), a.max(b))).collect()
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    pub(super) visibility: Visibility,
    /// Individual keys are hidden from all queries of a sequence.
    pub(super) hides_keys: bool,
    /// Individual pairs are hidden.
    pub(super) hides_pairs: bool,
    pub(super) bias: bool,
    pub(super) rotary: bool,
    pub(super) dropout: bool,
    /// The products of queries and keys have another factor than `1 / sqrt(d_head)`.
    pub(super) scale: bool,
    pub(super) softcap: bool,
    pub(super) sinks: bool,
}

pub(super) struct Output {
    pub(super) context: Vec<f32>,
    pub(super) log_sum_exp: Vec<f32>,
    pub(super) query: Vec<f32>,
    pub(super) key: Vec<f32>,
    pub(super) value: Vec<f32>,
    pub(super) bias: Vec<f32>,
    pub(super) sinks: Vec<f32>,
}

impl Case {
    pub(super) fn new(shape: Attention<'static>, options: Options) -> Self {
        let Attention { batch, query_time, key_time, heads, key_value_heads, d_head, .. } = shape;
        let first_query = options.visibility.first_query();
        let coins = |seed, length| -> Vec<u8> {
            random(seed, length).iter().map(|x| if *x < -0.4 { 1 + (seed as u8) } else { 0 }).collect()
        };
        let angles = random(1, (first_query + query_time).max(key_time) * (d_head / 2));
        Self {
            shape,
            options,
            visible: options.visibility.visible([batch, query_time, key_time]),
            hidden_keys: coins(2, batch * key_time),
            hidden_pairs: coins(3, if batch.is_multiple_of(2) { batch } else { 1 } * query_time * key_time),
            bias: random(4, heads * shape.distances()),
            sinks: random(10, heads),
            cosines: angles.iter().map(|angle| (3.0 * angle).cos()).collect(),
            sines: angles.iter().map(|angle| (3.0 * angle).sin()).collect(),
            query: random(5, batch * query_time * heads * d_head).iter().map(|x| 2.0 * x).collect(),
            key: random(6, batch * key_time * key_value_heads * d_head).iter().map(|x| 2.0 * x).collect(),
            value: random(7, batch * key_time * key_value_heads * d_head),
            context_gradient: random(8, batch * query_time * heads * d_head),
        }
    }

    pub(super) fn attention(&self) -> Attention<'_> {
        let Options { visibility, hides_keys, hides_pairs, bias, rotary, dropout, scale, softcap, sinks } =
            self.options;
        let Attention { batch, query_time, key_time, .. } = self.shape;
        let sequences = if batch.is_multiple_of(2) { batch } else { 1 };
        let pairs = HiddenPairs { hidden: &self.hidden_pairs, shape: [sequences, query_time, key_time] };
        let keys = HiddenPairs { hidden: &self.hidden_keys, shape: [batch, 1, key_time] };
        let (cosines, sines, first_query) = (&self.cosines[..], &self.sines[..], visibility.first_query());
        Attention {
            visible: &self.visible,
            hidden: if hides_pairs { Some(pairs) } else { hides_keys.then_some(keys) },
            rotary: rotary.then_some(RotaryTables { cosines, sines, first_query }),
            dropout: dropout.then_some(Dropout { probability: 0.3, seed: 99 }),
            scores: ScoreOptions {
                scale: scale.then_some(0.7),
                bias: bias.then_some(&self.bias[..]),
                softcap: softcap.then_some(1.5),
                sinks: sinks.then_some(&self.sinks[..]),
            },
            ..self.shape
        }
    }

    pub(super) fn run(&self) -> Output {
        let attention = self.attention();
        let inputs = attention.parts(&self.query, Some([&self.key, &self.value]));
        let new = |length| vec![f32::NAN; length];
        let mut output = Output {
            context: new(self.query.len()),
            log_sum_exp: new(attention.batch * attention.heads * attention.query_time),
            query: new(self.query.len()),
            key: new(self.key.len()),
            value: new(self.value.len()),
            bias: new(if self.options.bias { self.bias.len() } else { 0 }),
            sinks: new(if self.options.sinks { self.sinks.len() } else { 0 }),
        };
        forward(&attention, inputs, &mut output.context, &mut output.log_sum_exp);
        let saved = self.saved(&output.context, &output.log_sum_exp);
        let bias = self.options.bias.then_some(&mut output.bias[..]);
        let gradients = attention.parts_mut(&mut output.query, Some([&mut output.key, &mut output.value]));
        backward(&attention, inputs, saved, gradients, bias);
        if attention.scores.sinks.is_some() {
            sink_gradients(&attention, &saved, &mut output.sinks);
        }
        output
    }

    pub(super) fn saved<'a>(&'a self, context: &'a [f32], log_sum_exp: &'a [f32]) -> Saved<'a> {
        let rows = |data| Matrix::new(data, self.shape.heads * self.shape.d_head);
        Saved { context: rows(context), log_sum_exp, context_gradient: rows(&self.context_gradient) }
    }

    pub(super) fn tensors(&self) -> Tensors {
        Tensors {
            query: widened(&self.query),
            key: widened(&self.key),
            value: widened(&self.value),
            bias: if self.options.bias { widened(&self.bias) } else { vec![] },
            sinks: if self.options.sinks { widened(&self.sinks) } else { vec![] },
        }
    }

    pub(super) fn check(&self) {
        let output = self.run();
        let expected = compute(&self.attention(), &self.tensors(), &widened(&self.context_gradient));
        assert_close("context", &output.context, &expected.context);
        for (actual, expected) in output.log_sum_exp.iter().zip(&expected.log_sum_exp) {
            let is_close = f64::from(*actual) == *expected || (f64::from(*actual) - expected).abs() < 2e-5;
            assert!(is_close, "log-sum-exp {actual}, not {expected}");
        }
        let gradients = &expected.gradients;
        let largest = |values: &[f64]| values.iter().fold(0.0_f64, |largest, value| largest.max(value.abs()));
        // With one visible key, the weight is 1, and the gradients of query and key are zero except for rounding. All
        // gradients are therefore compared on one scale.
        let unit = [&gradients.query, &gradients.key, &gradients.value]
            .map(|g| largest(g))
            .into_iter()
            .fold(0.0, f64::max);
        for (what, actual, expected) in [
            ("query gradient", &output.query, &gradients.query),
            ("key gradient", &output.key, &gradients.key),
            ("value gradient", &output.value, &gradients.value),
            ("bias gradient", &output.bias, &gradients.bias),
            ("sink gradient", &output.sinks, &gradients.sinks),
        ] {
            let (mut actual, mut expected) = (actual.clone(), expected.clone());
            actual.push(unit as f32);
            expected.push(f64::from(unit as f32));
            assert_close(what, &actual, &expected);
        }
    }
}

pub(super) const CAUSAL: Options = Options {
    visibility: Visibility::CAUSAL,
    hides_keys: false,
    hides_pairs: false,
    bias: false,
    rotary: false,
    dropout: false,
    scale: false,
    softcap: false,
    sinks: false,
};

pub(super) const ALL: Options = Options {
    hides_keys: true,
    hides_pairs: true,
    bias: true,
    rotary: true,
    dropout: true,
    scale: true,
    softcap: true,
    sinks: true,
    ..CAUSAL
};
