// The page of a run. Everything shown follows from `state`; every control calls `update`.
//
// What a test can hold on to. Ids of controls: `theme` (button); `sample`, `predicted-sample`, `sort`
// and `score` (selects, by number and by key of a score); radio buttons named `layer`, `head`, `view`
// (`matrix`, `tokens`) and `direction` (`to`, `by`). What they show:
//
// - `html[data-ready="true"]` once all is drawn; `html[data-theme]` where the theme is not the system's.
// - `#matrix`: `data-left`, `data-top` and `data-cell` say in CSS pixels where its cells lie, `data-time`
//   how many there are on an axis. `#reading` tells of the link under the cursor: `data-sample`,
//   `data-layer`, `data-head`, `data-query`, `data-key`, `data-query-token`, `data-key-token` and
//   `data-weight`, which is empty where the query cannot see the key.
// - `#tokens > [data-index]`: a token each, with `data-token` and the `data-weight` that lights it.
// - `#thumbnails > button`: a head each in its order, with `data-layer`, `data-head`, `data-value` (of
//   the score sorted by) and `aria-pressed`. `#scores` is the table, `#head-scores` the chosen head's.
// - `#loss-chart` with `#loss-reading`: `data-step`, `data-training`, `data-validation` and
//   `data-learning-rate` as far as they were logged; `#floor` with `data-value`.
// - `#history-chart` with `#history-reading`: `data-step`, `data-layer`, `data-head`, `data-value`.
// - `#predictions > [data-index]`, their class `hit`, `miss` or `unknowable`; `#prediction` tells of one:
//   `data-position`, `data-after`, `data-truth`, `data-truth-probability`, `data-predicted`,
//   `data-probability`.
//
// Tokens in data attributes are the vocabulary's own, not their visible forms. Nothing is global.

const state = {
  sample: 0,
  layer: data.layers.length - 1,
  head: 0,
  query: 0,
  key: 0,
  view: "matrix",
  direction: "to",
  sort: "",
  score: (history.scores.find((score) => score.key === "induction") ?? history.scores[0])?.key ?? "",
  step: null, // the cursor of both charts; none before it is moved
  pointed: null, // the head whose curve is pointed at
  position: 0, // of the prediction that is read
};

/** What is drawn again when a part of the state changes, in this order. */
const views = [
  [["theme", "size"], drawLoss],
  [["theme", "size", "step"], readLoss],
  [["theme", "size", "score", "layer", "head"], drawHistory],
  [["theme", "size", "score", "layer", "head", "step", "pointed"], readHistory],
  [["sample"], drawControls],
  [["layer", "head", "sample", "sort", "view", "score", "direction"], markControls],
  [["sample"], drawPredictions],
  [["sample", "position"], readPrediction],
  [["layer", "head"], drawChosen],
  [["sort", "layer", "head"], drawScoreTable],
];

/** The same for what shows maps; a sample without them is passed by. */
const mapViews = [
  [["sample"], drawThumbnails],
  [["sample", "sort"], orderThumbnails],
  [["layer", "head"], markThumbnail],
  [["sample"], drawTokens],
  [["theme", "size", "view", "sample", "layer", "head", "query", "key"], () => state.view === "matrix" && drawMatrix()],
  [["sample", "layer", "head", "query", "key", "view", "direction"], readCell],
  [["sample", "layer", "head", "query", "direction", "view"], () => state.view === "tokens" && lightTokens()],
];

/** Changes the state and draws what depends on it. */
function update(changes) {
  const next = { ...state, ...changes };
  if (next.layer !== state.layer) next.head = Math.min(next.head, data.layers[next.layer] - 1);
  if (next.sample !== state.sample) {
    const last = Math.max(data.samples[next.sample].time - 1, 0);
    Object.assign(next, { query: Math.min(next.query, last), key: Math.min(next.key, last), position: 0 });
  }
  const changed = Object.keys(next).filter((part) => JSON.stringify(next[part]) !== JSON.stringify(state[part]));
  Object.assign(state, next);
  draw(changed);
}

