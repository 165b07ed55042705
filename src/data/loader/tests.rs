//! Tests of the order and the contents of batches.

use super::*;
use crate::data::{Role, sequences::Rows};

/// Returns 11 rows of different lengths: row `r` counts up from `100 * r`.
fn ragged() -> Sequences {
    let mut rows = Rows::default();
    for row in 0..11 {
        rows.push(&(100 * row..100 * row + 2 + row % 5).collect::<Vec<u32>>());
    }
    Sequences::rows(rows)
}

fn stream(ids: u32, length: usize) -> Sequences {
    let mut stream = Rows::default();
    stream.push(&(0..ids).collect::<Vec<u32>>());
    Sequences::windows(Arc::new(stream), 2..ids as usize, length)
}

#[test]
fn epochs_visit_rows_once_in_seeded_order() {
    let loader = Loader::new(ragged(), 3, 7);
    let order = |loader: &Loader, epoch| -> Vec<u32> {
        let first =
            |batch: &Batch| batch.inputs.chunks(batch.time).map(|row| row[0] / 100).collect::<Vec<_>>();
        loader.epoch(epoch).flat_map(|batch| first(&batch)).collect()
    };
    let first = order(&loader, 0);
    let mut sorted = first.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..11).collect::<Vec<_>>());
    assert_ne!(first, sorted);
    assert_ne!(first, order(&loader, 1));
    assert_eq!(first, order(&loader, 0));
    assert_eq!(first, order(&Loader::new(ragged(), 5, 7), 0));
    assert_ne!(first, order(&Loader::new(ragged(), 3, 8), 0));
}

#[test]
fn batches_draw_lengths_reproducibly() {
    use crate::data::{DataConfig, Task, load};
    let config = DataConfig {
        task: Task::Sort,
        length: 16,
        lengths: Some([4, 10]),
        train_samples: 60,
        valid_samples: 3,
        ..DataConfig::default()
    };
    let dataset = load(&config, 5).unwrap();
    assert_eq!((dataset.context(), dataset.valid.time()), (16, 16));
    let loader = Loader::new(dataset.train, 2, 5);
    let mut lengths = Vec::new();
    for batch in loader.epoch(0) {
        lengths.push(batch.time);
        assert_eq!(batch, loader.batch(0, lengths.len() - 1));
        // The first half of the sequence, then the sorted half.
        for (inputs, targets) in batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time)) {
            let mut prefix = inputs[..batch.time / 2].to_vec();
            prefix.sort_unstable();
            assert_eq!(targets[batch.time / 2..], prefix);
        }
    }
    let other: Vec<usize> = loader.epoch(1).map(|batch| batch.time).collect();
    assert_ne!(lengths, other);
    lengths.sort_unstable();
    lengths.dedup();
    assert_eq!(lengths, [4, 6, 8, 10]);
}

#[test]
fn windows_of_random_length_stay_within_training_part() {
    let mut config = crate::data::DataConfig { length: 7, lengths: Some([3, 19]), ..Default::default() };
    config.valid_fraction = 0.2;
    let mut ids = crate::data::ids::Ids::default();
    ids.extend(&(0..30).collect::<Vec<u32>>());
    let (train, valid) = Sequences::cut(&config, ids).unwrap();
    assert_eq!((train.longest(), train.time(), valid.time()), (19, 7, 5));
    let loader = Loader::new(train, 2, 5);
    let mut seen = Vec::new();
    for epoch in 0..60 {
        for batch in loader.epoch(epoch) {
            seen.push(batch.time);
            for (inputs, targets) in batch.inputs.chunks(batch.time).zip(batch.targets.chunks(batch.time)) {
                assert!(
                    inputs.iter().zip(targets).all(|(input, target)| input + 1 == *target && *target < 24)
                );
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (3..=19).collect::<Vec<_>>());
}

#[test]
fn targets_shift_inputs_and_short_rows_are_padded() {
    let batch = ragged().batches(3).next().unwrap();
    assert_eq!((batch.rows, batch.time), (3, 3));
    assert_eq!(batch.inputs, [0, 0, 0, 100, 101, 0, 200, 201, 202]);
    assert_eq!(batch.targets, [1, 0, 0, 101, 102, 0, 201, 202, 203]);
    let padded = batch.roles.iter().map(|&role| role == Role::Padding).collect::<Vec<_>>();
    assert_eq!(padded, [false, true, true, false, false, true, false, false, false]);
}

#[test]
fn ordered_windows_cover_every_target_once() {
    let sequences = stream(40, 7);
    let mut targets = Vec::new();
    for batch in sequences.batches(4) {
        for (target, role) in batch.targets.iter().zip(&batch.roles) {
            if *role != Role::Padding {
                targets.push(*target);
            }
        }
    }
    assert_eq!(targets, (3..40).collect::<Vec<_>>());
    assert_eq!(sequences.targets(), 37);
}

#[test]
fn random_windows_start_everywhere_for_any_batch_size() {
    let row_starts = |batch_size, epochs| -> Vec<u32> {
        let loader = Loader::new(stream(23, 7), batch_size, 5);
        let starts = |batch: Batch| batch.inputs.chunks(7).map(|row| row[0]).collect::<Vec<_>>();
        (0..epochs).flat_map(|epoch| loader.epoch(epoch)).flat_map(starts).collect()
    };
    let mut seen = row_starts(3, 100);
    assert_eq!(row_starts(1, 1), seen[..3]);
    seen.sort_unstable();
    seen.dedup();
    // From the first id of the part to the last one with seven targets after it.
    assert_eq!(seen, (2..=15).collect::<Vec<_>>());
}

#[test]
fn short_streams_form_one_short_window() {
    let sequences = stream(6, 7);
    assert_eq!((sequences.len(), sequences.time()), (1, 3));
    let shuffled = Loader::new(sequences.clone(), 1, 0).epoch(0).next().unwrap();
    for batch in [shuffled, sequences.batches(1).next().unwrap()] {
        assert_eq!((batch.inputs, batch.targets), (vec![2, 3, 4], vec![3, 4, 5]));
    }
}

#[test]
fn sources_are_padded_and_hidden() {
    let (mut sources, mut answers) = (Rows::default(), Rows::default());
    for (source, answer) in [(&[1, 2, 3][..], &[9, 3, 2, 1, 9][..]), (&[4], &[9, 4, 9])] {
        sources.push(source);
        answers.push(answer);
    }
    let sequences = Sequences::pairs(sources, answers);
    assert_eq!((sequences.source_time(), sequences.time()), (Some(3), 4));
    let batch = sequences.batches(2).next().unwrap();
    let source = batch.source.unwrap();
    assert_eq!((source.time, source.tokens), (3, vec![1, 2, 3, 4, 0, 0]));
    assert_eq!(source.lengths, [3, 1]);
    assert_eq!(batch.inputs, [9, 3, 2, 1, 9, 4, 0, 0]);
    assert_eq!(batch.targets, [3, 2, 1, 9, 4, 9, 0, 0]);
}
