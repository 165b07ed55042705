// The training curves: the loss and, below it on the same step axis, the scores of all heads.

const { history } = data;
/** Converts a list of points to the coordinates of a curve. */
const series = (points) => ({ x: points.map(({ step }) => step), y: points.map(({ value }) => value) });
const loss = {
  training: series(data.loss.training),
  smoothed: series(data.smoothed),
  objective: series(data.loss.objective ?? []),
  validation: series(data.loss.validation),
  rate: series(data.loss.learning_rate),
  floor: data.loss.floor,
  diverged: data.loss.diverged ?? null,
};
const scoredSteps = history.map(({ step }) => step);
const lossSteps = [...new Set([loss.training, loss.validation, loss.rate].flatMap(({ x }) => x))].sort((a, b) => a - b);
loss.end = Math.max(1, lossSteps.at(-1) ?? 1, scoredSteps.at(-1) ?? 1, loss.diverged ?? 1, ...data.loss.epoch_ends.slice(-1));
let lossScales = null;
let historyScales = null;

/**
 * Returns the series of the loss chart, with their names in the legend and the readout.
 *
 * @returns {any[]}
 */
function lossSeries() {
  const isSmoothed = loss.smoothed.x.length > 0;
  return [
    { name: "learning rate", key: "learningRate", ...loss.rate, color: "var(--purple)", width: 1.25, right: [0, data.rates_end] },
    { name: isSmoothed ? "training, individual steps" : "training", key: "training", ...loss.training, color: "var(--blue)", width: isSmoothed ? 0.75 : 2, faint: isSmoothed },
    ...(isSmoothed ? [{ name: data.window ? `smoothed over ${integer(data.window)} steps${data.smoothed_is_clipped ? ` after clipping at ${fixed(data.loss_range[1], 2)}` : ""}` : "smoothed", ...loss.smoothed, color: "var(--blue)", width: 2 }] : []),
    { name: "training objective (with label smoothing)", key: "objective", ...loss.objective, color: "var(--muted)", width: 1 },
    { name: "validation", key: "validation", ...loss.validation, color: "var(--vermilion)", width: 2, dots: loss.validation.x.length <= 60 },
  ].filter((series) => series.x.length > 0);
}

function drawLoss() {
  const floor = loss.floor === null ? [] : [{ x: [0, loss.end], y: [loss.floor, loss.floor], color: "var(--green)", width: 1.5, dash: "6 4" }];
  const faint = (series) => (series.faint ? `color-mix(in srgb, ${series.color} 40%, transparent)` : series.color);
  const diverged = loss.diverged === null ? [] : [{ x: [loss.diverged, loss.diverged], y: data.loss_range, color: "var(--muted)", width: 1.5, dash: "6 4" }];
  const curves = [...floor, ...diverged, ...lossSeries().map((series) => ({ ...series, color: faint(series) }))];
  lossScales = drawChart(at("loss-chart"), { x: [0, loss.end], y: data.loss_range, title: "loss (nats per token)", curves });
  const entry = (color, text, kind = "", attributes = {}) => {
    const line = element("i", { class: kind });
    line.style.color = color;
    return element("li", attributes, line, text);
  };
  const [right, left] = [true, false].map((side) => lossSeries().filter((series) => (series.right !== undefined) === side));
  at("loss-legend").replaceChildren(
    ...left.map((series) => entry(faint(series), series.name)),
    ...floor.map(() => entry("var(--green)", `floor ${fixed(loss.floor, 4)} nats`, "dashed", { id: "floor", "data-value": loss.floor })),
    ...diverged.map(() => entry("var(--muted)", `diverged at step ${integer(loss.diverged)}`, "dashed", { id: "diverged", "data-step": loss.diverged })),
    ...right.map((series) => entry(series.color, `${series.name} (right axis)`)),
  );
}

