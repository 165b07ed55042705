//! Explanations that end early.

use std::cell::Cell;

use super::*;

/// Ends an explanation at a stage, after a number of further questions whether it ends.
struct Until(ExplanationStage, Cell<usize>);

impl Watch for Until {
    fn report(&self, _stage: ExplanationStage, done: usize, total: usize) {
        assert!(done <= total, "{done} of {total}");
    }

    fn ends(&self, stage: ExplanationStage) -> bool {
        if stage < self.0 {
            return false;
        }
        let left = self.1.get();
        self.1.set(left.saturating_sub(1));
        left == 0
    }
}

fn explained_until(layers: usize, stage: ExplanationStage, questions: usize) -> Explanation {
    let mut model = silent(layers);
    set_head(&mut model, [0, 1], [POSITION, POSITION, TIME], 1, PREVIOUS);
    set_head(&mut model, [1, 0], [TOKEN, PREVIOUS, VOCAB], 0, NEXT);
    let samples: Vec<_> = [3, 5].into_iter().flat_map(motifs).collect();
    let watch = Until(stage, Cell::new(questions));
    let context = ExplanationContext { watch: Some(&watch), ..ExplanationContext::default() };
    let found = explain(&Model::Decoder(model), &samples, context, &Default::default()).unwrap();
    let stored = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<Explanation>(&stored).unwrap().cut, found.cut, "it can be read again");
    found
}

#[test]
fn an_early_end_keeps_confirmed_components() {
    let complete = explained_induction();
    assert_eq!((&complete.cut, complete.connections.patched), (&None, complete.connections.possible));
    let found = explained_until(2, ExplanationStage::Connections, 0);
    assert_eq!(found.components, complete.components);
    assert!(found.edges.is_empty() && found.views.patching.is_none());
    let stages = vec![ExplanationStage::Connections, ExplanationStage::Lens, ExplanationStage::Patching];
    assert_eq!(found.cut, Some(Cut { stages, unconfirmed: 0 }));
    let sentence = "The search ended early, so not all connections were ablated; the logit lens is missing; activation patching was \
         skipped.";
    assert!(found.sentences.iter().any(|it| it == sentence), "{:?}", found.sentences);
    let tested = format!("0 of {} possible connections between", complete.connections.possible);
    assert!(found.sentences.iter().any(|it| it.starts_with(&tested)), "{:?}", found.sentences);
}

#[test]
fn an_interrupted_search_reports_single_ablations() {
    // Of 24 components, the 16 with the largest estimates are first ablated alone.
    let found = explained_until(8, ExplanationStage::Components, 16);
    assert_eq!((found.components.len(), found.circuit_components()), (16, 24), "{:?}", found.sentences);
    assert!(found.sentences[0].starts_with("It is unknown which components"), "{:?}", found.sentences);
    let cut = found.cut.unwrap();
    assert_eq!(cut.stages[..2], [ExplanationStage::Components, ExplanationStage::SingleAblations]);
    assert!(
        found.components[0].ablated > found.gain.model + 1.0
            && found.components[0].minimality.without.is_none()
    );
    let nothing = explained_until(8, ExplanationStage::Components, 0);
    assert!(nothing.gain.no_circuit.unwrap().contains("allow it more time") && nothing.components.is_empty());
}
