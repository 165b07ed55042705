//! The preparation of a batch, to be held against a training step (`cargo bench --bench step`).
//!
//! `cargo bench --bench loader`

use causal_attention::data::{Batch, DataConfig, Loader, Order, Sequences, Source};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Rows of a task, in the order of an epoch.
fn rows() -> Sequences {
    DataConfig::default().load(0).expect("the default data is drawn").train
}

/// Windows of a text at random offsets.
fn windows() -> Sequences {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), "To be, or not to be, that is the question.\n".repeat(25_000))
        .expect("a text is written");
    let config =
        DataConfig { source: Source::Text, path: file.path().into(), length: 64, ..DataConfig::default() };
    config.load(0).expect("the text is read").train
}

fn loader(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("loader");
    for (name, sequences, batch_size) in [("task", rows(), 32), ("text", windows(), 12)] {
        let loader = Loader::new(sequences, batch_size, 0, Order::Shuffled);
        let mut batch = Batch::default();
        loader.batch(0, 0, &mut batch);
        group.throughput(Throughput::Elements((batch.rows * batch.time) as u64));
        let mut steps = 0..;
        group.bench_function(name, |bench| {
            bench.iter(|| loader.batch(0, steps.next().unwrap_or(0) % loader.batches(), &mut batch));
        });
    }
    group.finish();
}

criterion_group!(benches, loader);
criterion_main!(benches);
