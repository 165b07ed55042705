//! Tests of the drawing of a circuit.

use super::*;

#[test]
fn lines_do_not_pass_behind_boxes() {
    let component = |layer: usize, id: ComponentId| Component {
        layer,
        id,
        kinds: Vec::new(),
        change: 0.1,
        is_harmful: false,
    };
    let of_layer = |layer: usize| {
        let heads = (0..=(layer * 7 % 9)).map(move |head| component(layer, ComponentId::Head(head)));
        heads.chain([component(layer, ComponentId::FeedForward)])
    };
    let circuit =
        Circuit { components: (0..30).flat_map(of_layer).collect(), gain: 1.0, ..Circuit::default() };
    let (mut rows, _) = circuit.rows(900.0);
    let areas: Vec<Rect> = rows.iter().flat_map(|row| row.boxes.iter().map(|(_, area)| *area)).collect();
    for first in 0..rows.len() {
        for last in first + 1..rows.len() {
            let (from, to) = (rows[first].boxes[0].1, rows[last].boxes[0].1);
            let line =
                route((from.center().0, from.top), (to.center().0, to.bottom()), &mut rows[first + 1..last]);
            for step in 0..=1_000 * (line.len() - 1) {
                let (part, share) = (step / 1_000, (step % 1_000) as f64 / 1e3);
                let [a, b] = [line[part], line[(part + 1).min(line.len() - 1)]];
                let (x, y) = (a.0 + share * (b.0 - a.0), a.1 + share * (b.1 - a.1));
                let is_behind = |area: &Rect| {
                    x > area.left && x < area.left + area.width && y > area.top && y < area.bottom()
                };
                assert!(!areas.iter().any(is_behind), "{first} to {last}: {x} {y}");
            }
        }
    }
}
