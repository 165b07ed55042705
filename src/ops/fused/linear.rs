//! The linear layer with what follows it.

use burn::tensor::ops::FloatTensor;

use super::Operation;
use crate::kernels::dropout::Dropout;
use crate::kernels::gelu;
use crate::kernels::linear::{After, Followed, Gradients, Linear as Layer, WeightLayout, backward, forward};
use crate::kernels::pool::{self, Buffer};
use crate::ops::host::Floats;
use crate::ops::precision::{Precision, precision};
use crate::ops::{Backend, Gelu};

/// `activation(x W + b)` or `residual + dropout(x W + b)`.
#[derive(Debug, Clone)]
pub struct Linear<B: Backend> {
    /// Missing while it is left to the graph.
    input: Option<Floats<B>>,
    parameters: Parameters<B>,
    then: Then<B>,
}

#[derive(Debug, Clone)]
enum Then<B: Backend> {
    Nothing,
    Gelu { form: gelu::Gelu, pre_activation: Option<Floats<B>> },
    Residual { residual: Option<Floats<B>>, dropout: Option<Dropout> },
}

/// The parameters of a layer.
#[derive(Debug, Clone)]
pub struct Parameters<B: Backend> {
    weight: Floats<B>,
    layout: WeightLayout,
    bias: Option<Floats<B>>,
}

impl<B: Backend> Parameters<B> {
    /// Those that the kernels serve, whose products are in single precision.
    pub fn new(weight: &FloatTensor<B>, bias: Option<&FloatTensor<B>>) -> Option<Self> {
        if precision() != Precision::F32 {
            return None;
        }
        // A transposed table is read as it lies.
        let (weight, layout) = match B::floats(weight) {
            Some(_) => (Floats::new(weight)?, WeightLayout::InputOutput),
            None => (Floats::new(&B::float_transpose(weight.clone()))?, WeightLayout::OutputInput),
        };
        let bias = match bias {
            Some(bias) => Some(Floats::new(bias)?),
            None => None,
        };
        Some(Self { weight, layout, bias })
    }

    /// As the kernels read them.
    pub fn layer(&self) -> Layer<'_> {
        let weight = self.weight.shape();
        let (d_in, d_out) = match self.layout {
            WeightLayout::InputOutput => (weight[0], weight[1]),
            WeightLayout::OutputInput => (weight[1], weight[0]),
        };
        let bias = self.bias.as_ref().map(Floats::slice);
        Layer { weight: self.weight.slice(), layout: self.layout, bias, d_in, d_out }
    }

    /// How many tensors they are.
    pub fn count(&self) -> usize {
        1 + usize::from(self.bias.is_some())
    }

    /// Room for the gradients that are wanted.
    pub fn buffers(&self, wanted: &[bool]) -> [Option<Buffer>; 2] {
        let layer = self.layer();
        [
            wanted[0].then(|| pool::take(layer.weight.len())),
            (self.bias.is_some() && wanted[1]).then(|| pool::take(layer.d_out)),
        ]
    }

    /// The gradients as tensors, without that of an absent bias.
    pub fn place(&self, [weight, bias]: [Option<Buffer>; 2]) -> Vec<Option<FloatTensor<B>>> {
        let weight = weight.map(|values| {
            let gradient = self.weight.place(values, self.weight.shape());
            match self.layout {
                WeightLayout::InputOutput => gradient,
                WeightLayout::OutputInput => B::float_transpose(gradient),
            }
        });
        let mut gradients = vec![weight];
        if let Some(parameter) = &self.bias {
            gradients.push(bias.map(|values| parameter.place(values, parameter.shape())));
        }
        gradients
    }
}

/// The layer, followed by nothing; the inputs of its gradient are input, weight, and bias if there is one.
pub fn linear<B: Backend>(
    input: &FloatTensor<B>,
    weight: &FloatTensor<B>,
    bias: Option<&FloatTensor<B>>,
) -> Option<Linear<B>> {
    let (input, parameters) = (Some(Floats::new(input)?), Parameters::new(weight, bias)?);
    Some(Linear { input, parameters, then: Then::Nothing })
}

