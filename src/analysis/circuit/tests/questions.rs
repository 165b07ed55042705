//! Questions about the answers of hand-set circuits, and of untrained models.

use super::*;
use crate::analysis::circuit::bench::Bench;
use crate::analysis::circuit::certify::check_certifiable;
use crate::analysis::circuit::criteria::{Minimality, Shares};
use crate::analysis::circuit::search::Pruned;

fn asked(model: Decoder<B>, prompts: &[QuestionPrompt]) -> Explanation {
    let (samples, question) = Question::of_prompts(&model, prompts, &Default::default()).unwrap();
    let origin = ExplanationContext { question, ..ExplanationContext::default() };
    explain(&Model::Decoder(model), &samples, origin, &Default::default()).unwrap()
}

/// Returns a prompt whose second token recurs at its end, and whose corrupted version exchanges it.
fn prompt(between: &[u32], against: Option<u32>) -> QuestionPrompt {
    let tokens = |first, last| [&[6, first, 1], between, &[last, 3, 0]].concat();
    QuestionPrompt {
        tokens: tokens(0, 2),
        answer: Some(1),
        against,
        corrupted: Some(tokens(2, 0)),
        documents: None,
    }
}

fn heads(found: &Explanation) -> Vec<(usize, Option<usize>)> {
    let mut heads: Vec<_> = found.components.iter().map(|it| (it.layer, it.head)).collect();
    heads.sort_unstable();
    heads
}

#[test]
fn a_preference_is_explained_by_resampling() {
    let found = asked(induction_model(), &[prompt(&[], Some(3)), prompt(&[4, 5], Some(3))]);
    let gain = &found.gain;
    assert_eq!((gain.quantity, gain.ablation), (Quantity::LogitDifference, Ablation::Resample));
    assert_eq!(heads(&found), [(0, Some(1)), (1, Some(0))], "{:?}", found.sentences);
    assert!(
        gain.model > 1.0 && gain.baseline < -1.0,
        "the corrupted prompts have the other answer: {gain:?}"
    );
    assert!(
        (gain.shares.faithfulness - 1.0).abs() < 1e-3 && gain.shares.complement_share.abs() < 1e-3,
        "{gain:?}"
    );
    let Shares { faithfulness, faithfulness_interval, complement_share, complement_interval } = gain.shares;
    for (share, interval) in [(faithfulness, faithfulness_interval), (complement_share, complement_interval)]
    {
        let [low, high] = interval.unwrap();
        assert!(low <= share && share <= high && high - low < 0.1, "{share}: {low} to {high}");
    }
    assert!(found.sentences[0].ends_with("so the circuit is complete."), "{:?}", found.sentences);
    for part in &found.views.attribution {
        let [low, high] = part.interval.unwrap();
        assert!(low <= part.mean && part.mean <= high, "{part:?}");
    }
    let lens = &found.views.lens;
    assert_eq!(lens.loss_interval.len(), 3);
    for (loss, [low, high]) in lens.loss.iter().zip(&lens.loss_interval) {
        assert!(low <= loss && loss <= high, "{lens:?}");
    }
    for component in &found.components {
        let [low, high] = component.interval.unwrap();
        let change = component.ablated - gain.model;
        assert!(low <= change && change <= high && high < 0.0, "{component:?}");
        let Minimality { without, without_interval, .. } = component.minimality;
        let ([low, high], change) = (without_interval.unwrap(), without.unwrap() - gain.model);
        assert!(low <= change && change <= high && change < -1.0, "{component:?}");
    }
    let patching = found.views.patching.as_ref().unwrap();
    assert_eq!(patching.pairs, 2);
    for (heads, intervals) in patching.heads.iter().zip(&patching.head_intervals) {
        let holds = |(share, [low, high]): (&f64, &[f64; 2])| low <= share && share <= high;
        assert!(heads.len() == intervals.len() && heads.iter().zip(intervals).all(holds), "{patching:?}");
    }
    assert!(!found.edges.is_empty());
    for edge in &found.edges {
        let ([low, high], change) = (edge.interval.unwrap(), edge.ablated - gain.model);
        assert!(low <= change && change <= high, "{edge:?}");
    }
    assert!(
        found.components.iter().all(|it| it.attends.is_empty()),
        "several prompts have several last tokens"
    );
    assert!(found.sentences.iter().any(|it| it.contains("lowers the logit difference from")));
}

