// The residual stream at the selected position: its components, and the prediction after each layer.

/** The token whose logit is decomposed; null for the most likely token. */
let flowTarget = null;
/** The number of the last request, whose answer is shown. */
let flowRequest = 0;
/** The decomposition on display; null before the first. */
let drawnFlow = null;

const flowButtons = () => [...at("flow-drawing").querySelectorAll('[role="button"]')];

function drawFlow() {
  if (!drawnFlow || !at("flow").open) return;
  const svg = at("flow-drawing"), had = svg.contains(document.activeElement);
  drawFlowInto(svg, drawnFlow, Math.max(svg.parentElement.clientWidth, 240), (id) => live.tokenizer.token(id));
  restoreRoving(svg, flowButtons, had);
}

/** Selects the map of a head, or a token whose logit is decomposed. */
function chooseInFlow({ dataset: { kind, layer, head, id } }) {
  if (id === undefined) return update({ kind, layer: Number(layer), head: Number(head), ...(state.view === "matrix" ? {} : strongest({ layer: Number(layer), head: Number(head) })) });
  flowTarget = Number(id);
  showFlow();
}

/** Describes a part of the residual stream. */
function partInWords({ kind, layer, head }) {
  return ["embedding", "biases"].includes(kind) ? kind : componentInWords({ kind, layer, head });
}

/** Decomposes the residual stream at the selected position of the sequence on display. */
async function showFlow() {
  const canShow = Boolean(shownIds()) && live.config.architecture !== "one_layer";
  at("flow").hidden = !canShow;
  const request = ++flowRequest;
  if (!canShow || !at("flow").open) return;
  const { tokens, source = null } = shownIds();
  const position = Math.min(state.position, tokens.length - 1);
  const changes = state.sample === TYPED_SAMPLE ? await interventions(shownAnswer.input) : null;
  const found = await live.stream(tokens, { source, interventions: changes }, position, flowTarget);
  if (request !== flowRequest) return;
  const name = (id) => tokenElement(live.tokenizer.token(id));
  drawFlowTargets(found, tokens[position + 1]);
  Object.assign(at("flow-table").dataset, { position, target: found.target, logit: found.logit });
  const isLinear = found.parts[0].logit !== null;
  at("flow-title").replaceChildren("After ", name(tokens[position]), ` at position ${position}. `, ...(isLinear
    ? ["The logit of ", name(found.target), ` is ${fixed(found.logit, 2)} above the mean of all tokens; the shares below add up to it${live.config.softcap > 0 ? " before the softcap" : ""}.`]
    : ["With post-norm, the logit is not a sum of shares, so only lengths and predictions are shown."]));
  drawnFlow = found;
  drawFlow();
  const top = found.parts.reduce((most, { logit }) => Math.max(most, Math.abs(logit ?? 0)), 1e-9);
  const rows = [];
  const stage = (depth) => rows.push(stageRow(found, depth, name));
  found.parts.forEach((part, index) => {
    rows.push(partRow(part, top, found.neurons.filter((neuron) => part.kind === "feed_forward" && neuron.layer === part.layer)));
    if (part.kind === "embedding") stage(0);
    if (part.kind === "feed_forward") stage(part.layer + 1);
  });
  at("flow-table").replaceChildren(
    element("thead", {}, element("tr", {}, ...["component", "length", "share of the logit", "prediction (logit lens)"].map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows));
}

/** Creates the row of the residual stream at a depth, with the tokens that the model would predict from it. */
function stageRow({ stages, target }, depth, name) {
  const { length, probability, top } = stages[depth];
  const predicted = top.flatMap(({ id, probability: share }) => [name(id), ` ${fixed(share, 2)} `]);
  const isListed = top.some(({ id }) => id === target);
  return element("tr", { class: "stage", "data-depth": depth, "data-length": length, "data-probability": probability },
    element("th", { scope: "row" }, depth === 0 ? "residual stream" : `residual stream after layer ${depth - 1}`), element("td", {}, fixed(length, 2)), element("td", {}, ""),
    element("td", {}, ...predicted, ...(isListed ? [] : ["… ", name(target), ` ${fixed(probability, 3)}`])));
}

/** Creates the row of a component, with its most active neurons. */
function partRow(part, top, neurons) {
  const { kind, layer, head, length, logit } = part;
  const isHead = head !== null;
  const label = isHead ? element("button", { type: "button", class: "link" }, partInWords(part)) : partInWords(part);
  if (isHead) /** @type {Element} */ (label).addEventListener("click", () => update({ kind, layer, head, ...(state.view === "matrix" ? {} : strongest({ layer, head })) }));
  const bar = element("span", { class: `signed ${logit < 0 ? "negative" : ""}`, "aria-hidden": "true" }, element("i"));
  const share = 50 * Math.abs(logit ?? 0) / top;
  Object.assign(/** @type {HTMLElement} */ (bar.firstElementChild).style, { width: `${share}%`, left: `${logit < 0 ? 50 - share : 50}%` });
  const active = neurons.map((neuron) => neuronInWords(neuron, (id) => live.tokenizer.token(id), 60)).join("; ");
  return element("tr", { class: isHead && kind === state.kind && layer === state.layer && head === state.head ? "chosen" : "", "data-kind": kind, "data-layer": layer ?? "", "data-head": head ?? "", "data-length": length, "data-logit": logit ?? "" },
    element("th", { scope: "row" }, label), element("td", {}, fixed(length, 2)),
    element("td", {}, ...(logit === null ? ["–"] : [bar, fixed(logit, 2)])), element("td", { class: "muted" }, active));
}

/** Fills the list of tokens whose logit can be decomposed: the most likely ones, and the one that follows. */
function drawFlowTargets({ stages, target }, follower) {
  const ids = [...new Set([...stages.at(-1).top.map(({ id }) => id), ...(follower === undefined ? [] : [follower]), target])];
  const text = (id) => isolated(short(live.tokenizer.token(id), 20)) + (id === follower ? " (follows in the input)" : "");
  at("flow-target").replaceChildren(element("option", { value: "" }, "the most likely token"), ...ids.map((id) => element("option", { value: id }, text(id))));
  at("flow-target").value = flowTarget ?? "";
}

/** Decomposes the logit of the token in the text field; an empty field selects the most likely token. */
function chooseTypedToken() {
  const field = at("flow-token");
  const typed = tokenized(field.value);
  const isKnown = typed.length === 1 && typed[0].id !== null;
  field.setCustomValidity(field.value === "" || isKnown ? "" : typed.length > 1 ? "type one token" : "not in the vocabulary; type another token");
  field.reportValidity();
  if (field.value !== "" && !isKnown) return;
  flowTarget = field.value === "" ? null : typed[0].id;
  showFlow();
}

function startFlow() {
  at("flow").addEventListener("toggle", showFlow);
  makeRoving(at("flow-drawing"), flowButtons, chooseInFlow);
  at("flow-target").addEventListener("change", (event) => {
    flowTarget = event.target.value === "" ? null : Number(event.target.value);
    at("flow-token").value = "";
    showFlow();
  });
  at("flow-token").addEventListener("input", chooseTypedToken);
}
