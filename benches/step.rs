//! The training step as Burn's learner takes it: forward, backward, optimizer, on the shapes by
//! which small decoders are usually compared.
//!
//! `cargo bench --bench step`; `-- small` for one of them.

use burn::tensor::backend::Backend;
use burn::train::TrainStep;
use burn_autodiff::Autodiff;
use burn_ndarray::NdArray;
use causal_attention::data::{Batch, Role};
use causal_attention::model::{Architecture, ModelConfig, Sizes};
use causal_attention::training::{DeviceBatch, Hyper, Optimizer, StepBatches, Trainee, TrainingConfig};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

type B = Autodiff<NdArray>;

struct Shape {
    name: &'static str,
    model: ModelConfig,
    vocab: usize,
    rows: usize,
    time: usize,
}

fn shapes() -> [Shape; 3] {
    let model = ModelConfig::default();
    let one_layer =
        ModelConfig { architecture: Architecture::OneLayer, d_model: 64, heads: 8, ..model.clone() };
    let small = ModelConfig { d_model: 128, heads: 4, layers: 4, ..model.clone() };
    let medium = ModelConfig { d_model: 384, heads: 6, layers: 6, ..model };
    [
        Shape { name: "one_layer", model: one_layer, vocab: 10, rows: 32, time: 10 },
        Shape { name: "small", model: small, vocab: 65, rows: 12, time: 64 },
        Shape { name: "medium", model: medium, vocab: 65, rows: 8, time: 256 },
    ]
}

fn batch(shape: &Shape) -> Batch {
    let tokens = |offset: usize| {
        let count = shape.rows * shape.time;
        (0..count).map(|index| ((index * 7 + offset) % shape.vocab) as u32).collect::<Vec<_>>()
    };
    Batch {
        rows: shape.rows,
        time: shape.time,
        inputs: tokens(0),
        targets: tokens(3),
        roles: vec![Role::Undetermined; shape.rows * shape.time],
        source: None,
    }
}

fn step(criterion: &mut Criterion) {
    let device = Default::default();
    let mut group = criterion.benchmark_group("step");
    group.sample_size(10);
    for shape in shapes() {
        B::seed(&device, 0);
        let sizes = Sizes { vocab: shape.vocab, context: shape.time, source_context: None };
        let model = shape.model.init::<B>(sizes, &device).expect("the sizes make a model");
        let mut trainee = Some(Trainee { model, label_smoothing: 0.0 });
        let config = TrainingConfig { max_gradient_norm: 0.0, ..TrainingConfig::default() };
        let mut optimizer = Optimizer::<B>::new(Hyper::from(&config));
        let batch = batch(&shape);
        group.throughput(Throughput::Elements((shape.rows * shape.time) as u64));
        group.bench_function(shape.name, |bencher| {
            bencher.iter(|| {
                let batches = vec![DeviceBatch::new(&batch, &device)];
                let model = trainee.take().expect("the step before put it back");
                let output = model.step(StepBatches { step: 0, batches, measured: false });
                let model = burn::optim::Optimizer::step(&mut optimizer, 1e-3, model, output.grads);
                let loss = output.item.loss.into_scalar();
                trainee = Some(model);
                loss
            });
        });
    }
    group.finish();
}

criterion_group!(benches, step);
criterion_main!(benches);
