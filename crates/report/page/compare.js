// The page of a comparison. Everything on display is derived from `state`; every control calls `update`.
//
// Hooks for tests: `html[data-ready="true"]` once everything is drawn; `#settings tbody tr`, best first;
// `#runs tbody tr[data-row]` in the order of the table; the selects `x` and `score`; `#ends circle[data-run]`;
// `#reading` with `data-run`; `#heads tbody td`.

const { runs, settings, keys, measure, sentences } = data.comparison;
const isAbove = measure === "above_floor";
const lowestLoss = (run) => (isAbove ? run.above_floor : run.best_valid_loss);
const withHeads = runs.filter((run) => run.heads.length > 0);

const settingColumns = [
  { name: "setting", of: (setting) => data.names[settings.indexOf(setting)] },
  { name: "runs", of: (setting) => setting.runs },
  { name: "loss", of: (setting) => setting.loss?.mean, digits: 4 },
  { name: "above the floor", of: (setting) => setting.above_floor?.mean, digits: 4 },
  { name: "standard deviation", of: (setting) => setting[isAbove ? "above_floor" : "loss"]?.deviation, digits: 4 },
  { name: "95 % interval", of: (setting) => setting[isAbove ? "above_floor" : "loss"]?.interval?.map((end) => fixed(end, 4)).join(" to ") },
  { name: "p", of: (setting) => setting.p_corrected, digits: 4 },
].filter((column) => settings.some((setting) => column.of(setting) !== null && column.of(setting) !== undefined));

const runColumns = [
  { name: "run", of: (run) => run.name },
  ...Object.keys(settings[0].values).map((name) => ({ name, of: (run) => parsed(settings[run.setting].values[name]) })),
  { name: "seed", of: (run) => run.seed },
  { name: "data", of: (run) => run.data },
  { name: "model", of: (run) => run.model },
  { name: "loss", of: (run) => run.best_valid_loss, digits: 4 },
  { name: "above the floor", of: (run) => run.above_floor, digits: 4 },
  { name: "accuracy", of: (run) => run.accuracy, digits: 4 },
  { name: "parameters", of: (run) => run.parameters, text: integer },
  { name: "steps", of: (run) => run.steps, text: integer },
  { name: "tokens", of: (run) => run.tokens, text: integer },
  { name: "seconds", of: (run) => run.seconds, digits: 1 },
  { name: "tokens/s", of: (run) => run.tokens_per_second, text: (value) => integer(Math.round(value)) },
  { name: "ended", of: (run) => run.ended.replace("_", " ") },
].filter((column) => runs.some((run) => column.of(run) !== null && column.of(run) !== undefined));

