//! Tests of the pictures and the page of a study.

use super::*;
use crate::draw::color::{BACKGROUND, mix};
use crate::draw::{WIDTH, raster};

pub(crate) fn study(floor: Option<f64>) -> Study {
    let text = |text: &str| SettingValue { text: text.to_string(), number: None };
    let trial = |number: usize, ended, loss: Option<f64>, (rate, position): (f64, &str)| Trial {
        number,
        stage: None,
        setting: [
            ("training.learning_rate".to_string(), rate_of(rate)),
            ("model.position".to_string(), text(position)),
        ]
        .into(),
        ended,
        loss,
        accuracy: loss.map(|loss| 1.0 / (1.0 + loss)),
        tokens: 700,
        operations: 1e9 * (number + 1) as f64,
        curve: (1..=7)
            .map(|step| (f64::from(step) * 100.0, loss.unwrap_or(2.0) + 2.0 / f64::from(step)))
            .collect(),
    };
    Study {
        name: "golden".to_string(),
        keys: vec!["training.learning_rate".to_string(), "model.position".to_string()],
        learning_rate: Some("training.learning_rate".to_string()),
        trials: vec![
            trial(2, TrialEnd::Completed, Some(0.6), (1e-3, "alibi")),
            trial(0, TrialEnd::EarlyStopped, Some(0.9), (1e-4, "<b>")),
            trial(3, TrialEnd::Pruned, Some(1.4), (1e-4, "alibi")),
            trial(1, TrialEnd::Diverged, None, (1.0, "rotary")),
        ],
        floor,
        seeds: 1,
    }
}

/// Returns a learning rate as a value of a setting.
pub(crate) fn rate_of(rate: f64) -> SettingValue {
    SettingValue { text: rate.to_string(), number: Some(rate) }
}

/// Returns the parts of the study that the tests need, in the format of the page's script.
fn result(study: &Study) -> Value {
    let trial = |trial: &Trial| {
        let setting = trial.setting.iter().map(|(key, value)| (key.clone(), json!(value.text)));
        json!({"setting": Value::Object(setting.collect()), "curve": trial.curve})
    };
    json!({"trials": study.trials.iter().map(trial).collect::<Vec<_>>()})
}

fn vector(picture: &Picture) -> String {
    picture.to_svg().unwrap()
}

fn pixels(picture: &Picture, color: RGBColor) -> usize {
    let raster = raster(picture, 1).unwrap();
    let (width, height) = raster.dimensions();
    let clear = |x, y| raster.get_pixel(x, y).0 == [255; 3];
    assert!((0..width).all(|x| clear(x, 0) && clear(x, height - 1)), "{} is cut at its edge", picture.name);
    assert!((0..height).all(|y| clear(0, y) && clear(width - 1, y)), "{} is cut at its edge", picture.name);
    raster.pixels().filter(|pixel| pixel.0 == [color.0, color.1, color.2]).count()
}

#[test]
fn trials_above_the_frame_follow_its_edge() {
    for floor in [None, Some(0.5)] {
        let mut study = study(floor);
        study.trials.truncate(2);
        // Enough points to put the curve of the other trial outside the frame.
        study.trials[0].curve =
            (1..=700).map(|step| (f64::from(step), 1.0 + 1.0 / f64::from(step))).collect();
        study.trials[1].ended = TrialEnd::Pruned;
        let drawn = |curve: &[(f64, f64)]| {
            let mut study = study.clone();
            study.trials[1].curve = curve.to_vec();
            pixels(&trials::picture(&study, WIDTH), pale(BLUE))
        };
        let none = drawn(&[]);
        let (one, several) = (drawn(&[(350.0, 9.0)]), drawn(&[(100.0, 9.0), (600.0, 8.0)]));
        assert!(one > none && several > one + 100, "{none}, {one}, {several}");
    }
}

#[test]
fn failed_trials_without_validation_have_a_cross() {
    let mut study = study(Some(0.5));
    let grey = format!("stroke=\"#{:02X}{:02X}{:02X}\"", MUTED.0, MUTED.1, MUTED.2);
    let strokes = |study: &Study| vector(&trials::picture(study, WIDTH)).matches(&grey).count();
    let drawn = strokes(&study);
    study.trials[3].curve.clear();
    assert_eq!(strokes(&study), drawn, "the number of crosses is the same");
}

