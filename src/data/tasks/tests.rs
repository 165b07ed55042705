//! Tests of properties that all tasks share.

use super::*;
use crate::data::{Count, load, load_pairs};

fn config(task: Task) -> DataConfig {
    DataConfig { task, train_samples: 11, valid_samples: 4096, ..DataConfig::default() }
}

#[test]
fn task_names_match_the_config() {
    for task in Task::ALL {
        assert_eq!(serde_json::to_value(task).unwrap(), task.to_string());
    }
    assert_eq!(Task::CopyGap.to_string(), "copy_gap");
}

#[test]
fn encoder_decoder_pairs_cover_all_source_lengths() {
    for task in [Task::Reverse, Task::Sort] {
        let config = DataConfig { task, length: 5, train_samples: 100, ..DataConfig::default() };
        let dataset = load_pairs(&config, 0).unwrap();
        let end = dataset.vocabulary.end().unwrap();
        assert_eq!((end, dataset.vocabulary.size(), dataset.context()), (16, 17, 6));
        let floor = dataset.floor.unwrap();
        assert_eq!((floor.expected, floor.standard_error, floor.valid), (0.0, None, 0.0));
        assert_eq!(dataset.floor_by_position, [0.0; 6]);
        let batch = dataset.train.batches(100).next().unwrap();
        let source = batch.source.as_ref().unwrap();
        let mut lengths = std::collections::BTreeSet::new();
        for row in 0..100 {
            let length = source.lengths[row];
            lengths.insert(length);
            let mut answer = source.tokens[row * 5..][..length].to_vec();
            if task == Task::Sort {
                answer.sort_unstable();
            } else {
                answer.reverse();
            }
            let (inputs, targets) = (&batch.inputs[row * 6..][..6], &batch.targets[row * 6..][..6]);
            assert_eq!(inputs[0], end);
            assert_eq!(inputs[1..=length], answer);
            assert_eq!(targets[..length], answer);
            assert_eq!(targets[length], end);
            let counted = batch.roles[row * 6..][..6].iter().filter(|&&role| role != Role::Padding);
            assert_eq!(counted.count(), length + 1);
        }
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
    let error = load_pairs(&config(Task::Markov), 0).unwrap_err().to_string();
    assert!(error.starts_with("`data.task` = markov does not have a source and an answer"), "{error}");
}

#[test]
fn every_task_fits_context_and_vocabulary() {
    for task in Task::ALL {
        let dataset = load(&config(task), 3).unwrap();
        assert!(dataset.context() <= 32, "{task:?} needs {} positions", dataset.context());
        let batch = dataset.train.batches(11).next().unwrap();
        dataset.vocabulary.check(&batch.inputs).unwrap();
        dataset.vocabulary.check(&batch.targets).unwrap();
    }
}

#[test]
fn validation_floor_is_near_its_expectation() {
    for task in Task::ALL {
        let dataset = load(&config(task), 7).unwrap();
        let floor = dataset.floor.unwrap();
        let difference = (floor.expected - floor.valid).abs();
        assert!(difference < 0.02, "{task:?}: {floor:?}");
        let by_position = &dataset.floor_by_position;
        assert_eq!(by_position.len(), dataset.valid.time(), "{task:?}");
        assert_eq!(by_position.iter().sum::<f64>() / by_position.len() as f64, floor.valid, "{task:?}");
    }
}

#[test]
fn corrupted_samples_are_valid_with_another_answer() {
    use std::collections::HashSet;
    for task in Task::ALL {
        // `recall` needs at least two pairs for another key.
        let length = if task == Task::Recall { 8 } else { 6 };
        let config = DataConfig { vocab: Count::Of(4), length, digits: 1, order: 2, ..config(task) };
        let config = DataConfig { train_samples: 1, valid_samples: 1, ..config };
        let built = build(&config, 3).unwrap();
        let mut random = generator(3, Purpose::TrainingSet, [0, 0]);
        let mut draw = || {
            let mut sample = vec![0; built.tokens()];
            built.draw(&mut random, &mut sample);
            sample
        };
        let all: HashSet<_> = std::iter::repeat_with(&mut draw).take(10_000).collect();
        let mut corrupted_samples = 0;
        for clean in std::iter::repeat_with(draw).take(100) {
            let mut corrupted = clean.clone();
            let Some(target) = built.corrupt(&mut corrupted) else { continue };
            assert_ne!(corrupted[target + 1], clean[target + 1], "{task:?}: {clean:?} {corrupted:?}");
            // Every walk of `markov` is possible.
            let is_possible = task == Task::Markov || all.contains(&corrupted);
            assert!(is_possible, "{task:?} never draws {corrupted:?}");
            // Both answers follow from the tokens before them.
            for sample in [clean, corrupted] {
                let mut probabilities = vec![0.0; sample.len() - 1];
                built.probabilities(&sample, &mut probabilities);
                let probability = probabilities[target];
                assert!(probability > if task == Task::Markov { 0.25 } else { 0.4 }, "{task:?} {sample:?}");
            }
            corrupted_samples += 1;
        }
        let is_expected = if task == Task::Random { corrupted_samples == 0 } else { corrupted_samples > 40 };
        assert!(is_expected, "{task:?}: {corrupted_samples}");
    }
}

#[test]
fn training_and_validation_differ_and_follow_seed() {
    let rows = |dataset: Dataset| [dataset.train, dataset.valid].map(|set| set.batches(5).next().unwrap());
    let [train, valid] = rows(load(&config(Task::Random), 3).unwrap());
    assert_ne!(train, valid);
    assert_eq!([train.clone(), valid], rows(load(&config(Task::Random), 3).unwrap()));
    assert_ne!(train, rows(load(&config(Task::Random), 4).unwrap())[0]);
}

#[test]
fn sets_that_are_empty_or_too_large_are_refused() {
    // The sequences of 33 tokens whose ids fill the largest set.
    let most = MAX_IDS / 33;
    for (samples, is_accepted) in [(0, false), (1, true), (most, true), (most + 1, false)] {
        for key in ["data.train_samples", "data.valid_samples"] {
            let mut config =
                DataConfig { length: 32, train_samples: 1, valid_samples: 1, ..config(Task::Random) };
            *(if key == "data.train_samples" {
                &mut config.train_samples
            } else {
                &mut config.valid_samples
            }) = samples;
            match check(&config) {
                Ok(()) => assert!(is_accepted, "{key} = {samples}"),
                Err(error) => {
                    let expected =
                        format!("`{key}` = {samples} must be in [1, {most}] for sequences of 33 tokens");
                    assert_eq!((error.to_string(), is_accepted), (expected, false));
                }
            }
        }
    }
    let config = DataConfig { lengths: Some([1, 8]), ..config(Task::Recall) };
    let error = check(&config).unwrap_err().to_string();
    assert!(error.starts_with("`data.lengths` = [1, 8] includes the length 1, but"), "{error}");
}

#[test]
fn a_corrupted_period_counts_its_tokens_up() {
    let mut sample = [0, 1, 2, 3, 0, 1, 2, 3];
    assert_eq!(corrupt_period(&mut sample, 4, 4), Some(6));
    assert_eq!(sample, [0, 1, 2, 0, 0, 1, 2, 0]);
}

#[test]
fn a_corrupted_prefix_changes_its_middle_token_and_the_answer() {
    let config = DataConfig { vocab: Count::Of(4), length: 8, ..config(Task::Reverse) };
    let mut sample = [1, 2, 3, 0, 4, 0, 3, 2, 1];
    assert_eq!(build(&config, 0).unwrap().corrupt(&mut sample), Some(5));
    assert_eq!(sample, [1, 2, 0, 0, 4, 0, 0, 2, 1]);
}
