//! Interventions during training: components are ablated, clamped or frozen while a step is in their range.

use std::collections::BTreeMap;

use burn::prelude::*;

use crate::config::{Intervention, InterventionKind};
use crate::hooks::{AttentionPoint, HookPoint, HookSite, Hooks, ResidualWriter, Stack};
use crate::model::{Model, each_parameter};
use crate::weights::native;

/// The interventions of a run on the forward pass at one step.
#[derive(Debug, Clone, Default)]
pub(super) struct StepHooks(Vec<Intervention>);

impl StepHooks {
    /// Returns the interventions whose steps include `step`.
    pub(super) fn at(interventions: &[Intervention], step: usize) -> Self {
        let is_active =
            |it: &&Intervention| it.kind != InterventionKind::Freeze && it.steps().contains(&step);
        Self(interventions.iter().filter(is_active).cloned().collect())
    }

    /// Iterates over the interventions at a site, each with the index of its head.
    fn at_site(&self, site: HookSite) -> impl Iterator<Item = (&Intervention, usize)> {
        self.0
            .iter()
            .map(|it| (it, site_of(it)))
            .filter(move |(_, (own, _))| *own == site)
            .map(|(it, (_, head))| (it, head))
    }
}

/// Returns the site of the changed activation, and the index of the head there.
fn site_of(intervention: &Intervention) -> (HookSite, usize) {
    match (intervention.kind, intervention.at) {
        (InterventionKind::ClampPattern, ResidualWriter::Head(layer, head)) => {
            let point = HookPoint::SelfAttention(AttentionPoint::Pattern);
            (HookSite { stack: Stack::Decoder, layer, point }, head)
        }
        (_, component) => component.site(),
    }
}

impl<B: Backend> Hooks<B> for StepHooks {
    fn wants(&self, site: HookSite) -> bool {
        self.at_site(site).next().is_some()
    }

    fn hook(&mut self, site: HookSite, activation: Tensor<B, 3>) -> Tensor<B, 3> {
        self.hook_heads(site, activation.unsqueeze_dim(1)).squeeze_dim(1)
    }

    fn hook_heads(&mut self, site: HookSite, mut activation: Tensor<B, 4>) -> Tensor<B, 4> {
        let [batch, _, rows, columns] = activation.dims();
        for (intervention, head) in self.at_site(site) {
            let ranges = [0..batch, head..head + 1, 0..rows, 0..columns];
            let old = activation.clone().slice(ranges.clone());
            let new = match intervention.kind {
                InterventionKind::MeanAblate => {
                    old.clone().detach().mean_dim(0).mean_dim(2).expand([batch, 1, rows, columns])
                }
                InterventionKind::ZeroAblate => old.zeros_like(),
                InterventionKind::ClampPattern => clamped::<B>(intervention, [rows, columns], &old.device())
                    .expand([batch, 1, rows, columns]),
                InterventionKind::Freeze => old,
            };
            activation = activation.slice_assign(ranges, new);
        }
        activation
    }
}

/// Returns the clamped pattern, `[1, 1, rows, columns]`.
fn clamped<B: Backend>(
    intervention: &Intervention,
    [rows, columns]: [usize; 2],
    device: &B::Device,
) -> Tensor<B, 4> {
    let mut weights = vec![0.0f32; rows * columns];
    if let Some(pattern) = intervention.pattern {
        (0..rows).for_each(|row| weights[row * columns + pattern.key_of(row)] = 1.0);
    }
    Tensor::from_data(TensorData::new(weights, [1, 1, rows, columns]), device)
}

/// The elements of each parameter that do not change, by the position of the parameter in the model: 1 where an element
/// is frozen.
pub(super) type Frozen = BTreeMap<usize, Vec<f32>>;

/// Returns the elements of the model's parameters that are frozen at `step`.
pub(super) fn frozen<B: Backend>(
    interventions: &[Intervention],
    step: usize,
    (model, heads): (&Model<B>, usize),
) -> Frozen {
    let is_active = |it: &&Intervention| it.kind == InterventionKind::Freeze && it.steps().contains(&step);
    let mut active = interventions.iter().filter(is_active).peekable();
    let mut frozen = Frozen::new();
    if active.peek().is_none() {
        return frozen;
    }
    let mut shapes = Vec::new();
    each_parameter(model, |_, shape| shapes.push(shape.to_vec()));
    let parameters = native::names(model).into_iter().zip(shapes).collect::<Vec<_>>();
    for intervention in active {
        for (position, (name, shape)) in parameters.iter().enumerate() {
            let Some(is_frozen) = frozen_part(intervention.at, name, shape, heads) else { continue };
            let mask = frozen.entry(position).or_insert_with(|| vec![0.0; shape.iter().product()]);
            let columns = shape.last().copied().unwrap_or(1);
            for (index, element) in mask.iter_mut().enumerate() {
                if is_frozen([index / columns, index % columns]) {
                    *element = 1.0;
                }
            }
        }
    }
    frozen
}

