use super::*;
use crate::model::{Architecture, ModelConfig};
use crate::position::PositionScheme;
use burn_ndarray::NdArray;

const SIZES: Sizes = Sizes { vocab: 11, context: 7, source_context: Some(5) };

fn model(config: &ModelConfig) -> Model<NdArray> {
    config.init(SIZES, &Default::default()).unwrap()
}

fn config(position: PositionScheme) -> ModelConfig {
    ModelConfig { position, d_model: 24, ..ModelConfig::default() }
}

fn prompt(tokens: &[u32]) -> Prompt {
    Prompt { tokens: tokens.to_vec(), source: None }
}

fn continued(model: &Model<NdArray>, prompt: &Prompt, options: &Options) -> Result<Vec<Continuation>> {
    let vocabulary = Vocabulary::integers(11, &[]);
    write((model, SIZES), &vocabulary, prompt, options, &Default::default(), |_, _| Ok(()))
}

#[test]
fn kv_cache_leaves_generated_tokens_unchanged() {
    let mut configs: Vec<ModelConfig> = PositionScheme::ALL.map(config).to_vec();
    let learned = config(PositionScheme::Learned);
    configs.push(ModelConfig { architecture: Architecture::OneLayer, ..learned.clone() });
    configs.push(ModelConfig { architecture: Architecture::EncoderDecoder, ..learned });
    for config in configs {
        let model = model(&config);
        let source = (config.architecture == Architecture::EncoderDecoder).then(|| vec![5, 8, 2]);
        let prompt = Prompt { tokens: vec![3, 1, 4], source };
        let options = Options { max_new: 29, samples: 2, alternatives: Some(3), ..Options::default() };
        for sampling in [Sampling::default(), Sampling::GREEDY] {
            let options = Options { sampling, ..options.clone() };
            let cached = continued(&model, &prompt, &options).unwrap();
            let uncached = continued(&model, &prompt, &Options { cache: false, ..options }).unwrap();
            for (cached, uncached) in cached.iter().zip(&uncached) {
                assert_eq!(cached.tokens, uncached.tokens, "{config:?}");
                assert_eq!(cached.tokens.len(), 29);
                for (cached, uncached) in cached.probabilities.iter().zip(&uncached.probabilities) {
                    assert!((cached - uncached).abs() < 1e-5);
                }
            }
        }
    }
}

#[test]
fn greedy_takes_the_argmax_and_seeds_vary_samples() {
    let model = model(&config(PositionScheme::Learned));
    let options = Options { max_new: 19, samples: 2, alternatives: Some(4), ..Options::default() };
    let write = |sampling, seed| {
        continued(&model, &prompt(&[3]), &Options { sampling, seed, ..options.clone() }).unwrap()
    };
    let greedy = write(Sampling::GREEDY, 0);
    assert_eq!(greedy[0], greedy[1]);
    for (token, (probability, alternatives)) in
        greedy[0].tokens.iter().zip(greedy[0].probabilities.iter().zip(&greedy[0].alternatives))
    {
        assert_eq!((*token, *probability), (alternatives[0].id, alternatives[0].probability));
        assert_eq!(alternatives.len(), 4);
        assert!(alternatives.is_sorted_by(|a, b| a.probability >= b.probability));
    }
    let drawn = write(Sampling::default(), 0);
    assert_eq!(drawn, write(Sampling::default(), 0));
    assert_ne!(drawn[0].tokens, drawn[1].tokens);
    assert_ne!(drawn[0].tokens, write(Sampling::default(), 1)[0].tokens);
}

#[test]
fn samples_are_independent_of_batch_size() {
    let model = model(&config(PositionScheme::Rotary));
    let write =
        |samples| continued(&model, &prompt(&[3, 1]), &Options { max_new: 5, samples, ..Options::default() });
    assert_eq!(write(1).unwrap()[0].tokens, write(3).unwrap()[0].tokens);
}

#[test]
fn stop_token_ends_only_its_own_row() {
    let model = model(&config(PositionScheme::Learned));
    let options = Options { max_new: 40, samples: 3, alternatives: Some(0), ..Options::default() };
    let free = continued(&model, &prompt(&[3]), &options).unwrap();
    let stopping = Options { stop_tokens: vec![7, 2], ..options };
    let stopped = continued(&model, &prompt(&[3]), &stopping).unwrap();
    for (free, stopped) in free.iter().zip(&stopped) {
        let end = free.tokens.iter().position(|token| [7, 2].contains(token));
        assert_eq!(stopped.tokens, free.tokens[..end.unwrap_or(40)]);
        assert_eq!(stopped.ended, if end.is_some() { StopReason::StopToken } else { StopReason::MaxNew });
        assert_eq!(stopped.probabilities.len(), stopped.tokens.len());
    }
    assert!(stopped.iter().any(|row| row.ended == StopReason::StopToken));
}