function draw(changed) {
  const touched = ([parts]) => parts.some((part) => changed.includes(part));
  for (const [, view] of views.filter(touched)) view();
  if (data.samples[state.sample].time > 0) for (const [, view] of mapViews.filter(touched)) view();
}

/** Says what the explorer shows of a sample, and hides it where its maps are left out. */
function drawControls() {
  const { time, inputs } = data.samples[state.sample];
  for (const id of ["explorer", "thumbnails"]) at(id).hidden = time === 0;
  const note = at("maps-note");
  note.hidden = time === inputs.length;
  note.replaceChildren(time === 0
    ? "The maps of this sequence are left out, to keep the page small; its predictions stand below."
    : `The maps show the first ${whole(time)} of ${whole(inputs.length)} tokens, to keep the page small.`);
}

/** Brings the controls in line with the state. */
function markControls() {
  for (const id of ["sample", "predicted-sample"]) at(id).value = state.sample;
  at("sort").value = state.sort;
  at("score").value = state.score;
  choices("layers", "layer", data.layers.length, state.layer);
  choices("heads", "head", data.layers[state.layer], state.head);
  at("matrix-view").hidden = state.view !== "matrix";
  at("tokens-view").hidden = state.view !== "tokens";
}

/** Radio buttons for 0 to `count`, made again only when their number changes. */
function choices(id, name, count, chosen) {
  const box = at(id);
  if (box.querySelectorAll("input").length !== count) {
    box.querySelectorAll("label").forEach((label) => label.remove());
    for (let number = 0; number < count; number++) {
      const input = element("input", { type: "radio", name, value: number, "aria-label": `${name} ${number}` });
      box.append(element("label", {}, input, element("span", {}, String(number))));
    }
  }
  box.querySelectorAll("input")[chosen].checked = true;
}

function startControls() {
  for (const id of ["sample", "predicted-sample"]) {
    at(id).append(...data.samples.map((sample, i) => element("option", { value: i }, sample.name)));
    at(id).addEventListener("change", (event) => update({ sample: Number(event.target.value) }));
  }
  for (const id of ["layers", "heads"]) {
    at(id).addEventListener("change", (event) => update({ [event.target.name]: Number(event.target.value) }));
  }
  at("views").addEventListener("change", (event) => {
    // The token view reads the strongest link of its token.
    const key = event.target.value === "tokens" ? strongestKey(state.sample, state.layer, state.head, state.query) : state.key;
    update({ view: event.target.value, key });
  });
  followTheme(() => draw(["theme"]));
}

function drawSummary() {
  at("run").append(data.run);
  const counted = (number, thing) => `${number} ${thing}${number === 1 ? "" : "s"}`;
  at("lead").append(`${counted(data.layers.length, "layer")}, ${counted(allHeads.length, "head")}`);
  at("summary").append(...data.summary.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  // The page of an input alone has neither.
  at("summary-title").closest("section").hidden = data.summary.length === 0;
  at("course-title").closest("section").hidden = data.summary.length === 0 && lossSteps.length === 0;
  if (data.samples.some((sample) => sample.source !== undefined)) at("attention-title").replaceChildren("The decoder's self-attention");
  at("config").append(data.config);
  at("precision").append(`Weights are kept to the nearest ${data.steps}th, other numbers with seven digits. Colours of a sequence's maps have one scale.`);
}

// The head with the highest induction score is what most look for first.
const inductive = scoreOf("induction");
if (inductive) {
  const value = ({ layer, head }) => inductive.values[layer][head] ?? -Infinity;
  Object.assign(state, allHeads.reduce((best, place) => (value(place) > value(best) ? place : best)));
}
state.query = data.samples[state.sample].time - 1;
state.key = strongestKey(state.sample, state.layer, state.head, state.query);

drawSummary();
startCourse();
startControls();
startMatrix();
startTokens();
startHeads();
startPredictions();
draw(["size", ...Object.keys(state)]);
followWidth(() => draw(["size"]));
document.documentElement.dataset.ready = "true";
