// The page of a study. Everything on display is derived from `state`; every control calls `update`.
//
// Hooks for tests: `html[data-ready="true"]` once everything is drawn; `#trials tbody tr[data-row]`
// in the order of the table, the chosen one with `aria-selected="true"`; `#trials th button[data-column]`;
// the selects `x` and `y`; `#dots circle[data-trial]`; `#reading` with `data-trial`.

const { result } = data;
const { trials, keys, floor } = result;
const best = trials[0].trial;

/** The columns that trials are sorted and plotted by. */
const columns = [
  { name: "trial", of: (trial) => trial.trial, text: (value) => String(value).padStart(3, "0") },
  ...keys.map((name) => ({ name, of: (trial) => trial.setting[name], key: true })),
  { name: "loss", of: (trial) => trial.loss, digits: 4, axis: true },
  { name: "spread over seeds", of: (trial) => trial.loss_spread, digits: 4 },
  { name: "above the floor", of: (trial) => (floor === null || trial.loss === null ? null : trial.loss - floor), digits: 4, axis: true, log: true },
  { name: "accuracy", of: (trial) => trial.accuracy, digits: 4, axis: true },
  { name: "training loss spread", of: (trial) => trial.train_spread, digits: 4, axis: true, log: true },
  { name: "spikes", of: (trial) => trial.spikes },
  { name: "parameters", of: (trial) => trial.parameters, text: integer, log: true },
  { name: "steps", of: (trial) => trial.steps, text: integer },
  { name: "operations", of: (trial) => trial.operations, log: true },
  { name: "seconds", of: (trial) => trial.seconds, digits: 1, log: true },
  { name: "ended", of: (trial) => trial.ended.replace("_", " ") },
].filter((column) => column.key || trials.some((trial) => trial[column.name] !== undefined || column.of(trial) !== null));

const columnOf = (name) => columns.find((column) => column.name === name);

const state = {
  chosen: best,
  sort: null, // `{ name, descending }`; null: best first
  x: data.learning_rate ?? keys[0] ?? "parameters",
  y: floor === null ? "loss" : "above the floor",
};

/** @type {[string[], () => void][]} */
const views = [
  [["theme", "size", "chosen"], drawCurves],
  [["theme", "size", "chosen", "x", "y"], drawDots],
  [["sort"], drawTable],
  [["sort", "chosen"], () => markRow(at("trials"), state.chosen)],
  [["chosen"], drawReading],
];

function update(changes) {
  const changed = Object.keys(changes).filter((part) => state[part] !== changes[part]);
  Object.assign(state, changes);
  draw(changed);
}

function draw(changed) {
  for (const [parts, view] of views) if (parts.some((part) => changed.includes(part))) view();
}

/** Returns the colour of a trial, faded if the trial did not complete and is not chosen. */
function trialColor(trial) {
  const color = trial.trial === best ? "var(--vermilion)" : "var(--blue)";
  const isFaded = !["completed", "early_stopped"].includes(trial.ended) && trial.trial !== state.chosen;
  return isFaded ? `color-mix(in srgb, ${color} 35%, var(--paper))` : color;
}

/** Returns an axis for values: linear, logarithmic for positive numbers of a wide range, or categorical for text. */
function axis(column, values) {
  const hasText = values.some((value) => value !== null && !isNumber(value));
  if (hasText) {
    const names = [...new Set(values.filter((value) => value !== null).map(String))].sort();
    return { title: column.name, position: (value) => names.indexOf(String(value)), range: [-0.5, names.length - 0.5], ticks: names.map((label, value) => ({ value, label })) };
  }
  const numbers = values.filter(isNumber);
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  const log = low > 0 && high / low > 8 && (column.log || column.key);
  const position = (value) => (log ? Math.log10(value) : value);
  const margin = (position(high) - position(low)) * 0.06 || Math.abs(position(high)) * 0.05 || 0.5;
  const range = [position(low) - margin, position(high) + margin];
  return { position, range, ticks: log ? logTicks(range) : ticks(range, 7), title: `${column.name}${log ? " (log scale)" : ""}` };
}

