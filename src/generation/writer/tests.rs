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
    Prompt { tokens: tokens.to_vec(), ..Prompt::default() }
}

fn continued(model: &Model<NdArray>, prompt: &Prompt, options: &Options) -> Result<Vec<Continuation>> {
    let vocabulary = Vocabulary::integers(11, &[]);
    generate((model, SIZES), &vocabulary, prompt, options, &Default::default(), |_, _| Ok(()))
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
        let prompt = Prompt { tokens: vec![3, 1, 4], source, ..Prompt::default() };
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
    let generate = |sampling, seed| {
        continued(&model, &prompt(&[3]), &Options { sampling, seed, ..options.clone() }).unwrap()
    };
    let greedy = generate(Sampling::GREEDY, 0);
    assert_eq!(greedy[0], greedy[1]);
    for (token, (probability, alternatives)) in
        greedy[0].tokens.iter().zip(greedy[0].probabilities.iter().zip(&greedy[0].alternatives))
    {
        assert_eq!((*token, *probability), (alternatives[0].id, alternatives[0].probability));
        assert_eq!(alternatives.len(), 4);
        assert!(alternatives.is_sorted_by(|a, b| a.probability >= b.probability));
    }
    let drawn = generate(Sampling::default(), 0);
    assert_eq!(drawn, generate(Sampling::default(), 0));
    assert_ne!(drawn[0].tokens, drawn[1].tokens);
    assert_ne!(drawn[0].tokens, generate(Sampling::default(), 1)[0].tokens);
}