#[test]
fn best_trials_are_highlighted_and_curves_are_limited() {
    let mut study = study(None);
    let (finished, grey) = (mix(BLUE, pale(BLUE), 0.25), mix(MUTED, BACKGROUND, 0.6));
    let worse = &study.trials[1].clone();
    let copies = |count: usize| {
        (0..count).map(move |i| Trial {
            number: 10 + i,
            curve: shifted(worse, i as f64 * 0.01),
            ..worse.clone()
        })
    };
    study.trials.truncate(1);
    study.trials.extend(copies(38));
    assert!(pixels(&trials::picture(&study, WIDTH), grey) < 20, "only edges of other colours");
    study.trials.push(worse.clone());
    assert!(pixels(&trials::picture(&study, WIDTH), grey) > 500);
    let highlighted = pixels(&trials::picture(&study, WIDTH), finished);
    study.trials.extend(copies(5_000));
    let picture = trials::picture(&study, WIDTH);
    assert!(pixels(&picture, VERMILION) > 500 && pixels(&picture, finished) > highlighted / 2);
    let svg = vector(&picture);
    assert!(svg.contains("of 5,040 trials") && svg.contains("only the best 400 trials are drawn"));
    assert!(svg.contains("others") && svg.matches("<polyline").count() < 700);
    let html = StudyPage { result: result(&study), ..StudyPage::default() }.html(&study);
    assert!(html.contains("\"highlighted\":8") && html.contains("\"curve\":[]"));
}

/// Returns a trial's curve, shifted up by `by`.
fn shifted(trial: &Trial, by: f64) -> Vec<(f64, f64)> {
    trial.curve.iter().map(|&(tokens, loss)| (tokens, loss + by)).collect()
}

#[test]
fn titles_name_the_first_of_several_seeds() {
    let mut study = study(None);
    let names_seed = |study: &Study| vector(&trials::picture(study, WIDTH)).contains("(first seed)");
    assert!(!names_seed(&study));
    study.seeds = 3;
    assert!(names_seed(&study));
    study.trials.truncate(1);
    assert!(vector(&trials::picture(&study, WIDTH)).contains("validation loss of 1 trial (first seed)"));
}

#[test]
fn svg_pictures_contain_their_labels() {
    let mut study = study(Some(0.5));
    let svg = vector(&effects::picture(&study, WIDTH));
    for text in [
        "golden: loss by searched key",
        "trial 002",
        "training.learning_rate",
        "&lt;b&gt;",
        "alibi",
        "pruned",
    ] {
        assert!(svg.contains(text), "{text}");
    }
    let svg = vector(&effects::learning_rate(&study, WIDTH).unwrap());
    assert!(svg.contains("0.1000 above the floor") && svg.contains("1e-4"), "{svg}");
    let has_front =
        |study: &Study| vector(&cost::picture(study, WIDTH)).contains("highest accuracy up to this cost");
    assert!(has_front(&study));
    study.trials.truncate(1);
    assert!(!has_front(&study), "one trial makes no line");
    let point = |step| RatePoint { rate: 1e-6 * 1.3f64.powi(step), loss: 3.0, smoothed: 2.9 };
    let points: Vec<RatePoint> = (0..50).map(point).collect();
    let svg =
        vector(&rate_finder("golden", &points, Some([1e-3, 1e-4]), ("the loss is lowest", WIDTH)).unwrap());
    assert!(svg.contains("suggested") && svg.contains("1.0e-4") && svg.contains("the loss is lowest"));
}

#[test]
fn unfinished_trials_are_not_called_pruned() {
    let mut study = study(None);
    study.trials[2].ended = TrialEnd::Unfinished;
    study.trials[3].ended = TrialEnd::Failed;
    for svg in [vector(&trials::picture(&study, WIDTH)), vector(&effects::picture(&study, WIDTH))] {
        assert!(svg.contains("unfinished") && svg.contains("failed"), "{svg}");
        assert!(!svg.contains("pruned") && !svg.contains("diverged"), "{svg}");
    }
}

#[test]
fn single_rate_studies_have_no_rate_picture() {
    let mut study = study(None);
    study.trials.truncate(1);
    assert!(effects::learning_rate(&study, WIDTH).is_none());
}

#[test]
fn study_page_is_self_contained_and_escaped() {
    let mut study = study(Some(0.5));
    study.name = "</title><script>alert(1)</script>{{data}}".into();
    let config = "# </script><img src=x>".to_string();
    let pages = [(2, "trials/002/report.html".to_string())].into();
    let page = StudyPage { result: result(&study), config: config.clone(), pages, ..StudyPage::default() };
    let html = page.html(&study);
    assert!(html.contains("default-src 'none'"));
    assert_eq!(html.matches("://").count(), html.matches("http://www.w3.org/2000/svg").count());
    assert!(html.contains("<title>&lt;/title&gt;&lt;script&gt;alert(1)") && !html.contains("<img"));
    let (_, rest) = html.split_once("<script id=\"data\" type=\"application/json\">").unwrap();
    let data: serde_json::Value = serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap();
    assert_eq!(data["result"]["trials"][1]["setting"]["model.position"], "<b>");
    assert_eq!(
        (&data["pages"]["2"], &data["config"]),
        (&"trials/002/report.html".into(), &config.as_str().into())
    );
}