/// Returns true for the row and column of an element that belongs to a component; `None` if no element of the parameter
/// does. A head owns its columns of the projection to queries, keys and values, and its rows of the output projection.
fn frozen_part(
    component: ResidualWriter,
    name: &str,
    shape: &[usize],
    heads: usize,
) -> Option<Box<dyn Fn([usize; 2]) -> bool>> {
    let (layer, head) = match component {
        ResidualWriter::Head(layer, head) => (layer, Some(head)),
        ResidualWriter::FeedForward(layer) => (layer, None),
        ResidualWriter::Cross(..) => return None,
    };
    // A model with a single attention layer has no list of blocks.
    let own = name
        .strip_prefix(&format!("blocks.{layer}."))
        .or_else(|| (layer == 0 && !name.starts_with("blocks.")).then_some(name))?;
    let Some(head) = head else {
        return own.starts_with("feed_forward.").then(|| Box::new(|_| true) as _);
    };
    match own.strip_prefix("attention.")? {
        "qkv.weight" | "qkv.bias" => {
            let width = shape.last()? / (3 * heads);
            Some(Box::new(move |[_, column]| column / width % heads == head))
        }
        "output.weight" => {
            let width = shape.first()? / heads;
            Some(Box::new(move |[row, _]| row / width == head))
        }
        _ => None,
    }
}

