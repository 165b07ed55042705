//! Tests that masks hide the right keys: as rules, after translation, and in blocks.

use super::*;
use burn_ndarray::NdArray;

type B = NdArray;

fn bools<const D: usize>(values: &[u8], shape: [usize; D]) -> Tensor<B, D, Bool> {
    let values: Vec<bool> = values.iter().map(|&value| value == 1).collect();
    Tensor::from_data(burn::tensor::TensorData::new(values, shape), &Default::default())
}

fn hidden(mask: &Mask<B>, query_time: usize, key_time: usize) -> Vec<u8> {
    let hidden = mask.hidden(query_time, key_time, &Default::default()).unwrap();
    hidden.into_data().to_vec::<bool>().unwrap().into_iter().map(u8::from).collect()
}

#[test]
fn the_future_of_the_last_queries_is_hidden() {
    assert_eq!(hidden(&Mask::causal(), 3, 3), [0, 1, 1, 0, 0, 1, 0, 0, 0]);
    assert_eq!(hidden(&Mask::causal(), 2, 5), [0, 0, 0, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn hidden_parts_are_combined() {
    let mask = Mask::causal()
        .hide_keys(bools(&[1, 0, 0, 0, 0, 0], [2, 3]))
        .hide_queries(bools(&[0, 0, 0, 1, 0, 0], [2, 3]));
    let first = [1, 1, 1, 1, 0, 1, 1, 0, 0];
    let second = [1, 1, 1, 0, 0, 1, 0, 0, 0];
    assert_eq!(hidden(&mask, 3, 3), [first, second].concat());
    let pairs = Mask::none().hide_pairs(bools(&[0, 1, 1, 0, 0, 0], [1, 2, 3]));
    assert_eq!(hidden(&pairs, 2, 3), [0, 1, 1, 0, 0, 0]);
    assert!(Mask::<B>::none().hidden(2, 3, &Default::default()).is_none());
}

#[test]
fn window_hides_keys_beyond_its_width() {
    let causal = Mask::causal().with_window(2);
    assert_eq!(hidden(&causal, 3, 3), [0, 1, 1, 0, 0, 1, 1, 0, 0]);
    assert_eq!(hidden(&causal, 2, 5), [1, 1, 0, 0, 1, 1, 1, 1, 0, 0]);
    assert_eq!(hidden(&Mask::none().with_window(2), 3, 3), [0, 0, 1, 0, 0, 0, 1, 0, 0]);
    // A window as wide as the sequence hides nothing, and neither does a causal mask from the last query.
    assert!(Mask::<B>::none().with_window(3).hidden(3, 3, &Default::default()).is_none());
    assert!(Mask::<B>::causal().hidden(1, 7, &Default::default()).is_none());
}

#[test]
fn documents_and_padding_apply_per_sequence() {
    let documents = Mask::none().with_documents(&[vec![4, 4, 7], vec![1, 0, 1]]);
    let packed = [[0, 0, 1, 0, 0, 1, 1, 1, 0], [0, 1, 1, 1, 0, 1, 1, 1, 0]];
    assert_eq!(hidden(&documents, 3, 3), packed.concat());
    let causal = Mask { causal: true, ..documents };
    assert_eq!(hidden(&causal, 2, 3), [0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 0]);
    let lengths = Mask::none().with_lengths(&[2, 0]);
    assert_eq!(hidden(&lengths, 1, 3), [0, 0, 1, 1, 1, 1]);
    // There may be more queries than keys, as in cross-attention.
    assert_eq!(hidden(&Mask::none().with_lengths(&[1]), 3, 2), [0, 1, 0, 1, 0, 1]);
    let all =
        Mask::causal().with_window(2).with_lengths(&[3, 1]).with_documents(&[vec![0, 1, 1], vec![2; 3]]);
    let expected = [[0, 1, 1, 1, 0, 1, 1, 0, 0], [0, 1, 1, 0, 1, 1, 1, 1, 1]];
    assert_eq!(hidden(&all, 3, 3), expected.concat());
}

#[test]
fn mask_blocks_match_slices_of_the_full_mask() {
    let mask = Mask::causal()
        .with_window(3)
        .with_lengths(&[5, 7])
        .with_documents(&[vec![0, 0, 0, 1, 1, 1, 1], vec![3; 7]])
        .hide_keys(bools(&[0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0], [2, 7]));
    let lowered = mask.lower(5, 7);
    let device = Default::default();
    let full = mask.hidden(5, 7, &device).unwrap();
    assert_eq!((lowered.keys(0..1), lowered.keys(2..4)), (0..3, 2..6));
    for (queries, keys) in [(0..5, 0..7), (1..3, 1..5), (4..5, 4..7), (2..4, 2..6)] {
        let part = full.clone().narrow(2, queries.start, queries.len()).narrow(3, keys.start, keys.len());
        let block = lowered.block(queries.clone(), keys).hidden(&device).unwrap();
        block.into_data().assert_eq(&part.into_data(), true);
    }
}

#[test]
fn mask_size_mismatch_reports_both_shapes() {
    let keys = Mask::none().hide_keys(bools(&[0; 6], [2, 3]));
    assert!(keys.check(2, 5, 3).is_ok());
    let message = keys.check(2, 3, 5).unwrap_err().to_string();
    let expected = "`mask.pairs` is [2, 1, 3], but must be [batch, query_time, key_time] = [2, 1, 5]";
    assert_eq!(message, expected);
    let pairs = Mask::none().hide_pairs(bools(&[0; 6], [1, 2, 3]));
    assert!(pairs.check(7, 2, 3).is_ok(), "one mask for all sequences");
    assert!(pairs.check(1, 3, 2).unwrap_err().to_string().contains("[1, 3, 2]"));
    let queries = Mask::none().hide_queries(bools(&[0; 6], [2, 3]));
    assert!(queries.check(2, 3, 5).is_ok() && queries.check(2, 5, 3).is_err());
    assert!(Mask::<B>::causal().check(1, 3, 2).unwrap_err().to_string().contains("3 queries"));
    assert!(Mask::<B>::none().with_window(2).check(1, 3, 2).is_err());
    assert!(
        Mask::<B>::none().with_window(0).check(1, 3, 3).unwrap_err().to_string().contains("`window` = 0")
    );
    let lengths = Mask::<B>::none().with_lengths(&[4, 2]);
    assert!(lengths.check(2, 3, 4).is_ok() && lengths.check(3, 3, 4).is_err());
    assert!(lengths.check(2, 3, 3).unwrap_err().to_string().contains("`mask.lengths` contains 4"));
    let documents = Mask::<B>::none().with_documents(&[vec![0; 4], vec![0; 3]]);
    let message = documents.check(2, 3, 4).unwrap_err().to_string();
    assert!(message.contains("[2, 3], but must be [batch][key_time] = [2, 4]"), "{message}");
}