#[test]
fn samples_are_independent_of_batch_size() {
    let model = model(&config(PositionScheme::Rotary));
    let generate =
        |samples| continued(&model, &prompt(&[3, 1]), &Options { max_new: 5, samples, ..Options::default() });
    assert_eq!(generate(1).unwrap()[0].tokens, generate(3).unwrap()[0].tokens);
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
fn streamed_pieces_join_to_the_text() {
    let model = model(&config(PositionScheme::Learned));
    let vocabulary = Vocabulary::characters("abcdefghijk".chars()).unwrap();
    let options = Options { max_new: 12, stop_strings: vec!["zz".into()], samples: 2, ..Options::default() };
    let mut texts = [String::new(), String::new()];
    let on_text = |sample: usize, text: &str| {
        texts[sample].push_str(text);
        Ok(())
    };
    let generated =
        generate((&model, SIZES), &vocabulary, &prompt(&[3, 1]), &options, &Default::default(), on_text);
    let generated = generated.unwrap();
    assert_eq!(texts[0], generated[0].text);
    assert_eq!(texts[1], generated[1].text);
    assert_eq!(vocabulary.encode(&texts[1]).unwrap(), generated[1].tokens);
    // After 2 + 5 tokens the context is full, and 4 tokens are kept.
    assert_eq!(window(SIZES, &prompt(&[3, 1]), false), [7, 4]);
    assert_eq!(window(SIZES, &prompt(&[3; 9]), false), [9, 4], "a longer prompt is read in full");
    assert_eq!(window(SIZES, &prompt(&[3; 9]), true), [7, 4]);
}

#[test]
fn callback_errors_stop_generation() {
    let model = model(&config(PositionScheme::Learned));
    let mut pieces = 0;
    let on_text = |_, _: &str| {
        pieces += 1;
        if pieces == 3 { Err(Error::Failed("the GPU is gone".into())) } else { Ok(()) }
    };
    let options = Options { max_new: 5, ..Options::default() };
    let vocabulary = Vocabulary::integers(11, &[]);
    let generated =
        generate((&model, SIZES), &vocabulary, &prompt(&[3]), &options, &Default::default(), on_text);
    assert_eq!(generated.unwrap_err().to_string(), "the GPU is gone");
    assert_eq!(pieces, 3, "no text follows the error");
}

#[test]
fn tokens_outside_the_vocabulary_are_never_generated() {
    let model = model(&config(PositionScheme::Learned));
    let vocabulary = Vocabulary::integers(2, &[]);
    let options = Options { max_new: 50, alternatives: Some(9), ..Options::default() };
    let generated =
        generate((&model, SIZES), &vocabulary, &prompt(&[1]), &options, &Default::default(), |_, _| Ok(()));
    let generated = &generated.unwrap()[0];
    assert!(generated.tokens.iter().all(|&token| token < 2));
    assert!(generated.alternatives.iter().all(|step| step.len() == 2));
}

#[test]
fn invalid_prompts_and_options_are_rejected() {
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
    assert!(continued(&decoder, &prompt(&[1; 8]), &default()).is_ok(), "rotary positions extrapolate");
    let learned = model(&config(PositionScheme::Learned));
    assert!(continued(&learned, &prompt(&[1; 7]), &default()).is_ok(), "the prompt fills the context");
    let error = continued(&learned, &prompt(&[1; 8]), &default()).unwrap_err().to_string();
    assert!(error.contains("8 tokens is longer than the context of 7"), "{error}");
    let answers = ModelConfig { architecture: Architecture::EncoderDecoder, ..ModelConfig::default() };
    let answers = model(&answers);
    let answer = |source: &[u32]| {
        let prompt = Prompt { tokens: vec![1], source: Some(source.to_vec()), ..Prompt::default() };
        continued(&answers, &prompt, &Options { max_new: 3, ..Options::default() })
    };
    assert!(answer(&[1; 5]).is_ok());
    assert!(answer(&[1; 6]).unwrap_err().to_string().contains("longer than the context of 5"));
    assert!(answer(&[]).unwrap_err().to_string().contains("empty"));
}

#[test]
fn separate_documents_restart_the_context() {
    use crate::data::vocabulary::END;
    let sizes = Sizes { vocab: 11, context: 7, source_context: None };
    let vocabulary = Vocabulary::integers(10, &[END]);
    let end = vocabulary.end().unwrap();
    let options = Options {
        max_new: 40,
        samples: 3,
        alternatives: Some(1),
        texts: TextEnds { documents: Documents::Separate, tokens: None },
        ignore_end: true,
        ..Options::default()
    };
    for position in PositionScheme::ALL {
        let model = config(position).init::<NdArray>(sizes, &Default::default()).unwrap();
        let continued = |tokens: &[u32], options: &Options| {
            let device = Default::default();
            generate((&model, sizes), &vocabulary, &prompt(tokens), options, &device, |_, _| Ok(())).unwrap()
        };
        let short = Options { max_new: 3, ..options.clone() };
        let alone = continued(&[4, 2], &short);
        assert_eq!(continued(&[3, 1, end, 4, 2], &short), alone, "{position:?}");
        let joined = Options { texts: TextEnds::default(), ..short };
        assert_ne!(continued(&[3, 1, end, 4, 2], &joined), alone, "{position:?}");
        let cached = continued(&[3, 1, end, 4], &options);
        let uncached = continued(&[3, 1, end, 4], &Options { cache: false, ..options.clone() });
        assert!(cached.iter().flat_map(|it| &it.tokens).any(|&token| token == end));
        for (cached, uncached) in cached.iter().zip(&uncached) {
            assert_eq!(cached.tokens, uncached.tokens, "{position:?}");
            let pairs = cached.probabilities.iter().zip(&uncached.probabilities);
            assert!(pairs.clone().count() == 40 && pairs.clone().all(|(a, b)| (a - b).abs() < 1e-5));
        }
        // Token by token, the probabilities depend only on the document read so far.
        for sample in &cached {
            let all = [&[3, 1, end, 4][..], &sample.tokens].concat();
            for (step, &probability) in sample.probabilities.iter().enumerate().take(3) {
                let read = &all[..4 + step];
                let start =
                    read[..read.len() - 1].iter().rposition(|&token| token == end).map_or(0, |it| it + 1);
                let one = Options { max_new: 1, samples: 1, ..joined.clone() };
                let options = Options { alternatives: Some(11), ..one };
                let next = &continued(&read[start..], &options)[0].alternatives[0];
                let found = next.iter().find(|it| it.id == all[4 + step]).unwrap().probability;
                assert!((found - probability).abs() < 1e-5, "{position:?}: {found} {probability}");
            }
        }
    }
}
