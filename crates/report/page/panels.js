// The panels of the page of a run that can be saved, or shown alone by the address.

/** A pen with the methods of a canvas that `drawLabels` and `drawCell` use, which draws SVG. */
class SvgPen {
  transform = "";
  saved = [];
  font = "";
  fillStyle = "";
  strokeStyle = "";
  lineWidth = 1;
  textAlign = "left";
  constructor(group) { this.group = group; }
  save() { this.saved.push(this.transform); }
  restore() { this.transform = this.saved.pop(); }
  translate(x, y) { this.transform += `translate(${x} ${y})`; }
  rotate(angle) { this.transform += `rotate(${angle * 180 / Math.PI})`; }
  fillText(text, x, y) {
    const [size, ...family] = this.font.split(" ");
    const anchor = { left: "start", center: "middle", right: "end" }[this.textAlign];
    // The middle of the letters, as on a canvas.
    this.group.append(svgElement("text", { x, y: y + 0.36 * parseFloat(size), transform: this.transform, fill: this.fillStyle, "font-size": size, "font-family": family.join(" "), "text-anchor": anchor }, text));
  }
  strokeRect(x, y, width, height) {
    this.group.append(svgElement("rect", { x, y, width, height, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth }));
  }
}

/** Draws the matrix view with its labels as text. */
function matrixGroup(x, y) {
  const group = svgElement("g", { transform: `translate(${x} ${y})` });
  const { left, top, width, height } = layout;
  group.append(imageElement(thumbnails.get(`${state.layer} ${state.head}`).querySelector("canvas"), left, top, width, height));
  const pen = new SvgPen(group);
  drawLabels(pen);
  drawCell(pen);
  return group;
}

/** Adds the kind of attention to rows with a header, if there are several kinds. */
const withKind = (rows, kind = state.kind) => (data.maps[0].length < 2 ? rows : rows.map((row, index) => [index === 0 ? "kind" : kind, ...row]));

/** Returns a row for each visible cell of the maps of these heads, of all queries or of those at `only`. */
function weightRows(heads, only = null) {
  const { queries, keys, weight } = maps();
  const rows = [["layer", "head", "query", "key", "query_token", "key_token", "weight"]];
  for (const { layer, head } of heads) {
    queries.forEach((query, i) => keys.forEach((key, j) => {
      const value = weight(layer, head, i, j);
      if (value !== null && (only === null || only.includes(i))) rows.push([layer, head, query.positions, key.positions, query.text, key.text, value]);
    }));
  }
  return withKind(rows);
}

/** Returns the kind of attention for a heading, if there are several kinds. */
const kindHeading = () => (data.maps[0].length > 1 ? `${KINDS[state.kind].name}, ` : "");
/** Returns the head and the sequence of the map on display. */
const mapHeading = () => `${componentInWords(state)}, ${data.readings[state.sample].sequence}`;

/** Returns the weights of the selected query, and the scores of the selected head, which only decoder self-attention has. */
function headRows() {
  const { layer, head, query } = state;
  const { queries, keys, weight } = maps();
  const weights = keys.map(({ positions }, key) => [layer, head, "weight", queries[query].positions, positions, weight(layer, head, query, key), null]).filter((row) => row[5] !== null);
  const scores = state.kind !== "decoder" ? [] : data.scores.map((score) => [layer, head, score.key, null, null, data.heads[layer][head][score.key], chanceOf(score)]);
  return withKind([["layer", "head", "quantity", "query", "key", "value", "chance"], ...weights, ...scores]);
}

function predictionRows() {
  const { inputs, targets, most_likely } = data.readings[state.sample];
  return [["position", "after", "true", "true_probability", "predicted", "predicted_probability"],
    ...inputs.map((token, i) => [i, token, targets[i]?.text, targets[i]?.probability, most_likely[i]?.[0]?.token, most_likely[i]?.[0]?.probability])];
}

function lossRows() {
  const names = ["training", "validation", "learning_rate"];
  const curves = names.map((name) => new Map((data.loss[name] ?? []).map(({ step, value }) => [step, value])));
  const steps = [...new Set(curves.flatMap((curve) => [...curve.keys()]))].sort((a, b) => a - b);
  return [["step", ...names], ...steps.map((step) => [step, ...curves.map((curve) => curve.get(step))])];
}

function historyRows() {
  const keys = historyScores.map(({ key }) => key);
  return withKind([["step", "layer", "head", ...keys],
    ...history.flatMap(({ step, heads }) => allHeads.map(({ layer, head }) => [step, layer, head, ...keys.map((key) => heads[layer][head][key])]))], "decoder");
}

function pairRows() {
  const [one, two] = pairSides();
  /** @type {any[][]} */
  const rows = [["query", "key", `first: ${one.name}`, `second: ${two.name}`]];
  one.shown.queries.forEach((query, i) => one.shown.keys.forEach((key, j) => {
    const values = [one, two].map(({ shown, layer, head }) => (shown.queries[i] && shown.keys[j] ? shown.weight(layer, head, i, j) : null));
    if (values.some((value) => value !== null)) rows.push([query.positions, key.positions, ...values]);
  }));
  return rows;
}

function filmRows() {
  const rows = [["step", "layer", "head", "query", "key", "weight"]];
  for (const { sample, name } of frames) {
    const { queries, keys, weight } = maps(sample);
    queries.forEach((query, i) => keys.forEach((key, j) => {
      const value = weight(state.layer, state.head, i, j);
      if (value !== null) rows.push([name.replace(/^step |,/g, ""), state.layer, state.head, query.positions, key.positions, value]);
    }));
  }
  return withKind(rows);
}