/** Shows the loss at the logged step nearest to the cursor. */
function readLoss() {
  const reading = at("loss-reading");
  if (lossSteps.length === 0) return reading.replaceChildren("no step was logged");
  const step = lossSteps[nearest(lossSteps, state.step ?? loss.end)];
  const values = lossSeries().flatMap((series) => {
    const i = series.x[nearest(series.x, step)] === step ? nearest(series.x, step) : -1;
    return i >= 0 && series.key && series.y[i] !== null ? [{ ...series, value: series.y[i] }] : [];
  });
  for (const key of ["training", "objective", "validation", "learningRate"]) delete reading.dataset[key];
  reading.dataset.step = step;
  for (const { key, value } of values) reading.dataset[key] = value;
  const text = (series) => `${series.key === "learningRate" ? "learning rate" : series.key} ${series.right ? significant(series.value) : fixed(series.value, 4)}`;
  reading.replaceChildren(`step ${integer(step)}: ${values.reverse().map(text).join(" · ")}`);
  drawCursor(at("loss-chart"), lossScales, step, values.map(({ value, color, right }) => ({ value, color, range: right })));
}

const findScore = (key) => data.scores.find((score) => score.key === key);
/** The scores that were measured during the run. */
const historyScores = data.scores.filter(({ key }) => history.some(({ heads }) => heads.flat().some((head) => head[key] !== null)));

/**
 * Returns the axis range of a score. The range includes 0. For attention weights, it ends at 1 if any weight exceeds
 * 0.5.
 */
function scoreRange(score, values) {
  const known = values.filter((value) => value !== null);
  const [low, high] = [Math.min(0, ...known), known.reduce((largest, value) => Math.max(largest, value), 0)];
  const start = low < 0 ? -roundUp(-low) : 0;
  return [start, score.is_weight && high > 0.5 ? Math.max(high, 1) : high === 0 && start < 0 ? 0 : roundUp(high)];
}

const allHeads = data.layers.flatMap((heads, layer) => Array.from({ length: heads }, (_, head) => ({ layer, head })));

function drawHistory() {
  if (historyScores.length === 0) return;
  const score = findScore(state.score);
  const isChosen = ({ layer, head }) => layer === state.layer && head === state.head;
  const ordered = [...allHeads].sort((a, b) => Number(isChosen(a)) - Number(isChosen(b)));
  const curves = ordered.map((curve) => ({
    ...curve,
    x: scoredSteps,
    y: history.map(({ heads }) => heads[curve.layer][curve.head][score.key]),
    color: layerColor(curve.layer),
    width: isChosen(curve) ? 3.5 : allHeads.length > 24 ? 0.8 : 1.4,
  }));
  const range = scoreRange(score, curves.flatMap(({ y }) => y));
  historyScales = drawChart(at("history-chart"), { x: [0, loss.end], y: range, title: `${score.name} (${score.unit})`, curves });
  nameCurves(at("history-chart"), curves);
}

/** The maximum number of named curves, and the distance between two names. */
const MAX_NAMED_CURVES = 6;
const NAME_SPACING = 14;

/** Names the selected head, whose curve is the last, and the heads with the highest scores at the ends of their curves. */
function nameCurves(svg, curves) {
  const highest = ({ y }) => y.reduce((most, value) => Math.max(most, value ?? -Infinity), -Infinity);
  const endOf = ({ x, y }) => y.reduce((end, value, i) => (value === null ? end : { x: historyScales.x(x[i]), y: historyScales.y(value) }), null);
  const others = curves.slice(0, -1).sort((a, b) => highest(b) - highest(a)).slice(0, MAX_NAMED_CURVES - 1);
  const names = [curves.at(-1), ...others].map((curve) => ({ curve, end: endOf(curve), y: 0 })).filter(({ end }) => end).sort((a, b) => a.end.y - b.end.y);
  // Names are moved down until they are apart, and then up into the chart.
  names.forEach((name, i) => { name.y = Math.max(name.end.y, i === 0 ? MARGIN.top + 4 : names[i - 1].y + NAME_SPACING); });
  const bottom = svg.clientHeight - MARGIN.bottom;
  for (let i = names.length - 1; i >= 0; i--) names[i].y = Math.min(names[i].y, i === names.length - 1 ? bottom : names[i + 1].y - NAME_SPACING);
  const right = svg.clientWidth - MARGIN.right;
  for (const { curve, end, y } of names) {
    svg.append(svgElement("line", { x1: end.x + 2, y1: end.y, x2: right + 9, y2: y, stroke: curve.color }));
    svg.append(svgElement("text", { class: "curve-name", x: right + 12, y: y + 4, "data-layer": curve.layer, "data-head": curve.head }, `L${curve.layer} H${curve.head}`));
  }
}

