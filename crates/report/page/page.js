// The page of a run. Everything on display is derived from `state`; every control calls `update`.
//
// Hooks for tests. The ids of controls: `theme` (button); `sample`, `predicted-sample`, `sort` and `score` (selects, by
// index and by the key of a score); radio buttons named `kind` (`decoder`, `cross`, `encoder`), `layer`, `head`, `view`
// (`matrix`, `tokens`, `lines`), `scale` (`linear`, `root`, `head`) and `direction` (`to`, `by`). The elements that they control:
//
// - `html[data-ready="true"]` once everything is drawn; `html[data-theme]` if the theme is not the system's.
// - `#matrix`: `data-left`, `data-top` and `data-cell` are the position and size of its cells in CSS pixels,
//   `data-queries` and `data-keys` their numbers. `#reading` describes the link under the cursor: `data-sample`,
//   `data-kind`, `data-layer`, `data-head`, `data-query`, `data-key`, `data-query-token`, `data-key-token` and
//   `data-weight`, which is empty if the query cannot see the key.
// - `#tokens > [data-index]`: one per token, with `data-token` and the `data-weight` that it is highlighted by; if
//   queries and keys are different tokens, the highlighted ones are in `#lit`.
// - `#lines > g`: the lines of a query, with `data-query`, and `data-key` for each line.
// - `#thumbnails > button`: one per head, in sorted order, with `data-layer`, `data-head`, `data-value` (of
//   the score sorted by) and `aria-pressed`. `#scores` is the table, `#head-scores` has the scores of the chosen head.
// - `#loss-chart` with `#loss-reading`: `data-step`, and `data-training`, `data-validation` and
//   `data-learning-rate` if they were logged; `#floor` with `data-value`.
// - `#history-chart` with `#history-reading`: `data-step`, `data-layer`, `data-head`, `data-value`.
// - `#predictions > [data-index]` with class `hit`, `miss`, `unknowable` or `open`; `#prediction` describes one of
//   them: `data-position`, `data-after`, `data-truth`, `data-truth-probability`, `data-predicted`, `data-probability`.
// - `#film-step`, `#film-play` and `#film-strip > button`: one per frame, with `data-frame` and `data-sample`,
//   where the last frame is the end of the run; `#film-reading` with `data-frame`, -1 if another sequence is shown.
//
// If the page contains the model (`live/`):
//
// - `#input-text`, `#input-source`, `#as-ids`, `#draw-another`; `#chips > [data-index]` with `data-token` and
//   `data-id`, or class `unknown`; `#input-note`; `#input-loss` with `data-loss`; `#replacement` and `#end-here` for
//   the chosen chip.
// - `#candidates > li` with `data-id` and `data-probability`, each with a button; `#temperature`, `#top-k`, `#top-p`,
//   `#one-token`, `#generate-toggle`.
// - `#strength`, `#switch-off`, `#here-only`, `#freeze`, `#difference`; `#changes > li`, `#undo`, `#restore`, `#link` with `#link-status`.
// - `#tour-begin`, `#tour`, `#tour-text`, `#tour-next`, `#tour-back`, `#tour-end`.
//
// - `#matrix` and `#tokens` show a preview under the pointer; a click, a key or Enter selects. `#weight` shows how the
//   weight of the selected cell came about, with `data-kind`, `data-layer`, `data-head`, `data-query`, `data-key`,
//   `data-score` and `data-weight`; `#weight-open`, `#weight-close`, `#weight-steps > li` with `data-step`.
//
// - `#flow` (details), `#flow-target`; `#flow-drawing` with `.part` (`data-kind`, `data-layer`, `data-head`, `data-logit`) and
//   `.predicted` (`data-id`, `data-depth`); `#flow-table` with `data-position`, `data-target` and `data-logit`, and its rows
//   with `data-kind`, `data-layer`, `data-head`, `data-length` and `data-logit`, or with `data-depth`, `data-length` and
//   `data-probability`.
// - `#strips` (details): `#strip-rows > button` with `data-layer`, `data-head`, `data-query`, and the key with the highest
//   weight in `data-key` and `data-weight`; `#chips > *` have the style `--glow`. `#speed`.
// - `#components` (details), `#ablate-by`, `#find-paths`; `#circuit-drawing` with `data-loss` and `data-by`, its
//   `.box` with `data-component` and `data-effect`, and its `.path` with `data-path`; `#patching` (details), `#exchange`;
//   `#patching-reading` with `data-position`, `data-clean`, `data-corrupted` and `data-together`, `#patched-components > li`
//   with `data-share`, and the cells of `#patched-stream` with `data-share`.
// - `#pair` (details), `#other-head`, `#other-sample`, `#keep-input`; `#pair-maps canvas`; `#pair-reading` with
//   `data-query`, `data-key`, `data-first`, `data-second` and `data-difference`.
//
// - `.save` with `data-panel`: the buttons that save a panel.
//
// Data attributes hold tokens as in the vocabulary, not as displayed. The only global variable is `window.model`, which
// exists if the page contains the model.