function drawCurves() {
  const ordered = [...trials].reverse().sort((a, b) => (a.trial === state.chosen) - (b.trial === state.chosen));
  const height = (loss) => (floor === null ? loss : Math.log10(Math.max(loss - floor, 1e-4)));
  const all = trials.flatMap((trial) => trial.curve.map(([, loss]) => height(loss))).sort((a, b) => a - b);
  const [low, high] = [all[0], all[Math.min(Math.floor(all.length * 0.98), all.length - 1)]]; // as in the pictures
  const margin = (high - low) * 0.06 || 0.1;
  const range = [low - margin, high + margin];
  const end = Math.max(...trials.flatMap((trial) => trial.curve.map(([tokens]) => tokens)), 1);
  const heading = floor === null ? "Validation loss by tokens" : "Validation loss above the floor by tokens";
  at("curves-heading").replaceChildren(result.seeds > 1 ? `${heading} (first seed)` : heading);
  // A curve that is entirely above the frame is drawn along the frame's upper edge, so that every trial is visible.
  const visibleHeights = (curve) => {
    const heights = curve.map(([, loss]) => height(loss));
    return heights.every((value) => value > range[1]) ? heights.map(() => range[1]) : heights;
  };
  drawChart(at("curves"), {
    // Leave room for the last dots.
    x: [0, end * 1.02],
    y: range,
    yTicks: floor === null ? undefined : logTicks(range),
    title: floor === null ? "loss (nats per token)" : "loss above the floor (nats per token, log scale)",
    xTitle: "tokens trained on",
    curves: ordered.map((trial) => {
      const isFaded = trials.indexOf(trial) >= data.highlighted && trial.trial !== state.chosen;
      return {
        x: trial.curve.map(([tokens]) => tokens),
        y: visibleHeights(trial.curve),
        color: isFaded ? "color-mix(in srgb, var(--muted) 40%, var(--paper))" : trialColor(trial),
        width: trial.trial === state.chosen ? 3.5 : isFaded ? 0.75 : 1.4,
      };
    }),
  });
  at("curves-note").hidden = data.highlighted >= trials.length;
  at("curves-note").replaceChildren(`The best ${data.highlighted} trials are coloured, the others are grey; at most ${integer(data.max_curves)} curves are drawn.`);
}

function drawDots() {
  const [x, y] = [columnOf(state.x), columnOf(state.y)];
  const drawn = trials.filter((trial) => y.of(trial) !== null && x.of(trial) !== null && x.of(trial) !== undefined);
  const across = axis(x, drawn.map(x.of));
  const up = axis(y, drawn.map(y.of));
  const ordered = [...drawn].reverse().sort((a, b) => (a.trial === state.chosen) - (b.trial === state.chosen));
  drawChart(at("dots"), {
    x: across.range,
    y: up.range,
    xTicks: across.ticks,
    yTicks: up.ticks,
    title: up.title,
    xTitle: across.title,
    curves: ordered.map((trial) => ({
      x: [across.position(x.of(trial))],
      y: [up.position(y.of(trial))],
      color: trialColor(trial),
      width: 0,
      radius: trial.trial === state.chosen ? 7 : 4.5,
    })),
  });
  at("dots").querySelectorAll("circle").forEach((circle, i) => {
    circle.dataset.trial = ordered[i].trial;
    circle.style.cursor = "pointer";
    circle.append(svgElement("title", {}, `trial ${ordered[i].trial}: ${y.name} ${cellText(y, y.of(ordered[i]))}`));
  });
}

function drawTable() {
  // A trial that was trained to the end has a page.
  fillTable(at("trials"), columns, trials, state.sort, (trial) => trial.trial, (trial) => data.pages[trial.trial]);
}

function drawReading() {
  const trial = trials.find((trial) => trial.trial === state.chosen);
  const values = keys.map((key) => `${key.split(".")[1]} ${cellText({}, trial.setting[key])}`);
  at("reading").dataset.trial = trial.trial;
  const loss = trial.loss === null ? trial.ended : `loss ${fixed(trial.loss, 4)}`;
  at("reading").replaceChildren(`trial ${String(trial.trial).padStart(3, "0")}: ${[...values, loss].join(" · ")}`);
}

/** Returns a row for each trial, with the values of the plotted columns. */
function dotRows() {
  const [x, y] = [columnOf(state.x), columnOf(state.y)];
  return [["trial", x.name, y.name], ...trials.map((trial) => [trial.trial, x.of(trial), y.of(trial)])];
}

/** @type {Panel[]} */
const SAVED_PANELS = [
  { ids: ["curves-heading", "curves"], name: "losses", rows: () => [["trial", "tokens", "loss"], ...trials.flatMap(({ trial, curve }) => curve.map((point) => [trial, ...point]))] },
  { ids: ["dots"], name: "trials", rows: dotRows },
  { ids: ["trials"], name: "table", rows: () => valueRows(columns, trials) },
];

function start() {
  at("study").append(result.study);
  at("lead").append(`${trials.length} trial${trials.length === 1 ? "" : "s"}, ${keys.length} key${keys.length === 1 ? "" : "s"} searched`);
  at("summary").append(...data.summary.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
  at("best").append(data.best);
  at("config").append(data.config);
  const option = (column) => element("option", { value: column.name }, column.name);
  at("x").append(...columns.filter((column) => column.key || column.log || column.name === "steps").filter((column) => column.name !== "above the floor").map(option));
  at("y").append(...columns.filter((column) => column.axis).map(option));
  for (const id of ["x", "y"]) {
    at(id).value = state[id];
    at(id).addEventListener("change", (event) => update({ [id]: event.target.value }));
  }
  const sort = (name) => update({ sort: { name, descending: state.sort?.name === name && !state.sort.descending } });
  followTable(at("trials"), sort, (trial) => update({ chosen: Number(trial) }));
  at("dots").addEventListener("click", (event) => {
    const circle = event.target.closest("circle");
    if (circle) update({ chosen: Number(circle.dataset.trial) });
  });
  followTheme(() => draw(["theme"]));
  startSave(SAVED_PANELS, result.study);
}

start();
draw(["size", ...Object.keys(state)]);
followWidth(() => draw(["size"]));
document.documentElement.dataset.ready = "true";