/** Shows the score of the hovered head, or else of the selected head, at the scored step nearest to the cursor. */
function readHistory() {
  if (historyScores.length === 0) return;
  const score = findScore(state.score);
  const i = nearest(scoredSteps, state.step ?? loss.end);
  const { layer, head } = state.pointed ?? state;
  const value = history[i].heads[layer][head][score.key];
  const reading = at("history-reading");
  Object.assign(reading.dataset, { step: scoredSteps[i], layer, head, value });
  reading.replaceChildren(`step ${integer(scoredSteps[i])}: ${layerHead(layer, head)}, ${score.name} ${fixed(value, score.digits)}`, chanceInWords(score, layer));
  drawCursor(at("history-chart"), historyScales, scoredSteps[i], value === null ? [] : [{ value, color: layerColor(layer) }]);
}

/** Returns the head whose curve is nearest to a point of the chart. */
function headAt(x, y) {
  const { heads } = history[nearest(scoredSteps, historyScales.step(x))];
  const value = ({ layer, head }) => heads[layer][head][state.score];
  const distance = (head) => (value(head) === null ? Infinity : Math.abs(historyScales.y(value(head)) - y));
  return allHeads.reduce((best, head) => (distance(head) < distance(best) ? head : best));
}

function startCurves() {
  const lossChart = at("loss-chart");
  lossChart.addEventListener("pointermove", (event) => update({ step: lossScales.step(offset(event, lossChart).x) }));
  lossChart.addEventListener("pointerdown", (event) => update({ step: lossScales.step(offset(event, lossChart).x) }));
  lossChart.addEventListener("keydown", (event) => moveStep(event, lossSteps));

  at("history").hidden = historyScores.length === 0;
  if (historyScores.length === 0) return;
  at("score").append(...historyScores.map((score) => element("option", { value: score.key }, score.name)));
  at("score").addEventListener("change", (event) => update({ score: event.target.value }));
  const chart = at("history-chart");
  const pointAt = (event) => {
    const { x, y } = offset(event, chart);
    update({ step: historyScales.step(x), pointed: headAt(x, y) });
  };
  chart.addEventListener("pointermove", pointAt);
  chart.addEventListener("pointerleave", () => update({ pointed: null }));
  chart.addEventListener("click", (event) => {
    const { x, y } = offset(event, chart);
    update({ ...headAt(x, y), pointed: null });
  });
  chart.addEventListener("keydown", (event) => {
    if (moveStep(event, scoredSteps)) return;
    const { layer, head } = state.pointed ?? state;
    const now = allHeads.findIndex((other) => other.layer === layer && other.head === head);
    const direction = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (direction) {
      event.preventDefault();
      update({ pointed: allHeads[(now + direction + allHeads.length) % allHeads.length] });
    } else if (event.key === "Enter" && state.pointed) {
      update({ ...state.pointed, pointed: null });
    }
  });
}

/** Moves the cursor along `steps` by a key; returns true if the key moves the cursor. */
function moveStep(event, steps) {
  const now = nearest(steps, state.step ?? loss.end);
  const distance = event.shiftKey ? 10 : 1;
  const next = { ArrowLeft: now - distance, ArrowRight: now + distance, Home: 0, End: steps.length - 1 }[event.key];
  if (next === undefined || steps.length === 0) return false;
  event.preventDefault();
  update({ step: steps[Math.min(Math.max(next, 0), steps.length - 1)] });
  return true;
}

/** Returns the coordinates of a pointer event within an element. */
function offset(event, within) {
  const box = within.getBoundingClientRect();
  return { x: event.clientX - box.left, y: event.clientY - box.top };
}