/** Returns the numbers of a weight's computation, one per row; vectors have an index. */
function weightNumberRows() {
  const { cell: { kind, layer, head, query, key }, traced } = shownWeight;
  const { differential, unrotated, ...plain } = traced;
  const named = { ...plain, ...(unrotated ? { query_before_rotation: unrotated.query, key_before_rotation: unrotated.key } : {}), ...(differential ?? {}) };
  const numbers = Object.entries(named).flatMap(([name, value]) => (Array.isArray(value) ? value.map((number, index) => [name, index, number]) : [[name, null, value]]));
  return [["kind", "layer", "head", "query", "key", "quantity", "index", "value"],
    ...numbers.filter(([, , value]) => typeof value === "number").map((row) => [kind, layer, head, query, key, ...row])];
}

/** Returns what each component adds to the residual stream, and the most likely tokens at each depth. */
function residualStreamRows() {
  const position = Number(at("flow-table").dataset.position), target = live.tokenizer.token(drawnFlow.target);
  const parts = drawnFlow.parts.map((part) => [position, target, partInWords(part), null, part.length, part.logit, null, null]);
  const stages = drawnFlow.stages.flatMap(({ length, top }, depth) => top.map(({ id, probability }) => [position, target, "residual stream", depth, length, null, live.tokenizer.token(id), probability]));
  return [["position", "target", "component", "layers_before", "length", "share_of_logit", "token", "probability"], ...parts, ...stages];
}

/** Returns the components and paths, each with its effect on the input at hand. */
function circuitRows() {
  const { components, paths } = circuitOnDisplay();
  const row = (from, input, to, { effect }) => [from, input, to, effect === null ? null : circuitEffects.loss + effect, effect];
  return [["from", "input", "to", "loss_when_ablated", "change"],
    ...components.map((found) => row(componentName(found.component), null, null, found)),
    ...paths.map((path) => row(componentName(path.from), path.input, componentName(path.to), path))];
}

/** Returns the share that each restored component recovers, and each restored position of the residual stream. */
function patchingRows() {
  const { patched, stream, first } = patchingFound;
  return [["component", "layers_before", "position", "recovered"],
    ...allComponents.map((component, i) => [componentName(component), null, null, recoveredShare(patched[i])]),
    ...stream.flatMap((row, depth) => row.map((value, i) => ["residual stream", depth, first + i, recoveredShare(value)]))];
}

/** @type {Panel[]} */
const SAVED_PANELS = [
  { ids: ["stage"], name: "attention", rows: () => weightRows([state]), drawings: { matrix: matrixGroup }, heading: mapHeading },
  { ids: ["next"], name: "next-token", exists: () => live !== null, rows: () => [["position", "id", "token", "probability"], ...Array.from(at("candidates").children, ({ dataset: { id, probability } }) => [at("candidates-after").dataset.position, id, live.tokenizer.token(Number(id)), probability])] },
  { ids: ["side"], name: "head", rows: headRows },
  { ids: ["weight"], name: "weight", rows: weightNumberRows, exists: () => live !== null },
  { ids: ["flow"], name: "residual-stream", rows: residualStreamRows, exists: () => live !== null && live.config.architecture !== "one_layer" },
  { ids: ["strips"], name: "strips", rows: () => weightRows(stripHeads(), [state.query]), exists: () => live !== null },
  { ids: ["components"], name: "circuit", rows: circuitRows, exists: () => live !== null },
  { ids: ["patching-result"], name: "patching", rows: patchingRows, more: ["input-area", "patching"], exists: () => hasPaths },
  { ids: ["pair"], name: "comparison", rows: pairRows },
  { ids: ["thumbnails"], name: "all-heads", rows: () => weightRows(allHeads), heading: () => `${kindHeading()}${data.readings[state.sample].sequence}` },
  { ids: ["score-table"], name: "head-scores", rows: () => withKind([["layer", "head", ...data.scores.map(({ key }) => key)], ...allHeads.map(({ layer, head }) => [layer, head, ...data.scores.map(({ key }) => data.heads[layer][head][key])])], "decoder"), exists: () => data.scores.length > 0 },
  { ids: ["predictions-legend", "predictions", "prediction"], name: "predictions", rows: predictionRows },
  { ids: ["loss-legend", "loss-chart"], name: "loss", rows: lossRows, exists: () => lossSteps.length > 0 },
  { ids: ["film-strip"], name: "replay", rows: filmRows, more: ["film"], exists: () => frames.length > 0, heading: () => `${componentInWords(state)}, ${data.readings[data.sample].sequence}` },
  { ids: ["history-chart"], name: "heads-by-step", rows: historyRows, more: ["history"], exists: () => historyScores.length > 0 },
];

/** Shows only the panel that the address names, such as `report.html?panel=attention`. */
function showSinglePanel() {
  const name = new URLSearchParams(location.search).get("panel");
  if (name === null) return;
  const existing = SAVED_PANELS.filter(({ exists = () => true }) => exists());
  const panel = existing.find((panel) => panel.name === name);
  if (!panel) {
    const names = existing.map((panel) => panel.name);
    return document.querySelector("main").prepend(element("p", { class: "note refused", role: "alert" }, `The page has no panel “${short(name, 30)}”; panels are ${names.slice(0, -1).join(", ")} and ${names.at(-1)}.`));
  }
  document.body.classList.add("single");
  const shown = [...panel.ids, ...(panel.more ?? [])].map(at);
  if (name === "attention") shown.push(document.querySelector("#attention > .controls"));
  for (const part of shown) {
    part.classList.add("panel");
    if (part instanceof HTMLDetailsElement) part.open = true;
    for (let around = part.parentElement; around; around = around.parentElement) around.classList.add("around");
  }
  if (name === "weight") update({ isOpen: true });
}

/** Adds the buttons, and shows the panel of the address. */
function startPanels() {
  startSave(SAVED_PANELS, data.run);
  showSinglePanel();
}