#[test]
fn the_text_streams_in_pieces_beyond_the_context() {
    let model = model(&config(PositionScheme::Learned));
    let vocabulary = Vocabulary::characters("abcdefghijk".chars()).unwrap();
    let options = Options { max_new: 12, stop_strings: vec!["zz".into()], samples: 2, ..Options::default() };
    let mut texts = [String::new(), String::new()];
    let watch = |sample: usize, text: &str| {
        texts[sample].push_str(text);
        Ok(())
    };
    let written = write((&model, SIZES), &vocabulary, &prompt(&[3, 1]), &options, &Default::default(), watch);
    let written = written.unwrap();
    assert_eq!(texts[0], written[0].text);
    assert_eq!(texts[1], written[1].text);
    assert_eq!(vocabulary.encode(&texts[1]).unwrap(), written[1].tokens);
    // After 2 + 5 tokens the context is full, and 4 tokens are kept.
    assert_eq!(window(SIZES, &prompt(&[3, 1]), false), [7, 4]);
    assert_eq!(window(SIZES, &prompt(&[3; 9]), false), [9, 4], "a longer prompt is read whole");
    assert_eq!(window(SIZES, &prompt(&[3; 9]), true), [7, 4]);
}

#[test]
fn whoever_watches_ends_the_writing_by_an_error() {
    let model = model(&config(PositionScheme::Learned));
    let mut pieces = 0;
    let watch = |_, _: &str| {
        pieces += 1;
        if pieces == 3 { Err(Error::Failed("the GPU is gone".into())) } else { Ok(()) }
    };
    let options = Options { max_new: 5, ..Options::default() };
    let vocabulary = Vocabulary::integers(11, &[]);
    let written = write((&model, SIZES), &vocabulary, &prompt(&[3]), &options, &Default::default(), watch);
    assert_eq!(written.unwrap_err().to_string(), "the GPU is gone");
    assert_eq!(pieces, 3, "nothing more is written");
}

#[test]
fn tokens_that_the_vocabulary_lacks_are_never_written() {
    let model = model(&config(PositionScheme::Learned));
    let vocabulary = Vocabulary::integers(2, &[]);
    let options = Options { max_new: 50, alternatives: Some(9), ..Options::default() };
    let written =
        write((&model, SIZES), &vocabulary, &prompt(&[1]), &options, &Default::default(), |_, _| Ok(()));
    let written = &written.unwrap()[0];
    assert!(written.tokens.iter().all(|&token| token < 2));
    assert!(written.alternatives.iter().all(|step| step.len() == 2));
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let decoder = model(&config(PositionScheme::Rotary));
    let default = Options::default;
    for (tokens, options, message) in [
        (vec![], default(), "the prompt is empty"),
        (vec![3, 11], default(), "`11` (token 2) is outside the vocabulary"),
        (vec![1], Options { samples: 0, ..default() }, "--samples 0"),
        (vec![1], Options { stop_strings: vec![String::new()], ..default() }, "--stop \"\""),
        (vec![1], Options { stop_tokens: vec![12], ..default() }, "`12`"),
        (
            vec![1],
            Options { sampling: Sampling { top_p: 2.0, ..Sampling::default() }, ..default() },
            "--top-p 2",
        ),
    ] {
        let error = continued(&decoder, &prompt(&tokens), &options).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
    assert!(continued(&decoder, &prompt(&[1; 8]), &default()).is_ok(), "rotary positions carry on");
    let learned = model(&config(PositionScheme::Learned));
    assert!(continued(&learned, &prompt(&[1; 7]), &default()).is_ok(), "a full context is not too long");
    let error = continued(&learned, &prompt(&[1; 8]), &default()).unwrap_err().to_string();
    assert!(error.contains("8 tokens is longer than the context of 7"), "{error}");
    let answers = ModelConfig { architecture: Architecture::EncoderDecoder, ..ModelConfig::default() };
    let answers = model(&answers);
    let answer = |source: &[u32]| {
        let prompt = Prompt { tokens: vec![1], source: Some(source.to_vec()) };
        continued(&answers, &prompt, &Options { max_new: 3, ..Options::default() })
    };
    assert!(answer(&[1; 5]).is_ok());
    assert!(answer(&[1; 6]).unwrap_err().to_string().contains("longer than the context of 5"));
    assert!(answer(&[]).unwrap_err().to_string().contains("empty"));
}
