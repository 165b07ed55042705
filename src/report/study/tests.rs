//! The pictures and the page of a study: what they show, and what they refuse.

use super::*;
use crate::report::picture::Picture;
use crate::report::render;

pub(crate) fn study(floor: Option<f64>) -> StudyResult {
    let trial = |number: usize, ended, loss: Option<f64>, values: [Value; 2]| StudyTrial {
        trial: number,
        stage: None,
        values: values.to_vec(),
        ended,
        loss,
        loss_spread: None,
        accuracy: loss.map(|loss| 1.0 / (1.0 + loss)),
        train_spread: Some(0.01),
        spikes: Some(1),
        parameters: 1_000 * (number + 1),
        steps: 70,
        seconds: 1.5,
        operations: 1e9 * (number + 1) as f64,
        curve: (1..=7)
            .map(|step| (f64::from(step) * 100.0, loss.unwrap_or(2.0) + 2.0 / f64::from(step)))
            .collect(),
    };
    let rate = Value::Number;
    let name = |name: &str| Value::Name(name.to_string());
    StudyResult {
        study: "golden".to_string(),
        keys: vec!["training.learning_rate".to_string(), "model.position".to_string()],
        trials: vec![
            trial(2, TrialEnding::Finished, Some(0.6), [rate(1e-3), name("alibi")]),
            trial(0, TrialEnding::Finished, Some(0.9), [rate(1e-4), name("<b>")]),
            trial(3, TrialEnding::Pruned, Some(1.4), [rate(1e-4), name("alibi")]),
            trial(1, TrialEnding::Diverged, None, [rate(1.0), name("rotary")]),
        ],
        floor,
        seeds: 1,
    }
}

fn vector(picture: &Picture) -> String {
    render::vector(&picture.canvas, picture.size()).unwrap()
}

fn pixels(picture: &Picture, color: RGBColor) -> usize {
    let raster = render::raster(&picture.canvas, picture.size(), 1).unwrap();
    let (width, height) = (raster.width as usize, raster.height as usize);
    let at = |x: usize, y: usize| &raster.rgb[(y * width + x) * 3..][..3];
    let clear = |x, y| at(x, y) == [255, 255, 255];
    assert!((0..width).all(|x| clear(x, 0) && clear(x, height - 1)), "{} runs over its edge", picture.name);
    assert!((0..height).all(|y| clear(0, y) && clear(width - 1, y)), "{} runs over its edge", picture.name);
    raster.rgb.chunks_exact(3).filter(|pixel| *pixel == [color.0, color.1, color.2]).count()
}

#[test]
fn the_best_trial_stands_out_in_every_picture_and_what_was_given_up_is_told_apart() {
    for floor in [None, Some(0.5)] {
        let study = study(floor);
        let counts = |color| {
            [
                pixels(&trial_curves(&study), color),
                pixels(&key_effects(&study), color),
                pixels(&learning_rate(&study).unwrap(), color),
                pixels(&cost(&study), color),
            ]
        };
        assert!(counts(VERMILION).into_iter().all(|count| count > 40), "{:?}", counts(VERMILION));
        assert!(counts(pale(BLUE)).into_iter().all(|count| count > 5), "{:?}", counts(pale(BLUE)));
        let mut without = study.clone();
        without.trials.truncate(2);
        let (few, many) =
            (pixels(&trial_curves(&without), pale(BLUE)), pixels(&trial_curves(&study), pale(BLUE)));
        // The edges of other colours have a few pixels of it.
        assert!(8 * few < many, "nothing was pruned: {few} of {many}");
    }
}

#[test]
fn a_trial_that_lies_above_the_frame_as_a_whole_is_drawn_along_its_edge() {
    let mut study = study(None);
    study.trials.truncate(2);
    // So many points that those of the trial are beyond the frame.
    study.trials[0].curve = (1..=700).map(|step| (f64::from(step), 1.0 + 1.0 / f64::from(step))).collect();
    study.trials[1].ended = TrialEnding::Pruned;
    let drawn = |curve: &[(f64, f64)]| {
        let mut study = study.clone();
        study.trials[1].curve = curve.to_vec();
        pixels(&trial_curves(&study), pale(BLUE))
    };
    let none = drawn(&[]);
    let (one, several) = (drawn(&[(350.0, 9.0)]), drawn(&[(100.0, 9.0), (600.0, 8.0)]));
    assert!(one > none && several > one + 100, "{none}, {one}, {several}");
}

#[test]
fn curves_of_several_seeds_say_whose_they_are() {
    let mut study = study(None);
    let says = |study: &StudyResult| vector(&trial_curves(study)).contains("of the first seed");
    assert!(!says(&study));
    study.seeds = 3;
    assert!(says(&study));
}

#[test]
fn pictures_say_in_text_what_they_show() {
    let study = study(Some(0.5));
    let svg = vector(&key_effects(&study));
    for text in
        ["golden: what each key does", "trial 002", "training.learning_rate", "&lt;b&gt;", "alibi", "pruned"]
    {
        assert!(svg.contains(text), "{text}");
    }
    let svg = vector(&learning_rate(&study).unwrap());
    assert!(svg.contains("0.1000 above the floor") && svg.contains("1e-4"), "{svg}");
    let sweep = SweepCurve {
        run: "golden".to_string(),
        points: (0..50)
            .map(|step| SweepPoint { rate: 1e-6 * 1.3f64.powi(step), loss: 3.0, smoothed: 2.9 })
            .collect(),
        lowest: Some(1e-3),
        suggested: Some(1e-4),
        verdict: "the loss is lowest".to_string(),
    };
    let svg = vector(&sweep.picture().unwrap());
    assert!(svg.contains("suggested") && svg.contains("1.0e-4") && svg.contains("the loss is lowest"));
}

#[test]
fn a_trial_that_is_still_to_go_on_is_not_called_pruned() {
    let mut study = study(None);
    study.trials[2].ended = TrialEnding::Unfinished;
    study.trials[3].ended = TrialEnding::Failed;
    for svg in [vector(&trial_curves(&study)), vector(&key_effects(&study))] {
        assert!(svg.contains("not finished yet") && svg.contains("failed"), "{svg}");
        assert!(!svg.contains("pruned") && !svg.contains("diverged"), "{svg}");
    }
}

#[test]
fn a_study_without_a_loss_is_refused_and_one_without_rates_has_no_such_picture() {
    let folder = tempfile::tempdir().unwrap();
    let mut study = study(None);
    study.trials.drain(..3);
    let page = StudyPage { result: study.clone(), ..Default::default() };
    let said = page.write(&folder.path().join("report.html")).unwrap_err().to_string();
    assert_eq!(said, "a study needs at least one trial with a loss");
    study.keys.remove(0);
    assert!(learning_rate(&study).is_none());
}

#[test]
fn the_page_loads_nothing_and_text_of_a_study_is_data() {
    let mut page =
        StudyPage { result: study(Some(0.5)), config: "# </script><img src=x>".into(), ..Default::default() };
    page.result.study = "</title><script>alert(1)</script>{{data}}".into();
    let html = page.html().unwrap();
    assert!(html.contains("default-src 'none'"));
    assert_eq!(html.matches("://").count(), html.matches("http://www.w3.org/2000/svg").count());
    assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;alert(1)") && !html.contains("<img"));
    let (_, rest) = html.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["result"]["trials"][1]["values"][1], "<b>");
    assert_eq!(data["config"], page.config);
}