/** The layer whose head matters most by its zero ablation, or without ablations in the circuit; else the last one. */
const firstLayer = (() => {
  const { decoder } = data.shown;
  const effects = decoder.map((head, layer) => data.heads[layer]?.[head]?.zero_ablation ?? -Infinity);
  // The components of a circuit are in the order of their importance.
  const important = data.circuit?.components.find(({ layer, head, cross }) => !cross && head === decoder[layer]);
  return effects.some(Number.isFinite) || !important ? effects.lastIndexOf(Math.max(...effects)) : important.layer;
})();

const state = {
  sample: data.sample,
  kind: "decoder",
  layer: firstLayer,
  head: data.shown.decoder[firstLayer],
  query: 0, // the cell under the pointer, or the selected cell
  key: 0,
  selected: { query: 0, key: 0 }, // the selected cell, to which the cursor returns when the pointer leaves
  view: "matrix",
  direction: "to",
  sort: "", // the key of a score; empty: by layer and head
  ascending: false,
  score: (historyScores.find((score) => score.key === "induction") ?? historyScores[0])?.key ?? "",
  step: null, // the cursor of both charts; null until it is moved
  pointed: null, // the head whose curve the pointer is on; null for none
  position: 0, // the selected position, which all panels show
  peeked: null, // the prediction under the pointer; null for none
  isOpen: false, // true if the computation of the selected weight is shown
  scale: "linear", // the colour scale: linear, root or head
  difference: false, // true if maps show differences from before the changes
};

/**
 * The views that are redrawn when a part of the state changes, in this order.
 *
 * @type {[string[], () => void][]}
 */
const views = [
  [["theme", "size"], drawLoss],
  [["theme", "size", "step"], readLoss],
  [["theme", "size", "score", "layer", "head"], drawHistory],
  [["theme", "size", "score", "layer", "head", "step", "pointed"], readHistory],
  [["sample", "kind"], drawControls],
  [["layer", "head", "sample", "kind", "sort", "view", "score", "direction"], markControls],
  [["sample"], drawPredictions],
  [["sample", "position", "peeked"], readPrediction],
  [["layer", "head", "kind", "sample"], drawChosen],
  [["sort", "ascending", "layer", "head", "kind"], drawScoreTable],
  [["theme", "kind", "layer", "head", "scale"], drawFilm],
  [["sample"], markFilm],
  [["sample"], () => live && drawInputLoss()],
  [["sample", "position"], () => live && markChip()],
  [["sample", "position"], () => live && drawCandidates()],
  [["sample"], () => live && markRefused()],
  [["theme", "size"], () => live && drawCircuit()],
  [["size"], () => live && drawFlow()],
  [["position"], () => live && computePatching()],
  [["sample", "kind", "layer", "head", "query", "difference"], () => live && drawIntervene()],
  [["sample", "kind", "layer", "head", "position", "selected"], () => live && readTour()],
];

/**
 * The same for the views that show maps, which are skipped for a sample without maps.
 *
 * @type {[string[], () => void][]}
 */