#[test]
fn attribution_to_an_answer_has_one_direction() {
    let model = induction_model();
    let prompt = prompt(&[4, 5], Some(3));
    let found = asked(model.clone(), std::slice::from_ref(&prompt));
    let tokens = Tensor::<B, 1, burn::tensor::Int>::from_ints(&prompt.tokens[..], &Default::default());
    let logits = Model::Decoder(model).forward(crate::model::Inputs::tokens(tokens.unsqueeze())).unwrap();
    let logits: Vec<f32> = logits.into_data().to_vec().unwrap();
    for (position, logits) in logits.chunks(VOCAB).enumerate().take(found.basis.next.len()) {
        let sum: f64 = found.views.attribution.iter().map(|part| part.first[position]).sum();
        let difference = f64::from(logits[1] - logits[3]);
        assert!((sum - difference).abs() < 1e-4, "{position}: {sum}, not {difference}");
    }
}

#[test]
fn direct_paths_are_told_from_others() {
    let found = explained_induction();
    let effects = |layer: usize| {
        let component = found.components.iter().find(|it| it.layer == layer).unwrap();
        let direct = found.views.direct.iter().find(|it| it.is_of(component)).unwrap();
        [component.ablated, direct.ablated].map(|ablated| ablated - found.gain.model)
    };
    // The output layer does not read what the first head writes, which only changes the final norm.
    let [total, direct] = effects(0);
    assert!(total > 1.0 && direct.abs() < 0.1, "{total} in total, {direct} directly");
    // No later component reads the last head.
    let [total, direct] = effects(1);
    assert!(total > 1.0 && (total - direct).abs() < 1e-5, "{total} in total, {direct} directly");
}

#[test]
fn only_evident_harm_is_called_harmful() {
    let found = explained_induction();
    let gain = &found.gain;
    let is_harmful = |change: f64, interval| {
        let ablated = gain.model + change;
        gain.is_harmful(ablated, interval)
    };
    // Ablation lowers the loss, of which 1 % of the gain counts.
    let share = |share: f64| -share * (gain.baseline - gain.model);
    assert!(is_harmful(share(0.02), Some([share(0.03), share(0.01)])) && is_harmful(share(0.02), None));
    assert!(!is_harmful(share(0.005), Some([share(0.006), share(0.004)])), "the change is negligible");
    assert!(!is_harmful(share(0.02), Some([share(0.05), share(-0.01)])), "the change may be due to chance");
    assert!(!is_harmful(-share(0.02), None), "ablation raises the loss");
}

#[test]
fn padding_does_not_change_an_answer() {
    let [short, long] = [prompt(&[], Some(3)), prompt(&[4, 5], Some(3))];
    let value = |prompts: &[QuestionPrompt]| {
        let found = asked(induction_model(), prompts);
        [found.gain.model, found.gain.baseline, found.gain.circuit]
    };
    let (both, alone) = (value(&[short.clone(), long.clone()]), [value(&[short]), value(&[long])]);
    for (at, both) in both.into_iter().enumerate() {
        assert!((both - (alone[0][at] + alone[1][at]) / 2.0).abs() < 1e-5, "{at}: {both} {alone:?}");
    }
}

#[test]
fn a_log_probability_is_explained_by_mean_ablation() {
    let prompt = QuestionPrompt { corrupted: None, answer: None, ..prompt(&[4, 5], None) };
    let found = asked(induction_model(), &[prompt]);
    assert_eq!(found.basis.next.last(), Some(&1), "the answer is the model's prediction");
    assert_eq!((found.gain.quantity, found.gain.ablation), (Quantity::LogProbability, Ablation::Mean));
    assert!(heads(&found).contains(&(1, Some(0))), "{:?}", found.sentences);
    assert!((found.gain.model + found.views.lens.loss[2]).abs() < 1e-5);
    assert!(found.components.iter().all(|it| it.interval.is_none()), "a single prompt has no interval");
    // The induction head attends to the token after the first occurrence of the last one.
    let head = found.components.iter().find(|it| (it.layer, it.head) == (1, Some(0))).unwrap();
    let [AttendedToken { position, weight, chance }, ..] = head.attends[..] else { panic!("{head:?}") };
    assert!(position == 2 && weight > 0.5 && (chance - 1.0 / 8.0).abs() < 1e-6, "{head:?}");
    let sentence = format!(
        "Layer 1 head 0 attends from token 0 (position 7) to token 1 (position 2, weight {weight:.2})"
    );
    assert!(found.sentences.iter().any(|it| it.starts_with(&sentence)), "{sentence}: {:?}", found.sentences);
}

