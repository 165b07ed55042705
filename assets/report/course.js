// The course of the run: the loss, and below it on the same time axis the scores of all heads.

const { loss, history } = data;
const lossSteps = [...new Set([...loss.training.x, ...loss.validation.x, ...loss.learning_rate.x])].sort((a, b) => a - b);
let lossPlace = null;
let historyPlace = null;

/** The series of the loss chart, as the legend and the reading name them. */
function lossSeries() {
  const noisy = loss.smoothed !== null;
  return [
    { name: "learning rate", key: "learningRate", ...loss.learning_rate, color: "var(--purple)", width: 1.25, right: [0, loss.learning_rate_top] },
    { name: noisy ? "training, single steps" : "training", key: "training", ...loss.training, color: "var(--blue)", width: noisy ? 0.75 : 2, faint: noisy },
    ...(noisy ? [{ name: "smoothed", ...loss.smoothed, color: "var(--blue)", width: 2 }] : []),
    { name: "validation", key: "validation", ...loss.validation, color: "var(--vermilion)", width: 2, dots: loss.validation.x.length <= 60 },
  ].filter((series) => series.x.length > 0);
}

function drawLoss() {
  const floor = loss.floor === null ? [] : [{ x: [0, loss.end], y: [loss.floor, loss.floor], color: "var(--green)", width: 1.5, dash: "6 4" }];
  const faint = (series) => (series.faint ? `color-mix(in srgb, ${series.color} 40%, transparent)` : series.color);
  const curves = [...floor, ...lossSeries().map((series) => ({ ...series, color: faint(series) }))];
  lossPlace = drawChart(at("loss-chart"), { x: [0, loss.end], y: loss.range, title: "loss (nats a token)", curves });
  const entry = (color, text, kind = "", attributes = {}) => {
    const line = element("i", { class: kind });
    line.style.color = color;
    return element("li", attributes, line, text);
  };
  const [right, left] = [true, false].map((side) => lossSeries().filter((series) => (series.right !== undefined) === side));
  at("loss-legend").replaceChildren(
    ...left.map((series) => entry(faint(series), series.name)),
    ...floor.map(() => entry("var(--green)", `floor ${fixed(loss.floor, 4)} nats`, "dashed", { id: "floor", "data-value": loss.floor })),
    ...right.map((series) => entry(series.color, `${series.name} (right axis)`)),
  );
}

/** Reads the loss at the logged step nearest to the cursor. */
function readLoss() {
  const reading = at("loss-reading");
  if (lossSteps.length === 0) return reading.replaceChildren("no step was logged");
  const step = lossSteps[nearest(lossSteps, state.step ?? loss.end)];
  const values = lossSeries().flatMap((series) => {
    const i = series.x[nearest(series.x, step)] === step ? nearest(series.x, step) : -1;
    return i >= 0 && series.key && series.y[i] !== null ? [{ ...series, value: series.y[i] }] : [];
  });
  for (const key of ["training", "validation", "learningRate"]) delete reading.dataset[key];
  reading.dataset.step = step;
  for (const { key, value } of values) reading.dataset[key] = value;
  const text = (series) => `${series.key === "learningRate" ? "learning rate" : series.key} ${series.right ? significant(series.value) : fixed(series.value, 4)}`;
  reading.replaceChildren(`step ${whole(step)}: ${values.reverse().map(text).join(" · ")}`);
  drawCursor(at("loss-chart"), lossPlace, step, values.map(({ value, color, right }) => ({ value, color, range: right })));
}

/** The score whose course is drawn. */
const historyScore = () => history.scores.find((score) => score.key === state.score);

const allHeads = data.layers.flatMap((heads, layer) => Array.from({ length: heads }, (_, head) => ({ layer, head })));