const mapViews = [
  [["theme", "sample", "kind", "difference", "scale"], drawThumbnails],
  [["theme", "sample", "kind", "sort", "ascending", "difference", "scale"], orderThumbnails],
  [["layer", "head"], markThumbnail],
  [["theme", "sample", "kind", "difference", "scale"], () => live && markChanged()],
  [["sample", "kind", "layer", "head", "query", "key", "view", "difference", "scale"], () => live && shownAnswer && writeAddress()],
  [["sample", "kind", "direction"], drawTokens],
  [["theme", "size", "view", "sample", "kind", "layer", "head", "query", "key", "difference", "scale"], () => state.view === "matrix" && drawMatrix()],
  [["sample", "kind", "layer", "head", "query", "key", "view", "direction"], readCell],
  [["theme", "sample", "kind", "layer", "head", "query", "key", "direction", "view"], () => state.view === "tokens" && highlightTokens()],
  [["sample", "kind", "layer", "head", "scale", "view"], () => state.view === "lines" && drawLines()],
  [["query"], () => state.view === "lines" && markLines()],
  [["theme", "sample", "kind", "layer", "head", "scale"], drawPair],
  [["query", "key"], readPair],
  [["sample", "kind", "layer", "head", "selected", "isOpen"], () => live && showWeight()],
  [["size"], () => live && fitVectors()],
  [["sample", "position", "kind", "layer", "head"], () => live && showFlow()],
];

/**
 * Changes the state and redraws the views that depend on it. A change of the position selects its query, and the other
 * way round; a preview moves only the cursor.
 */
function update(changes, { isPreview = false } = {}) {
  const next = { ...state, ...changes };
  // A new layer starts with the head that the pictures show.
  const isNewLayer = next.layer !== state.layer || next.kind !== state.kind;
  if (isNewLayer && changes.head === undefined) next.head = data.shown[next.kind][next.layer];
  const isNewMap = next.sample !== state.sample || next.kind !== state.kind;
  if (!isPreview) selectCell(next, changes, isNewMap);
  const changed = Object.keys(next).filter((part) => JSON.stringify(next[part]) !== JSON.stringify(state[part]));
  Object.assign(state, next);
  draw(changed);
}

/** Makes the position, the query and the selected cell of the next state agree. */
function selectCell(next, changes, isNewMap) {
  const shown = maps(next.sample, next.kind);
  const last = data.readings[next.sample].inputs.length - 1;
  const clamped = (index, count) => Math.max(Math.min(index, count - 1), 0);
  next.position = clamped(next.position, last + 1);
  const { queries, keys, bin } = shown;
  if (bin === 0) return;
  const hasPositions = KINDS[next.kind].sides[0] === "inputs";
  const isMoved = changes.position !== undefined || isNewMap;
  if (hasPositions && isMoved && changes.query === undefined) {
    next.query = Math.floor(next.position / bin);
    if (changes.position !== undefined && changes.key === undefined) next.key = strongestKey(next.layer, next.head, next.query, shown);
  }
  Object.assign(next, { query: clamped(next.query, queries.length), key: clamped(next.key, keys.length) });
  if (hasPositions && Math.floor(next.position / bin) !== next.query && (changes.query !== undefined || isNewMap)) next.position = Math.min(next.query * bin, last);
  if (isMoved || changes.query !== undefined || changes.key !== undefined) next.selected = { query: next.query, key: next.key };
}

/** Moves the cursor back to the selected cell. */
const endPreview = () => update({ ...state.selected }, { isPreview: true });

function draw(changed) {
  /** @param {[string[], () => void]} view */
  const isAffected = ([parts]) => parts.some((part) => changed.includes(part));
  for (const [, view] of views.filter(isAffected)) view();
  if (maps().bin > 0) for (const [, view] of mapViews.filter(isAffected)) view();
}

/** Adds a note if the maps of the sample are binned, and hides the explorer if the page lacks them. */
function drawControls() {
  const { bin } = maps();
  for (const id of ["stage", "side", "thumbnails"]) at(id).hidden = bin === 0;
  const note = at("maps-note");
  note.hidden = bin === 1;
  note.replaceChildren(bin === 0
    ? "To keep the page small, this sequence has no attention maps; its predictions are below."
    : `To keep the page small, ${bin} adjacent tokens share a cell. A cell shows the total weight on the keys of its column, averaged over the queries of its row.`);
}

