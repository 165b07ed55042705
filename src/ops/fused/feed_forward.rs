//! The feed-forward layer with its residual connection.

use burn::tensor::ops::FloatTensor;

use super::Operation;
use super::linear::{Parameters, gelu_form};
use crate::kernels::linear::{After, Followed, Gradients, backward, forward};
use crate::kernels::{dropout::Dropout, gelu, pool};
use crate::ops::host::Floats;
use crate::ops::{Backend, Gelu, Layer};

/// `residual + dropout(gelu(x W_up + b_up) W_down + b_down)`.
///
/// The widest tensor of a model is what GELU makes of the inner layer. It is not kept: the gradient has it
/// from the pre-activation, together with GELU's derivative.
#[derive(Debug, Clone)]
pub struct FeedForward<B: Backend> {
    /// Missing while it is left to the graph.
    input: Option<Floats<B>>,
    up: Parameters<B>,
    form: gelu::Gelu,
    /// `x W_up + b_up`.
    pre_activation: Option<Floats<B>>,
    down: Parameters<B>,
    residual: Option<Floats<B>>,
    dropout: Option<Dropout>,
}

/// The layer without dropout; the inputs of its gradient are input, the parameters of both layers, and the
/// residual.
pub fn feed_forward<B: Backend>(
    input: &FloatTensor<B>,
    up: Layer<&FloatTensor<B>>,
    form: Gelu,
    down: Layer<&FloatTensor<B>>,
    residual: &FloatTensor<B>,
) -> Option<FeedForward<B>> {
    Some(FeedForward {
        input: Some(Floats::new(input)?),
        up: Parameters::new(up.weight, up.bias)?,
        form: gelu_form(form),
        pre_activation: None,
        down: Parameters::new(down.weight, down.bias)?,
        residual: Some(Floats::new(residual)?),
        dropout: None,
    })
}

impl<B: Backend> FeedForward<B> {
    /// With dropout before the addition.
    pub fn dropped(self, dropout: Option<Dropout>) -> Self {
        Self { dropout, ..self }
    }

    fn input(&self) -> &Floats<B> {
        self.input.as_ref().expect("the input is there or was taken back")
    }
}

impl<B: Backend> Operation<B> for FeedForward<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let (up, down, input) = (self.up.layer(), self.down.layer(), self.input());
        let residual = self.residual.as_ref().expect("forward runs once");
        let rows = input.slice().len() / up.d_in;
        let mut inner = pool::take(rows * up.d_out);
        let mut pre_activation = keep.then(|| pool::take(rows * up.d_out));
        let after = After::Gelu { form: self.form, pre_activation: pre_activation.as_deref_mut() };
        forward(&up, input.slice(), after, &mut inner);
        let mut output = pool::take(rows * down.d_out);
        let after = After::Residual { residual: residual.slice(), dropout: self.dropout };
        forward(&down, &inner, after, &mut output);

        let output = residual.place(output, residual.shape());
        self.pre_activation = pre_activation.map(|values| residual.keep(values, [rows, up.d_out]));
        self.residual = None;
        output
    }

    fn leave_input(&mut self) -> bool {
        self.input = None;
        true
    }

    fn take_input(&mut self, input: FloatTensor<B>) {
        self.input = Some(Floats::contiguous(input));
    }

    fn backward(mut self, gradient: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let mut inner = self.pre_activation.take().expect("forward has run").into_vec();
        let (up, down, input) = (self.up.layer(), self.down.layer(), self.input());
        let followed = self.dropout.map_or(Followed::Nothing, Followed::Dropout);
        let wanted_up = &wanted[1..];
        let wanted_down = &wanted_up[self.up.count()..];

        let mut for_inner = pool::take(inner.len());
        let only_inner = Gradients { input: Some(&mut for_inner), ..Gradients::default() };
        backward(&down, &inner, followed, gradient.slice(), only_inner);
        gelu::activate_and_differentiate(self.form, &mut inner, &mut for_inner);

        let [mut weight, mut bias] = self.down.buffers(wanted_down);
        let gradients = Gradients { input: None, weight: weight.as_deref_mut(), bias: bias.as_deref_mut() };
        backward(&down, &inner, followed, gradient.slice(), gradients);
        pool::give(inner);
        let for_down = self.down.place([weight, bias]);

        let mut for_input = wanted[0].then(|| pool::take(input.slice().len()));
        let [mut weight, mut bias] = self.up.buffers(wanted_up);
        let gradients = Gradients {
            input: for_input.as_deref_mut(),
            weight: weight.as_deref_mut(),
            bias: bias.as_deref_mut(),
        };
        backward(&up, input.slice(), Followed::Nothing, &for_inner, gradients);

        let mut gradients = vec![for_input.map(|values| input.place(values, input.shape()))];
        gradients.extend(self.up.place([weight, bias]));
        gradients.extend(for_down);
        gradients.push(Some(gradient.tensor()));
        self.input.into_iter().for_each(Floats::recycle);
        gradients
    }
}