function drawHistory() {
  if (history.steps.length === 0) return;
  const score = historyScore();
  const chosen = ({ layer, head }) => layer === state.layer && head === state.head;
  const ordered = [...allHeads].sort((a, b) => chosen(a) - chosen(b));
  const curves = ordered.map((place) => ({
    x: history.steps,
    y: score.values.map((grid) => grid[place.layer][place.head]),
    color: layerColor(place.layer),
    width: chosen(place) ? 3.5 : allHeads.length > 24 ? 0.8 : 1.4,
  }));
  historyPlace = drawChart(at("history-chart"), { x: [0, loss.end], y: score.range, title: `${score.name} (${score.unit})`, curves });
}

/** Reads the pointed head at the scored step nearest to the cursor. */
function readHistory() {
  if (history.steps.length === 0) return;
  const score = historyScore();
  const i = nearest(history.steps, state.step ?? loss.end);
  const { layer, head } = state.pointed ?? state;
  const value = score.values[i][layer][head];
  const reading = at("history-reading");
  Object.assign(reading.dataset, { step: history.steps[i], layer, head, value });
  reading.replaceChildren(`step ${whole(history.steps[i])}: ${layerHead(layer, head)}, ${score.name} ${fixed(value, score.digits)}`);
  drawCursor(at("history-chart"), historyPlace, history.steps[i], value === null ? [] : [{ value, color: layerColor(layer) }]);
}

/** The head whose curve is nearest to a place of the chart. */
function headAt(x, y) {
  const score = historyScore();
  const grid = score.values[nearest(history.steps, historyPlace.step(x))];
  const away = ({ layer, head }) => (grid[layer][head] === null ? Infinity : Math.abs(historyPlace.y(grid[layer][head]) - y));
  return allHeads.reduce((best, head) => (away(head) < away(best) ? head : best));
}

function startCourse() {
  const lossChart = at("loss-chart");
  lossChart.addEventListener("pointermove", (event) => update({ step: lossPlace.step(offset(event, lossChart).x) }));
  lossChart.addEventListener("pointerdown", (event) => update({ step: lossPlace.step(offset(event, lossChart).x) }));
  lossChart.addEventListener("keydown", (event) => moveStep(event, lossSteps));

  at("history").hidden = history.steps.length === 0;
  if (history.steps.length === 0) return;
  at("score").append(...history.scores.map((score) => element("option", { value: score.key }, score.name)));
  at("score").addEventListener("change", (event) => update({ score: event.target.value }));
  const chart = at("history-chart");
  const point = (event) => {
    const { x, y } = offset(event, chart);
    update({ step: historyPlace.step(x), pointed: headAt(x, y) });
  };
  chart.addEventListener("pointermove", point);
  chart.addEventListener("pointerleave", () => update({ pointed: null }));
  chart.addEventListener("click", (event) => {
    const { x, y } = offset(event, chart);
    update({ ...headAt(x, y), pointed: null });
  });
  chart.addEventListener("keydown", (event) => {
    if (moveStep(event, history.steps)) return;
    const { layer, head } = state.pointed ?? state;
    const now = allHeads.findIndex((place) => place.layer === layer && place.head === head);
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by) {
      event.preventDefault();
      update({ pointed: allHeads[(now + by + allHeads.length) % allHeads.length] });
    } else if (event.key === "Enter" && state.pointed) {
      update({ ...state.pointed, pointed: null });
    }
  });
}

/** Moves the cursor to another of `steps` by a key; whether the key was one of those that do. */
function moveStep(event, steps) {
  const now = nearest(steps, state.step ?? loss.end);
  const far = event.shiftKey ? 10 : 1;
  const next = { ArrowLeft: now - far, ArrowRight: now + far, Home: 0, End: steps.length - 1 }[event.key];
  if (next === undefined || steps.length === 0) return false;
  event.preventDefault();
  update({ step: steps[Math.min(Math.max(next, 0), steps.length - 1)] });
  return true;
}

/** The place of a pointer within an element. */
function offset(event, within) {
  const box = within.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}