/// Returns `new` with the frozen elements of `old`.
pub(super) fn unchanged<B: Backend, const D: usize>(
    old: Tensor<B, D>,
    new: Tensor<B, D>,
    elements: &[f32],
) -> Tensor<B, D> {
    let elements = Tensor::<B, 1>::from_data(elements, &new.device()).reshape(new.dims());
    new.mask_where(elements.equal_elem(1.0), old)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use burn::optim::Optimizer as _;
    use burn::train::TrainStep;
    use burn_autodiff::Autodiff;
    use burn_flex::Flex;

    use super::*;
    use crate::analysis::ablation::without_head;
    use crate::config::{ClampedPattern, TrainingConfig};
    use crate::data::{Batch, Role};
    use crate::evaluation::DeviceBatch;
    use crate::model::{Inputs, ModelConfig, Sizes};
    use crate::role::ParamRoles;
    use crate::training::{Optimizer, StepBatches, Trainee};

    const HEADS: usize = 3;
    const D_MODEL: usize = 12;
    const WIDTH: usize = D_MODEL / HEADS;

    fn model<B: Backend>() -> Model<B> {
        let config =
            ModelConfig { d_model: D_MODEL, heads: HEADS, layers: 2, dropout: 0.0, ..ModelConfig::default() };
        let sizes = Sizes { vocab: 7, context: 6, source_context: None };
        config.init(sizes, &Default::default()).unwrap()
    }

    fn on_head(kind: InterventionKind) -> Intervention {
        let pattern = (kind == InterventionKind::ClampPattern).then_some(ClampedPattern::PreviousToken);
        Intervention { at: ResidualWriter::Head(1, 2), kind, pattern, from: 0, until: Some(2) }
    }

    /// Returns the values of a parameter after some steps.
    fn trained(intervention: Option<Intervention>, steps: Range<usize>, name: &str) -> Vec<f32> {
        type B = Autodiff<Flex>;
        let device = Default::default();
        let config = TrainingConfig {
            intervene: intervention.into_iter().collect(),
            weight_decay: 0.0,
            max_gradient_norm: 0.0,
            ..TrainingConfig::default()
        };
        let mut trainee = Trainee::<B>::new(fixed(), &config);
        let mut optimizer = Optimizer::<B>::new(&config, trainee.model.roles());
        for step in steps {
            let (inputs, targets) = (vec![1, 2, 3, 4, 5, 6, 3, 1, 2, 6], vec![2, 3, 4, 5, 6, 3, 1, 2, 6, 1]);
            let roles = vec![Role::Undetermined; 10];
            let batch = Batch { rows: 2, time: 5, inputs, targets, roles, source: None, documents: None };
            let batches = vec![DeviceBatch::new(&batch, &device)];
            let output = trainee.step(StepBatches::unsharded(step, batches, false));
            optimizer.state().frozen = frozen(&config.intervene, step, (&trainee.model, HEADS));
            trainee = optimizer.step(0.01, trainee, output.grads);
        }
        let tensors = native::collect(&trainee.model).unwrap();
        tensors.into_iter().find(|(own, _)| own == name).unwrap().1.to_vec().unwrap()
    }

    /// Returns a model with the same weights in every call.
    fn fixed<B: Backend>() -> Model<B> {
        let model = model();
        let tensors = native::collect(&model).unwrap().into_iter().zip(1..).map(|((name, data), seed)| {
            let values = crate::kernels::random::random(seed, data.num_elements());
            (name, TensorData::new(values, data.shape))
        });
        native::apply(model, tensors.collect(), "fixed".as_ref()).unwrap()
    }

    /// Returns the parts of a layer's last head: queries, keys, values, output.
    fn parts(layer: usize, intervention: Option<Intervention>, steps: Range<usize>) -> [Vec<f32>; 4] {
        let qkv =
            trained(intervention.clone(), steps.clone(), &format!("blocks.{layer}.attention.qkv.weight"));
        let columns = |part: usize| -> Vec<f32> {
            let first = part * D_MODEL + 2 * WIDTH;
            qkv.chunks(3 * D_MODEL).flat_map(|row| row[first..first + WIDTH].to_vec()).collect()
        };
        let output = trained(intervention, steps, &format!("blocks.{layer}.attention.output.weight"));
        [columns(0), columns(1), columns(2), output[2 * WIDTH * D_MODEL..].to_vec()]
    }

    #[test]
    fn interventions_stop_the_gradients_of_their_component() {
        use InterventionKind::{ClampPattern, Freeze, MeanAblate, ZeroAblate};
        let before = parts(1, None, 0..0);
        let changed = |intervention, steps| {
            let after = parts(1, intervention, steps);
            [0, 1, 2, 3].map(|part| after[part] != before[part])
        };
        assert_eq!(changed(None, 0..2), [true; 4]);
        for kind in [MeanAblate, ZeroAblate, Freeze] {
            assert_eq!(changed(Some(on_head(kind)), 0..2), [false; 4], "{kind}");
            assert_eq!(changed(Some(on_head(kind)), 0..3), [true; 4], "{kind} ends after two steps");
        }
        assert_eq!(changed(Some(on_head(ClampPattern)), 0..2), [false, false, true, true]);
        // Other heads learn, and a frozen head computes what it did before.
        let other = |intervention| parts(0, intervention, 0..1);
        assert!(
            [MeanAblate, ZeroAblate, ClampPattern]
                .iter()
                .all(|&kind| other(Some(on_head(kind))) != other(None))
        );
        assert_eq!(other(Some(on_head(Freeze))), other(None));
    }

    #[test]
    fn frozen_feed_forward_layers_keep_all_their_weights() {
        let frozen = Intervention { at: ResidualWriter::FeedForward(0), ..on_head(InterventionKind::Freeze) };
        for name in ["up.weight", "up.bias", "down.weight", "down.bias"] {
            let values = |layer: usize, it: Option<Intervention>, steps| {
                trained(it, steps, &format!("blocks.{layer}.feed_forward.{name}"))
            };
            assert_eq!(values(0, Some(frozen.clone()), 0..2), values(0, None, 0..0), "{name}");
            assert_ne!(values(1, Some(frozen.clone()), 0..2), values(1, None, 0..0), "{name}");
        }
    }

    #[test]
    fn hooks_change_the_forward_pass() {
        let device = Default::default();
        let model = fixed::<Flex>();
        let inputs = || Inputs::tokens(Tensor::from_ints([[3, 1, 4, 1, 5], [0, 2, 6, 6, 1]], &device));
        let logits = |model: &Model<Flex>, hooks: &mut StepHooks| -> Vec<f32> {
            model.forward_hooked(inputs(), hooks).unwrap().into_data().to_vec().unwrap()
        };
        let hooks = |kind| StepHooks::at(&[on_head(kind)], 1);
        let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-4);
        let plain = logits(&model, &mut StepHooks::default());
        let zero = logits(&model, &mut hooks(InterventionKind::ZeroAblate));
        assert!(close(&zero, &logits(&without_head(&model, 1, 2), &mut StepHooks::default())));
        assert!(!close(&zero, &plain));
        assert_eq!(plain, logits(&model, &mut StepHooks::at(&[on_head(InterventionKind::ZeroAblate)], 2)));
        assert_eq!(plain, logits(&model, &mut hooks(InterventionKind::Freeze)));

        /// Hooks that record what follows an intervention.
        struct Recorded(StepHooks, HookSite, Option<Tensor<Flex, 4>>);
        impl Hooks<Flex> for Recorded {
            fn wants(&self, site: HookSite) -> bool {
                site == self.1
            }

            fn hook_heads(&mut self, site: HookSite, activation: Tensor<Flex, 4>) -> Tensor<Flex, 4> {
                self.2.insert(self.0.hook_heads(site, activation)).clone()
            }
        }
        let recorded = |kind| {
            let mut hooks = Recorded(hooks(kind), site_of(&on_head(kind)).0, None);
            model.forward_hooked(inputs(), &mut hooks).unwrap();
            hooks.2.unwrap().narrow(1, 2, 1).into_data().to_vec::<f32>().unwrap()
        };
        let means = recorded(InterventionKind::MeanAblate);
        assert!(
            means.chunks(D_MODEL).all(|row| row == &means[..D_MODEL])
                && means.iter().any(|&mean| mean != 0.0)
        );
        let pattern = recorded(InterventionKind::ClampPattern);
        for (index, &weight) in pattern.iter().enumerate() {
            let (query, key) = (index / 5 % 5, index % 5);
            assert_eq!(weight, f32::from(key == query.saturating_sub(1)), "{query} {key}");
        }
    }
}