/** Updates the controls to match the state. */
function markControls() {
  for (const id of ["sample", "predicted-sample"]) at(id).value = state.sample;
  for (const input of at("kinds").querySelectorAll("input")) input.checked = input.value === state.kind;
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll('[name="view"]'))) input.checked = input.value === state.view;
  at("sort").value = state.sort;
  at("sort").parentElement.hidden = state.kind !== "decoder";
  at("score").value = state.score;
  choices("layers", "layer", data.layers.length, state.layer);
  choices("heads", "head", data.layers[state.layer], state.head);
  at("matrix-view").hidden = state.view !== "matrix";
  at("tokens-view").hidden = state.view !== "tokens";
  at("lines-view").hidden = state.view !== "lines";
}

/** Creates radio buttons for 0 to `count - 1` if `count` has changed, and checks the chosen one. */
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

/** Returns the name of a sequence as an option, with a note if its maps are binned or missing. */
function sampleName(sample) {
  const { bin } = data.maps[sample][0];
  const note = bin === 0 ? " (predictions only)" : bin > 1 ? ` (maps in bins of ${bin})` : "";
  return isolated(data.readings[sample].sequence) + note;
}

function startControls() {
  const kinds = data.maps[0].map(({ kind }) => kind);
  at("kinds").hidden = kinds.length < 2;
  at("kinds").append(...kinds.map((kind) =>
    element("label", {}, element("input", { type: "radio", name: "kind", value: kind }), element("span", {}, KINDS[kind].name))));
  at("kinds").addEventListener("change", (event) => update({ kind: event.target.value }));
  at("left-out").hidden = data.left_out === 0;
  at("left-out").replaceChildren(`To keep the page small, it omits ${integer(data.left_out)} more ${data.left_out === 1 ? "sequence" : "sequences"}.`);
  for (const id of ["sample", "predicted-sample"]) {
    at(id).append(...data.readings.map((reading, i) => element("option", { value: i }, sampleName(i))));
    at(id).addEventListener("change", (event) => update({ sample: Number(event.target.value) }));
  }
  for (const id of ["layers", "heads"]) {
    at(id).addEventListener("change", (event) => update({ [event.target.name]: Number(event.target.value) }));
  }
  at("views").addEventListener("change", (event) => {
    // The views of tokens select the key with the largest weight.
    update({ view: event.target.value, ...(event.target.value === "matrix" ? {} : strongest()) });
  });
  at("scales").addEventListener("change", (event) => update({ scale: event.target.value }));
  followTheme(() => draw(["theme"]));
}

function drawSummary() {
  at("run").append(data.run);
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const kinds = data.maps[0].map(({ kind }) => KINDS[kind].name.toLowerCase());
  at("lead").append(`${count(data.layers.length, "layer")}, ${count(allHeads.length, "head")}${kinds.length > 1 ? ` of each kind of attention: ${kinds.slice(0, -1).join(", ")} and ${kinds.at(-1)}` : ""}`);
  // Some names mean something else in sentences.
  const nameOf = (name) => (SUMMARY_TERMS[`summary ${name}`] ? [termElement(`summary ${name}`, name)] : withTerms(name));
  at("summary").append(...data.summary.map(([name, value]) => element("div", {}, element("dt", {}, ...nameOf(name)), element("dd", {}, ...withTerms(value)))));
  const [line, ...parts] = data.circuit?.sentences ?? [];
  at("circuit").hidden = line === undefined;
  at("circuit").querySelector("summary").append(...withTerms(data.circuit?.no_circuit ? line : `Circuit: ${line}`, new Set(), { isWithinControl: true }));
  const defined = new Set();
  at("circuit").querySelector("ul").append(...parts.map((part) => element("li", {}, ...withTerms(part, defined))));
  if (data.circuit?.sequences > 1 && !data.circuit.no_circuit) {
    at("circuit").append(element("p", { class: "muted small" }, ...withTerms(`Losses of the circuit are means over ${integer(data.circuit.sequences)} sequences of the validation set, so they differ from the validation loss and its floor.`, defined)));
  }
  // The page of a single input has neither a summary nor a training curve.
  at("summary-title").closest("section").hidden = data.summary.length === 0;
  at("training-title").closest("section").hidden = data.summary.length === 0 && lossSteps.length === 0;
  at("towards-floor").hidden = loss.floor === null;
  const { weights } = data.loss;
  at("weights-note").hidden = loss.diverged === null && !weights;
  const diverged = loss.diverged === null ? "" : `The run diverged at step ${integer(loss.diverged)}. `;
  at("weights-note").replaceChildren(`${diverged}This page shows ${weights}.`);
  at("config").append(data.config);
  at("precision").append("Attention weights are stored in one byte each, accurate to 0.004 or better; other numbers have seven significant digits. Unless each head has its own, all maps of a sequence share one colour scale.");
}

