//! Tests of drawing damaged explanations.

use causal_attention_report::WIDTH;

use super::*;
use crate::analysis::circuit::Basis;
use crate::analysis::circuit::tests::explained_induction;
use crate::files::mutations;

#[test]
fn the_explained_positions_set_the_colours_of_attribution() {
    let vocabulary = Vocabulary::integers(7, &[]);
    let mut found = explained_induction();
    let time = found.basis.inputs.len();
    for (index, part) in found.views.attribution.iter_mut().enumerate() {
        part.first = vec![if index == 0 { 40.0 } else { -30.0 }; time];
        part.first[time - 1] = -0.5;
    }
    let drawn = |positions: Vec<usize>| {
        let found = Explanation { basis: Basis { positions, ..found.basis.clone() }, ..found.clone() };
        let tokens: Vec<String> = found.basis.inputs.iter().map(|&id| vocabulary.token(id)).collect();
        let chosen = chosen_positions(&found, time);
        let rows: Vec<_> =
            found.views.attribution.iter().map(|it| (it.part.clone(), &it.first[..])).collect();
        let svg = attribution(("run", WIDTH), &found, &tokens).to_svg().unwrap();
        (scale(&rows, &chosen, time), svg.contains("framed"))
    };
    assert_eq!(drawn(vec![time - 1]), ((0.5, true), true));
    assert_eq!(drawn((0..time).collect()), ((40.0, false), false));
}

#[test]
fn damaged_explanations_are_refused_or_drawn() {
    let vocabulary = Vocabulary::integers(7, &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("circuit.json");
    let original = serde_json::to_value(explained_induction()).unwrap();
    let read = |value: &serde_json::Value| {
        std::fs::write(&path, value.to_string()).unwrap();
        let found = Explanation::read(&path)?.expect("there is a file");
        found.check_tokens(vocabulary.size(), &path).map(|()| found)
    };
    let draw = |found: &Explanation| {
        for picture in pictures(("run", 900.0), found, &vocabulary) {
            picture.to_svg().unwrap();
        }
    };
    draw(&read(&original).unwrap());
    for (key, edited, problem) in
        [("faithfulness", 0.5, "does not match"), ("circuit", -1.0, "loss is negative")]
    {
        let mut value = original.clone();
        value[key] = edited.into();
        if key == "circuit" {
            let [loss, baseline] = ["model", "baseline"].map(|key| original[key].as_f64().unwrap());
            value["faithfulness"] = ((baseline - edited) / (baseline - loss)).into();
        }
        let error = read(&value).unwrap_err().to_string();
        assert!(error.contains(problem), "{key}: {error}");
    }
    let (mut drawn, mut refused) = (0, 0);
    for (mutation, damaged) in mutations(&original) {
        match read(&damaged) {
            Ok(found) => {
                // Pictures do not show the most likely tokens.
                if !mutation.contains("/top/") {
                    draw(&found);
                }
                drawn += 1;
            }
            Err(error) => {
                assert!(matches!(error, crate::Error::File { .. }), "{mutation}: {error}");
                refused += 1;
            }
        }
    }
    assert!(drawn > 20 && refused > 100, "{drawn} drawn, {refused} refused");
}