#[test]
fn answers_without_preference_are_not_explained() {
    let exchanged = QuestionPrompt { answer: Some(3), ..prompt(&[], Some(1)) };
    let reason = asked(induction_model(), &[exchanged]).gain.no_circuit.unwrap();
    assert!(reason.contains("may be due to chance"), "{reason}");
    // The prompt decides the answer, but not between these tokens.
    let equal =
        QuestionPrompt { against: Some(3), corrupted: Some(vec![6, 0, 1, 4, 3, 0]), ..prompt(&[], None) };
    let reason = asked(induction_model(), &[equal]).gain.no_circuit.unwrap();
    assert!(reason.contains("a difference of 0.5 logits"), "{reason}");
}

#[test]
fn answers_of_untrained_weights_are_not_explained() {
    for seed in 0..100 {
        let Model::Decoder(model) = randomly_initialised(seed) else { panic!("a decoder") };
        for (tokens, against) in
            [(vec![3, 1, 4, 1, 5], None), (vec![0, 1, 2, 3, 0], Some(3)), (vec![6, 2], None)]
        {
            let prompt = QuestionPrompt { tokens, answer: None, against, corrupted: None, documents: None };
            // Predicted answers are not compared with themselves.
            if Question::of_prompts(&model, std::slice::from_ref(&prompt), &Default::default()).is_err() {
                assert_eq!(against, Some(3));
                continue;
            }
            let found = asked(model.clone(), std::slice::from_ref(&prompt));
            assert!(found.gain.no_circuit.is_some(), "seed {seed}: {:?}", found.sentences);
            // A user may name the token that the model predicts.
            let answer = found.basis.next.last().copied();
            let found = asked(model.clone(), &[QuestionPrompt { answer, ..prompt }]);
            assert!(found.gain.no_circuit.is_some(), "seed {seed}: {:?}", found.sentences);
        }
    }
}

#[test]
fn prompts_without_a_contrast_are_refused() {
    let [with, without] = [prompt(&[], Some(3)), prompt(&[], None)];
    let error = Question::of_prompts(&induction_model(), &[with, without], &Default::default()).unwrap_err();
    assert_eq!(error.to_string(), "1 of 2 prompts has a token to compare with; give it for all or for none");
    // Mean ablation over equal tokens changes nothing.
    let prompt = QuestionPrompt {
        tokens: vec![6, 6],
        answer: Some(1),
        against: None,
        corrupted: None,
        documents: None,
    };
    let error = Question::of_prompts(&induction_model(), &[prompt], &Default::default()).unwrap_err();
    assert!(error.to_string().starts_with("the prompt repeats a single token"), "{error}");
}

