//! Tests of properties shared by all architectures.

mod documents;

use super::*;
use crate::position::PositionScheme;
use burn::tensor::Tolerance;
use burn_ndarray::NdArray;

type B = NdArray;

const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };

fn model(architecture: Architecture, position: PositionScheme) -> Model<B> {
    let config = ModelConfig { architecture, position, d_model: 18, heads: 3, ..ModelConfig::default() };
    config.init(SIZES, &Default::default()).unwrap()
}

fn inputs<const TIME: usize>(tokens: [i64; TIME], source: Option<([i64; 5], usize)>) -> Inputs<B> {
    let device = Default::default();
    let source = source.map(|(tokens, length)| Source {
        tokens: Tensor::from_ints([tokens], &device),
        lengths: vec![length],
    });
    Inputs { source, ..Inputs::tokens(Tensor::from_ints([tokens], &device)) }
}

#[test]
fn future_tokens_cannot_change_past_logits() {
    for architecture in [Architecture::OneLayer, Architecture::Decoder, Architecture::EncoderDecoder] {
        for position in PositionScheme::ALL {
            let model = model(architecture, position);
            let source = (architecture == Architecture::EncoderDecoder).then_some(([2; 5], 5));
            let logits = |tokens: [i64; 7]| model.forward(inputs(tokens, source)).unwrap();
            let before = logits([3, 1, 4, 1, 5, 9, 2]);
            let after = logits([3, 1, 4, 8, 7, 0, 10]);
            let past = |logits: &Tensor<B, 3>| logits.clone().narrow(1, 0, 3).into_data();
            let changed = |logits: &Tensor<B, 3>| logits.clone().narrow(1, 3, 1).into_data();
            assert_eq!(past(&before), past(&after), "{architecture:?} {position:?}");
            assert_ne!(changed(&before), changed(&after), "{architecture:?} {position:?}");
        }
    }
}

#[test]
fn source_padding_does_not_change_logits() {
    for position in PositionScheme::ALL {
        let model = model(Architecture::EncoderDecoder, position);
        let logits = |source| model.forward(inputs([3, 1, 4], Some((source, 3)))).unwrap().into_data();
        assert_eq!(logits([5, 9, 2, 0, 0]), logits([5, 9, 2, 6, 10]), "{position:?}");
        assert_ne!(logits([5, 9, 2, 0, 0]), logits([5, 9, 8, 0, 0]), "{position:?}");
    }
}

#[test]
fn maps_cover_all_layers_without_changing_logits() {
    for architecture in [Architecture::OneLayer, Architecture::Decoder, Architecture::EncoderDecoder] {
        let model = model(architecture, PositionScheme::Rotary);
        let source = (architecture == Architecture::EncoderDecoder).then_some(([2; 5], 5));
        let inputs = inputs([3, 1, 4], source);
        let (logits, maps) = model.forward_with_maps(inputs.clone()).unwrap();
        let expected = model.forward(inputs).unwrap().into_data();
        logits.into_data().assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-6));
        let dims = |maps: &[Tensor<B, 4>]| maps.iter().map(Tensor::dims).collect::<Vec<_>>();
        let (causal, encoder, cross) = match architecture {
            Architecture::OneLayer => (1, 0, 0),
            Architecture::Decoder => (2, 0, 0),
            Architecture::EncoderDecoder => (2, 2, 2),
        };
        assert_eq!(dims(&maps.causal), vec![[1, 3, 3, 3]; causal]);
        assert_eq!(dims(&maps.encoder), vec![[1, 3, 5, 5]; encoder]);
        assert_eq!(dims(&maps.cross), vec![[1, 3, 3, 5]; cross]);
    }
}

#[test]
fn only_learned_positions_end_at_the_context() {
    for position in PositionScheme::ALL {
        let model = model(Architecture::Decoder, position);
        let inputs = Inputs::tokens(Tensor::zeros([2, 13], &Default::default()));
        match model.check(&inputs) {
            Ok(()) => assert_eq!(model.forward(inputs).unwrap().dims(), [2, 13, 11]),
            Err(error) => {
                assert_eq!(position, PositionScheme::Learned);
                let message = error.to_string();
                assert!(message.contains("13") && message.contains('7'), "{message}");
            }
        }
    }
}

#[test]
fn mismatched_inputs_are_rejected() {
    let decoder = model(Architecture::Decoder, PositionScheme::Learned);
    let refused = |model: &Model<B>, inputs| model.check(&inputs).unwrap_err().to_string();
    let source = Some(([2; 5], 5));
    let message = "`inputs.tokens` contains the id 11, but the vocabulary has the ids 0 to 10";
    assert_eq!(refused(&decoder, inputs([3, 11], None)), message);
    let with_documents = inputs([1, 2], None).with_documents(&[vec![0]]);
    assert!(decoder.forward_with_maps(with_documents).is_err());
    assert!(refused(&decoder, inputs([1, 2], source)).contains("[1, 5]"));
    assert!(refused(&decoder, Inputs::tokens(Tensor::zeros([2, 0], &Default::default()))).contains("[2, 0]"));
    let answers = model(Architecture::EncoderDecoder, PositionScheme::Learned);
    assert!(refused(&answers, inputs([1, 2], None)).contains("needs a source"));
    let mut two = inputs([1, 2], source);
    two.tokens = Tensor::zeros([2, 3], &Default::default());
    assert_eq!(refused(&answers, two), "the number of sources is 1, but the number of answers is 2");
}

#[test]
fn models_print_as_trees_with_sizes() {
    let printed = model(Architecture::Decoder, PositionScheme::Rotary).to_string();
    for lines in [
        "Decoder {\n  embedding: Embeddings {\n    token: Embedding {n_embedding: 11, d_model: 18, params: 198}\n",
        "\n  position: Rotary {d_head: 6, theta: 10000.0, fraction: 1.0, scaling: None, factor: 1.0}\n  blocks: Vec<0..2> {\n    0: Block {\n",
        "\n      attention: MultiHeadAttention {d_model: 18, heads: 3, key_value_heads: 3, d_head: 6, ",
        "\n      feed_forward: FeedForward {d_model: 18, d_inner: 72, activation: Gelu, bias: true, dropout: 0.0, params: 2682}\n",
        "\n      placement: Pre\n      params: 4122\n    }\n    1: Block {\n",
        "\n  norm: Norm {kind: Layer, d_model: 18, epsilon: 1e-5, bias: true, params: 36}\n",
        "\n  params: 8676\n}",
    ] {
        assert!(printed.contains(lines), "{lines}\n{printed}");
    }
    assert!(!printed.contains('"') && !printed.contains(": None\n"), "{printed}");
}