if (maps().bin > 0) {
  state.query = maps().queries.length - 1;
  state.key = strongestKey(state.layer, state.head, state.query);
  state.selected = { query: state.query, key: state.key };
  state.position = data.readings[state.sample].inputs.length - 1;
}

/** Selects what was selected before the page was reloaded, if it still exists. Typed input is in the address. */
function restoreView() {
  const view = JSON.parse(kept("view") ?? "null");
  if (!view || !data.maps[view.sample]?.some(({ kind, bin }) => kind === view.kind && bin > 0) || !(view.head < data.layers[view.layer])) return;
  const { queries, keys } = maps(view.sample, view.kind);
  if (!(view.query < queries.length && view.key < keys.length && view.position < data.readings[view.sample].inputs.length)) return;
  Object.assign(state, view, { selected: { query: view.query, key: view.key } });
}

/** The parts of the page that a reload finds again. */
const PLACES = "main > section, #explorer > *, #attention > details, #thumbnails, #predictions, #loss-chart, #history";
const allDetails = () => /** @type {HTMLDetailsElement[]} */ ([...document.querySelectorAll("main details[id]")]);

/** Keeps the part in the upper half of the window, its distance from the upper edge, and the open panels. */
function keepPlace() {
  const parts = Array.from(document.querySelectorAll(PLACES)), tops = parts.map((part) => part.getBoundingClientRect().top);
  const index = parts.findLastIndex((part, at) => part.checkVisibility() && tops[at] <= window.innerHeight / 2);
  keep("place", JSON.stringify({ index, offset: tops[index], open: allDetails().filter(({ open }) => open).map(({ id }) => id) }));
}

/** Scrolls to the kept part, also while the panels above it are still drawn, until the user scrolls. */
function restorePlace() {
  const place = JSON.parse(kept("place", ["reload", "back_forward"]) ?? "null");
  if (place === null || document.body.classList.contains("single")) return;
  for (const details of allDetails()) details.open = place.open.includes(details.id);
  const part = document.querySelectorAll(PLACES)[place.index];
  if (!part?.checkVisibility()) return;
  const follow = () => window.scrollBy(0, part.getBoundingClientRect().top - place.offset);
  const observer = new ResizeObserver(follow);
  const stop = () => observer.disconnect();
  follow();
  observer.observe(document.body);
  for (const event of ["wheel", "touchmove", "pointerdown", "keydown"]) window.addEventListener(event, stop, { once: true, passive: true });
  setTimeout(stop, 1500);
}

restoreView();
window.addEventListener("pagehide", () => {
  keepPlace();
  const { sample, kind, layer, head, query, key, position, view } = state;
  keep("view", JSON.stringify({ sample, kind, layer, head, query, key, position, view }));
});
drawSummary();
startCurves();
startFilm();
startControls();
startMatrix();
startTokens();
startHeads();
startPair();
startLines();
startPredictions();
startPanels();
draw(["size", ...Object.keys(state)]);
followWidth(() => draw(["size"]));
await startLive();
restorePlace();
document.documentElement.dataset.ready = "true";