#[test]
fn repeated_tokens_reveal_the_induction_head() {
    let vocabulary = crate::data::Vocabulary::integers(VOCAB, &[]);
    assert!(repeated_sequences(&vocabulary, VOCAB + 1, 0).is_none());
    let samples = repeated_sequences(&vocabulary, 5, 0).unwrap();
    assert_eq!(samples, repeated_sequences(&vocabulary, 5, 0).unwrap());
    for sample in &samples {
        assert_eq!(sample.inputs[..4], sample.inputs[5..]);
        assert_eq!(counted_targets(sample), sample.inputs[1..5]);
    }
    let origin = ExplanationContext { repeated: Some(5), ..ExplanationContext::default() };
    let found = explain(&Model::Decoder(induction_model()), &samples, origin, &Default::default()).unwrap();
    let repeated = found.repeated.clone().unwrap();
    assert!(repeated.sequences.iter().eq(samples.iter().map(|sample| &sample.inputs)));
    assert!(repeated.second_copy < repeated.first_copy - 1.0, "{repeated:?}");
    let of = |kind| repeated.heads.iter().find(|head| head.kind == kind).map(|head| (head.layer, head.head));
    assert_eq!((of(HeadKind::Induction), of(HeadKind::PreviousToken)), (Some((1, 0)), Some((0, 1))));
    for head in &repeated.heads {
        let [low, high] = head.interval.unwrap();
        assert!(low <= head.weight + 1e-9 && head.weight <= high + 1e-9, "{head:?}");
        assert_eq!(head.queries, 8 * if head.kind == HeadKind::PreviousToken { 8 } else { 4 });
        assert!(
            ((low + high) / 2.0 - head.weight).abs() < 1e-6,
            "the mean of the sequences is the score: {head:?}"
        );
    }
    let (question, device) = (Question::default(), Default::default());
    let found = found
        .with_random_effects(&randomly_initialised(1), (&samples, &question), &Unwatched, &device)
        .unwrap();
    let random = found.random_effects.as_ref().unwrap();
    assert_eq!((random.components, random.targets), (6, 8 * 4));
    let [first, second] = repeated.copy_intervals.unwrap();
    assert!(second[0] <= repeated.second_copy && repeated.second_copy <= second[1] && second[1] < first[0]);
    let [first, second] = random.copies.unwrap();
    assert!((first - second).abs() < 0.5, "random weights do not copy: {first} {second}");
    // Without layers, the prediction of random weights is as good.
    let [full, circuit, ablated] = random.circuit.unwrap();
    assert!((full - circuit).abs() < 0.5 && (full - ablated).abs() < 0.5, "{:?}", random.circuit);
    let (connections, kinds) = (random.connections.unwrap(), &random.kinds);
    assert!(connections.tested > 0 && connections.largest < 0.5, "{connections:?}");
    assert!(kinds.len() == 4 && kinds.iter().all(|(_, score)| (-0.5..0.5).contains(score)), "{kinds:?}");
    let last = found.sentences.last().unwrap();
    assert!(last.starts_with("With random weights, the largest scores of heads are: induction 0."), "{last}");
    assert_eq!(heads(&found), [(0, Some(1)), (1, Some(0))], "{:?}", found.sentences);
}

#[test]
fn the_smallest_circuit_is_certified() {
    let prompts = [prompt(&[], Some(3)), prompt(&[4, 5], Some(3))];
    let (samples, question) =
        Question::of_prompts(&induction_model(), &prompts, &Default::default()).unwrap();
    let origin = ExplanationContext { question: question.clone(), certifies: true, ..Default::default() };
    let found = explain(&Model::Decoder(induction_model()), &samples, origin, &Default::default()).unwrap();
    assert_eq!(heads(&found), [(0, Some(1)), (1, Some(0))]);
    // The empty set and each of the six components alone.
    assert_eq!(found.gain.smaller_sets, Some(7));
    assert!(
        found.sentences[1].starts_with("No smaller circuit exists at this tolerance: all 7 smaller sets")
    );
    let greedy = asked(induction_model(), &prompts);
    assert_eq!(greedy.gain.smaller_sets, None);
    assert!(greedy.sentences[1].contains("greedy"), "{:?}", greedy.sentences);

    // A larger set is replaced by the smallest one.
    let model = induction_model();
    let bench = Bench::new(&model, &samples, &question, &Default::default()).unwrap();
    let full = found.gain.model;
    let kept = bench.replacements.iter().map(|(site, _)| (*site, None)).collect();
    let larger = Pruned { kept, value: full, smaller_sets: None };
    let smallest = bench.certify(larger, full, 0.1).unwrap();
    assert_eq!((smallest.kept.len(), smallest.smaller_sets), (2, Some(7)));
    assert!(check_certifiable(&silent(8)).unwrap_err().to_string().contains("the model has 24 components"));
}

#[test]
fn short_repetitions_reveal_no_heads_of_untrained_weights() {
    let vocabulary = crate::data::Vocabulary::integers(VOCAB, &[]);
    for (seed, length) in (0..4).flat_map(|seed| [2, 3, 6].map(|length| (seed, length))) {
        let samples = repeated_sequences(&vocabulary, length, seed).unwrap();
        let origin = ExplanationContext { repeated: Some(length), ..ExplanationContext::default() };
        let found = explain(&randomly_initialised(seed), &samples, origin, &Default::default()).unwrap();
        assert_eq!(found.repeated.unwrap().heads, [], "{length} tokens");
    }
}

fn counted_targets(sample: &Sample) -> Vec<u32> {
    let targets = sample.targets.iter().zip(&sample.roles);
    targets.filter(|(_, role)| **role != Role::Padding).map(|(&target, _)| target).collect()
}