/** Converts a config value to a number if it is one, so that its column sorts by size. */
function parsed(text) {
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

const state = { chosen: 0, sort: null, x: "step", score: data.scores.some((score) => score.key === "zero_ablation") ? "zero_ablation" : data.scores[0].key };
/** @type {[string[], () => void][]} */
const views = [
  [["theme", "size", "chosen", "x"], drawCurves],
  [["theme", "size", "chosen"], drawEnds],
  [["sort"], () => fillTable(at("runs"), runColumns, runs, state.sort, (run) => runs.indexOf(run))],
  [["sort", "chosen"], () => markRow(at("runs"), state.chosen)],
  [["chosen"], read],
  [["theme", "score"], drawHeads],
];

function update(changes) {
  const changed = Object.keys(changes).filter((part) => state[part] !== changes[part]);
  Object.assign(state, changes);
  draw(changed);
}

function draw(changed) {
  for (const [parts, view] of views) if (parts.some((part) => changed.includes(part))) view();
}

/** Returns the colour of a setting; a nearly black one is replaced by the theme's text colour. */
const settingColor = (setting) => (luminance(channels(data.setting_colors[setting])) < 0.03 ? "var(--ink)" : data.setting_colors[setting]);

/** Returns the loss as plotted: if it is compared above the entropy floor, the decimal logarithm of the difference. */
function height(run, loss) {
  if (loss === null || loss === undefined) return null;
  return isAbove ? Math.log10(Math.max(loss - run.floor, 1e-4)) : loss;
}

/** Returns the indices of the runs in drawing order: the chosen one last, on top of the others. */
const drawn = () => runs.map((run, i) => i).sort((a, b) => Number(a === state.chosen) - Number(b === state.chosen) || b - a);

function drawCurves() {
  const all = runs.flatMap((run, i) => data.curves[i].loss.map((loss) => height(run, loss)).filter(isNumber)).sort((a, b) => a - b);
  const [low, high] = all.length > 0 ? [all[0], all[Math.min(Math.floor(all.length * 0.98), all.length - 1)]] : [0, 1]; // as in the pictures
  const margin = (high - low) * 0.06 || 0.1;
  const range = [low - margin, high + margin];
  const end = Math.max(...data.curves.map((curve) => curve[state.x].at(-1) ?? 0), 1);
  const xTitle = { step: "step", tokens: "tokens trained on", seconds: "training time (s)" }[state.x];
  at("curves-heading").replaceChildren(isAbove ? "Validation loss above the floor" : "Validation loss");
  drawChart(at("curves"), {
    // Leave room for the last dots.
    x: [0, end * 1.02],
    y: range,
    yTicks: isAbove ? logTicks(range) : undefined,
    title: isAbove ? "loss above the floor (nats per token, log scale)" : "loss (nats per token)",
    xTitle,
    curves: drawn().map((i) => ({
      x: data.curves[i][state.x],
      y: data.curves[i].loss.map((loss) => height(runs[i], loss)),
      color: settingColor(runs[i].setting),
      width: i === state.chosen ? 3.5 : 1.4,
    })),
  });
}

function drawEnds() {
  const intervals = settings.map((setting) => setting[isAbove ? "above_floor" : "loss"]?.interval);
  const values = [...runs.map(lowestLoss), ...intervals.flatMap((interval) => interval ?? [])].filter(isNumber);
  const [low, high] = values.length > 0 ? [Math.min(...values), Math.max(...values)] : [0, 1];
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.05 || 0.1;
  const svg = at("ends");
  svg.style.height = `${Math.min(60 + 26 * settings.length, 900)}px`;
  const heightOf = (setting) => settings.length - setting - 0.5;
  const order = drawn().filter((i) => isNumber(lowestLoss(runs[i])));
  const range = [low - margin, high + margin];
  drawChart(svg, {
    x: range,
    y: [0, settings.length],
    xTicks: ticks(range, Math.max(2, Math.floor(svg.clientWidth / 110))),
    yTicks: [],
    title: "setting",
    xTitle: isAbove ? "loss above the floor (nats per token)" : "lowest validation loss (nats per token)",
    curves: [
      ...intervals.flatMap((interval, setting) => (interval ? [{ x: interval, y: [heightOf(setting), heightOf(setting)], color: settingColor(setting), width: 1.5 }] : [])),
      ...order.map((i) => ({ x: [lowestLoss(runs[i])], y: [heightOf(runs[i].setting)], color: settingColor(runs[i].setting), width: 0, radius: i === state.chosen ? 7 : 4.5 })),
    ],
  });
  svg.querySelectorAll("circle").forEach((circle, i) => {
    circle.dataset.run = order[i];
    circle.style.cursor = "pointer";
    circle.append(svgElement("title", {}, `${runs[order[i]].name}: ${fixed(lowestLoss(runs[order[i]]), 4)}`));
  });
}

function read() {
  const run = runs[state.chosen];
  at("reading").dataset.run = String(state.chosen);
  const loss = isNumber(lowestLoss(run)) ? `${isAbove ? "above the floor" : "loss"} ${fixed(lowestLoss(run), 4)}` : run.ended;
  at("reading").replaceChildren(`${isolated(run.name)} · ${data.names[run.setting]} · seed ${run.seed} · ${loss}`);
}

function drawHeads() {
  const about = data.scores.find((score) => score.key === state.score);
  at("meaning").replaceChildren(about.meaning);
  const layers = Math.max(...withHeads.map((run) => run.heads.length));
  const positions = Array.from({ length: layers }, (_, layer) => {
    const heads = Math.max(...withHeads.map((run) => run.heads[layer]?.length ?? 0));
    return Array.from({ length: heads }, (_, head) => [layer, head]);
  }).flat();
  const value = (run, [layer, head]) => run.heads[layer]?.[head]?.[about.key];
  const all = withHeads.flatMap((run) => positions.map((position) => value(run, position))).filter(isNumber);
  const [low, high] = [Math.min(0, ...all), Math.max(...all, 1e-9)];
  const head = element("tr", {}, element("th", { scope: "col" }, "run"), ...positions.map((position) => element("th", { scope: "col" }, position.join("."))));
  const rows = withHeads.map((run) => {
    const cells = positions.map((position) => {
      const score = value(run, position);
      if (!isNumber(score)) return element("td", {}, "–");
      const ground = low < 0 ? differenceColor(score / Math.max(-low, high)) : color((score - low) / (high - low));
      const ink = contrast(ground, [255, 255, 255]) > contrast(ground, [0, 0, 0]) ? "#fff" : "#000";
      return element("td", { style: `background: rgb(${ground.join(",")}); color: ${ink}` }, fixed(score, about.digits));
    });
    return element("tr", {}, element("th", { scope: "row" }, run.name), ...cells);
  });
  at("heads").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Returns a row for each point of the loss curves. */
function curveRows() {
  const rows = [["run", "setting", "step", "tokens", "seconds", "loss"]];
  data.curves.forEach(({ step, tokens, seconds, loss }, i) => loss.forEach((value, at) => rows.push([runs[i].name, data.names[runs[i].setting], step[at], tokens[at], seconds[at], value])));
  return rows;
}

/** @type {Panel[]} */
const SAVED_PANELS = [
  { ids: ["settings"], name: "settings", rows: () => valueRows(settingColumns, settings) },
  { ids: ["curves-heading", "curves", "legend"], name: "losses", rows: curveRows },
  { ids: ["legend", "ends"], name: "lowest-losses", rows: () => [["run", "setting", "loss"], ...runs.map((run) => [run.name, data.names[run.setting], lowestLoss(run)])] },
  { ids: ["runs"], name: "runs", rows: () => valueRows(runColumns, runs) },
  { ids: ["heads"], name: "heads", rows: () => tableRows("heads") },
];

function start() {
  at("title").append(`${runs.length} runs compared`);
  at("lead").append(keys.length > 0 ? `settings differ in ${keys.join(", ")}` : "runs differ only in the seed");
  at("sentences").append(...sentences.map((sentence) => element("li", {}, sentence)));
  fillTable(at("settings"), settingColumns, settings, null, (setting) => settings.indexOf(setting));
  at("settings").querySelectorAll("th button").forEach((button) => button.replaceWith(button.textContent));
  at("settings").querySelectorAll("tbody tr").forEach((row, i) => {
    row.removeAttribute("tabindex");
    row.firstChild.prepend(element("span", { "aria-hidden": "true", style: `color: ${settingColor(i)}` }, "● "));
  });
  at("legend").append(...data.names.slice(0, 8).flatMap((name, i) => [element("span", { style: `color: ${settingColor(i)}` }, "● "), i < 7 ? name : "other settings", "  "]));
  const option = (value, name) => element("option", { value }, name);
  at("x").append(option("step", "steps"), option("tokens", "tokens"), option("seconds", "training time"));
  at("x").addEventListener("change", (event) => update({ x: event.target.value }));
  const scores = data.scores.filter((score) => withHeads.some((run) => run.heads.flat().some((head) => isNumber(head[score.key]))));
  at("score").append(...scores.map((score) => option(score.key, score.name)));
  at("heads-section").hidden = scores.length === 0;
  if (scores.length > 0) {
    state.score = scores.some((score) => score.key === "zero_ablation") ? "zero_ablation" : scores[0].key;
    at("score").value = state.score;
    at("score").addEventListener("change", (event) => update({ score: event.target.value }));
  } else {
    views.pop();
  }
  followTable(
    at("runs"),
    (name) => update({ sort: { name, descending: state.sort?.name === name && !state.sort.descending } }),
    (run) => update({ chosen: Number(run) }),
  );
  at("ends").addEventListener("click", (event) => {
    const circle = event.target.closest("circle");
    if (circle) update({ chosen: Number(circle.dataset.run) });
  });
  followTheme(() => draw(["theme"]));
  startSave(SAVED_PANELS, "comparison");
}

start();
draw(["size", ...Object.keys(state)]);
followWidth(() => draw(["size"]));
document.documentElement.dataset.ready = "true";