/// The kernels' name of a form.
pub fn gelu_form(form: Gelu) -> gelu::Gelu {
    match form {
        Gelu::Erf => gelu::Gelu::Erf,
        Gelu::Tanh => gelu::Gelu::Tanh,
    }
}

impl<B: Backend> Linear<B> {
    /// Followed by an activation.
    pub fn activated(self, form: Option<Gelu>) -> Self {
        let Some(form) = form.map(gelu_form) else { return self };
        Self { then: Then::Gelu { form, pre_activation: None }, ..self }
    }

    /// Followed by the addition to `residual`, which is the last input of the gradient.
    pub fn added_to(self, residual: &FloatTensor<B>) -> Option<Self> {
        let residual = Some(Floats::new(residual)?);
        Some(Self { then: Then::Residual { residual, dropout: None }, ..self })
    }

    /// With dropout before the addition.
    pub fn dropped(mut self, mask: Option<Dropout>) -> Self {
        if let Then::Residual { dropout, .. } = &mut self.then {
            *dropout = mask;
        }
        self
    }

    fn input(&self) -> &Floats<B> {
        self.input.as_ref().expect("the input is there or was taken back")
    }
}

impl<B: Backend> Operation<B> for Linear<B> {
    fn forward(&mut self, keep: bool) -> FloatTensor<B> {
        let layer = self.parameters.layer();
        let mut shape = self.input().shape();
        let last = shape.num_dims() - 1;
        shape[last] = layer.d_out;
        let mut output = pool::take(shape.num_elements());
        let mut kept = None;
        let after = match &self.then {
            Then::Nothing => After::Nothing,
            Then::Gelu { form, .. } => {
                kept = keep.then(|| pool::take(shape.num_elements()));
                After::Gelu { form: *form, pre_activation: kept.as_deref_mut() }
            }
            Then::Residual { residual, dropout } => {
                let residual = residual.as_ref().expect("forward runs once");
                After::Residual { residual: residual.slice(), dropout: *dropout }
            }
        };
        forward(&layer, self.input().slice(), after, &mut output);
        let kept = kept.map(|kept| self.input().keep(kept, shape.clone()));
        let output = self.input().place(output, shape);
        match &mut self.then {
            Then::Nothing => {}
            Then::Gelu { pre_activation, .. } => *pre_activation = kept,
            Then::Residual { residual, .. } => *residual = None,
        }
        output
    }

    fn leave_input(&mut self) -> bool {
        self.input = None;
        true
    }

    fn take_input(&mut self, input: FloatTensor<B>) {
        self.input = Some(Floats::contiguous(input));
    }

    fn backward(self, gradient: FloatTensor<B>, wanted: &[bool]) -> Vec<Option<FloatTensor<B>>> {
        let gradient = Floats::<B>::contiguous(gradient);
        let input = self.input();
        let followed = match &self.then {
            Then::Gelu { form, pre_activation } => Followed::Gelu {
                form: *form,
                pre_activation: pre_activation.as_ref().expect("forward has run").slice(),
            },
            Then::Residual { dropout: Some(dropout), .. } => Followed::Dropout(*dropout),
            Then::Nothing | Then::Residual { dropout: None, .. } => Followed::Nothing,
        };
        let mut for_input = wanted[0].then(|| pool::take(input.slice().len()));
        let [mut for_weight, mut for_bias] = self.parameters.buffers(&wanted[1..]);
        let gradients = Gradients {
            input: for_input.as_deref_mut(),
            weight: for_weight.as_deref_mut(),
            bias: for_bias.as_deref_mut(),
        };
        backward(&self.parameters.layer(), input.slice(), followed, gradient.slice(), gradients);

        let mut gradients = vec![for_input.map(|values| input.place(values, input.shape()))];
        gradients.extend(self.parameters.place([for_weight, for_bias]));
        match self.then {
            Then::Residual { .. } => gradients.push(Some(gradient.tensor())),
            Then::Gelu { pre_activation, .. } => {
                pre_activation.into_iter().for_each(Floats::recycle);
                gradient.recycle();
            }
            Then::Nothing => gradient.recycle(),
        }
        self.input.into_iter().for_each(Floats::recycle);
        gradients
    }
}
