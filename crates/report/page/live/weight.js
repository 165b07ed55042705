// The computation of the selected weight: one step per operation, from the query and the key to the output of the head.

/** The number of keys in the short table of scores. */
const LISTED_KEYS = 6;

/** Returns the cell whose weight is shown; null if the page cannot compute it. */
function selectedCell() {
  const { kind, layer, head, selected: { query, key } } = state;
  return maps().bin === 1 && shownIds() ? { kind, layer, head, query, key } : null;
}

/** Computes the weight of a cell on the sequence on display. Only the typed sequence has changes. */
async function trace(cell) {
  const { tokens, source } = shownIds();
  const changes = state.sample === TYPED_SAMPLE ? await interventions(shownAnswer.input) : null;
  return live.trace(tokens, { source, interventions: changes }, cell);
}

/** Opens the computation of the selected weight. */
function openWeight({ hasFocus = false } = {}) {
  if (!selectedCell()) return;
  const wasOpen = state.isOpen;
  update({ isOpen: true });
  if (!wasOpen) at("weight").scrollTop = 0;
  if (hasFocus) at("weight").focus({ preventScroll: true });
  if (hasFocus || !wasOpen) at("weight-pair").scrollIntoView({ block: "nearest" });
}

function closeWeight() {
  update({ isOpen: false });
  at(state.view === "matrix" ? "matrix" : "weight-open").focus();
}

/** The number of the last request, whose answer is shown. */
let weightRequest = 0;
/** The cell whose computation is shown, with its numbers; null before the first. */
let shownWeight = null;
/** The key that was chosen for comparison, and the query that it belongs to. */
let comparison = { key: null, query: null };

async function showWeight() {
  const cell = selectedCell();
  at("weight-open").hidden = !cell;
  at("weight").hidden = !cell || !state.isOpen;
  const request = ++weightRequest;
  if (at("weight").hidden) return;
  const [queryToken, keyToken] = [[maps().queries, cell.query], [maps().keys, cell.key]].map(([cells, index]) => cellInWords(cells[index]));
  const cells = maps().keys;
  const traced = await trace(cell);
  const rival = rivalOf(traced, cell);
  const rivalProducts = rival === null ? null : (await trace({ ...cell, key: rival })).products;
  if (request !== weightRequest) return;
  at("weight-pair").replaceChildren(`${componentInWords(cell)}: query `, ...queryToken, ", key ", ...keyToken);
  Object.assign(at("weight").dataset, { ...cell, score: traced.score, weight: traced.weight });
  shownWeight = { cell, traced };
  at("weight-steps").replaceChildren(...weightSteps({ ...traced, rival, rivalProducts }, cell, cells).map(({ step, title, text, formula, parts = [] }) =>
    element("li", { "data-step": step }, element("h4", {}, title), element("p", {}, ...text), element("p", { class: "formula" }, formula), ...parts)));
  fitVectors();
  for (const box of at("weight-steps").querySelectorAll(".scroll")) showWithin(box, box.querySelector("tr.chosen"));
}

/** The length of the vectors of a table, and the function that creates the rows of the table with a number of columns. */
const vectorRows = new WeakMap();

/** Divides the vectors of each table into as few rows of equal length as fit the panel. */
function fitVectors() {
  for (const table of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("#weight:not([hidden]) .vectors"))) {
    const { length, rows } = vectorRows.get(table);
    // A single row of all numbers has the widths that the cells need.
    table.replaceChildren(...rows(length));
    const widest = (cells) => Math.max(...Array.from(table.querySelectorAll(cells), (cell) => cell.getBoundingClientRect().width));
    const room = table.closest("li").clientWidth - widest("tr > :first-child");
    const fitting = Math.max(Math.floor(room / widest("tr > :not(:first-child)")), 1);
    table.replaceChildren(...rows(Math.ceil(length / Math.ceil(length / fitting))));
  }
}

/**
 * Creates a table of vectors, one per row; `fitVectors` divides them into further rows. The background of a number shows
 * its sign and its size, relative to the largest number of the table, or of the row if the row `isApart`.
 */
function vectorTable(label, rows) {
  const top = (some) => some.reduce((most, { values }) => values.reduce((most, value) => Math.max(most, Math.abs(value)), most), 1e-9);
  const shared = top(rows.filter(({ isApart }) => !isApart));
  const scaled = rows.map((row) => ({ ...row, most: row.isApart ? top([row]) : shared }));
  const cell = (value, most) => {
    const cell = element("td", { class: value < 0 ? "negative" : "positive" }, fixed(value, 2));
    cell.style.setProperty("--share", `${(Math.min(Math.abs(value) / most, 1) * 40).toFixed(1)}%`);
    return cell;
  };
  const { length } = rows[0].values;
  const bands = (columns) => Array.from({ length: Math.ceil(length / columns) }, (_, band) => {
    const [start, end] = [band * columns, Math.min((band + 1) * columns, length)];
    const indices = Array.from({ length: end - start }, (_, k) => element("th", { scope: "col" }, String(start + k)));
    return element("tbody", {}, element("tr", {}, element("th", { scope: "col" }, "index"), ...indices),
      ...scaled.map(({ name, values, most }) => element("tr", {}, element("th", { scope: "row" }, name), ...values.slice(start, end).map((value) => cell(value, most)))));
  });
  const table = element("table", { class: "vectors" });
  vectorRows.set(table, { length, rows: bands });
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, table);
}

const norm = (vector) => Math.hypot(...vector);
/** Formats a number as a term of a sum, in parentheses if it is negative. */
function term(number, digits = 2) {
  const text = fixed(number, digits);
  return text.startsWith("−") ? `(${text})` : text;
}
/** Formats a number from 0 to 1 with four decimals, or with two digits if it is smaller. */
const shareText = (number) => (number > 0 && number < 5e-5 ? significant(Number(number.toPrecision(2))) : fixed(number, 4));
/** Formats a factor with three digits. */
const factor = (number) => (number >= 1e3 && number < 1e6 ? integer : significant)(Number(number.toPrecision(3)));

/**
 * Returns the steps, each with its name, title, sentence, formula, and tables.
 *
 * @returns {{step: string, title: string, text: any[], formula: string, parts?: Element[]}[]}
 */
function weightSteps(traced, { kind, query, key }, cells) {
  const { visible: [first, end], scale, bias, cap, unbounded, score, differential } = traced;
  const width = traced.query.length;
  const sum = traced.products.reduce((total, product) => total + product, 0);
  const isHidden = key < first || key >= end;
  const [plain, used] = [traced.unrotated ?? traced, traced];
  /** @type {ReturnType<typeof weightSteps>} */
  const steps = [{
    step: "vectors", title: "Query and key", text: [`The head computes ${width} numbers from the vector x of each position: at the query, what it looks for, and at the key, what it offers.${live.config.qk_norm && kind !== "cross" ? " Both are normalised (QK norm)." : ""}${differential ? " These are the first halves, of which the first of two maps is computed." : ""}`],
    formula: traced.hasBias ? "q = x_query W_Q + b_Q,  k = x_key W_K + b_K" : "q = x_query W_Q,  k = x_key W_K", parts: [vectorTable("Query and key", [{ name: "query q", values: plain.query }, { name: "key k", values: plain.key }])],
  }];
  if (traced.unrotated) {
    steps.push({
      step: "rotation", title: "Rotation by position", text: ["Each pair of numbers is rotated by an angle that grows with the position, so the product below depends on the distance."],
      formula: `q′ = R(${query}) q,  k′ = R(${key}) k,  distance ${query - key}`, parts: [vectorTable("Query and key after the rotation", [{ name: "query q′", values: used.query }, { name: "key k′", values: used.key }])],
    });
  }
  const [q, k] = traced.unrotated ? ["q′", "k′"] : ["q", "k"];
  const terms = traced.products.slice(0, 3).map((product) => term(product)).join(" + ");
  steps.push({
    step: "products", title: "Dot product", text: ["Each number of the query is multiplied by the number of the key in the same column. The sum is large if both vectors point in the same direction."],
    formula: `${q} · ${k} = ${terms}${width > 3 ? " + …" : ""} = ${fixed(sum, 3)}`, parts: [vectorTable("Products of query and key", [{ name: `query ${q}`, values: used.query }, { name: `key ${k}`, values: used.key }, { name: `${q} × ${k}`, values: traced.products, isApart: true }])],
  }, {
    step: "scale", title: "Scale", ...(live.config.attention_scale && kind !== "cross" ? {
      text: ["The sum is multiplied by the attention scale of this model."],
      formula: `${significant(Number((1 / scale).toPrecision(4)))} × ${q} · ${k} = ${fixed(sum / scale, 3)}`,
    } : {
      text: [`The sum is divided by √d_head, the root of the ${width} numbers per vector, so that heads with more numbers do not have larger scores.`],
      formula: `${q} · ${k} / √${width} = ${fixed(sum, 3)} / ${fixed(scale, 3)} = ${fixed(sum / scale, 3)}`,
    }),
  });
  if (traced.aboutBias !== null) {
    steps.push({
      step: "bias", title: "Position bias", text: [traced.aboutBias],
      formula: `score = ${fixed(sum / scale, 3)} + ${term(bias, 3)} = ${fixed(unbounded, 3)},  distance ${fixed(query - key, 0)}`,
    });
  }
  if (cap !== null) {
    steps.push({
      step: "cap", title: "Softcap", text: ["A smooth bound: scores near zero hardly change, and none exceeds the cap."],
      formula: `score = ${fixed(cap, 1)} tanh(${fixed(unbounded, 3)} / ${fixed(cap, 1)}) = ${fixed(score, 3)}`,
    });
  }
  const count = end - first;
  steps.push({
    step: "mask", title: "Mask", text: [kind === "decoder"
      ? `A query sees its own token and ${live.config.window && first > 0 ? `the ${count - 1} before it` : "earlier ones"}: ${count} of ${traced.scores.length} keys. The scores of the others are replaced by −∞.`
      : `No key is hidden: the query sees all ${count} keys.`],
    formula: isHidden ? `this key ${key < first ? "lies before the window" : "comes after the query"}: score ${fixed(score, 3)} → −∞` : `this key is visible: score ${fixed(score, 3)}`,
  }, softmaxStep(differential ? { ...traced, ...differential.first, isFrozen: false } : traced, { query, key }, cells), ...differenceSteps(traced, key), ...outputSteps(traced, key, cells));
  return steps;
}

/** Returns the steps from the first map of a differential head to its weight: the second map, and the difference. */
function differenceSteps({ differential: second, weight, isFrozen, visible }, key) {
  if (!second) return [];
  const { first, lambda, products } = second;
  const sum = products.reduce((total, product) => total + product, 0);
  return [{
    step: "second", title: "Second map", text: ["The second halves of the query and of the key have a score of their own, and the softmax of these scores is a second map."],
    formula: `q₂ · k₂ = ${fixed(sum, 3)},  score ${fixed(second.score, 3)},  weight ${shareText(second.weight)}`,
    parts: [rowBars(second.scores, second.weights, key, visible), vectorTable("Products of the second halves", [{ name: "query q₂", values: second.query }, { name: "key k₂", values: second.key }, { name: "q₂ × k₂", values: products, isApart: true }])],
  }, {
    step: "difference", title: "Difference", text: [isFrozen ? "The pattern of this head is frozen, so its weight does not follow from the two maps."
      : `The second map, times λ = ${fixed(lambda, 4)} of this layer, is subtracted from the first one. It cancels what both maps give to irrelevant keys, and the weight can be negative.`],
    formula: isFrozen ? `frozen weight = ${shareText(weight)}` : `weight = ${shareText(first.weight)} − ${fixed(lambda, 4)} × ${shareText(second.weight)} = ${shareText(weight)}`,
  }];
}

/** Returns the step from the row of scores to the row of weights. */
function softmaxStep(traced, { query, key }, cells) {
  const { scores, weights, sink, visible: [first, end], isFrozen } = traced;
  const seen = cells.map((cell, index) => ({ cell, index })).slice(first, end);
  const largestScore = seen.reduce((most, { index }) => Math.max(most, scores[index]), sink ?? -Infinity);
  const ofSink = sink === null ? 0 : Math.exp(sink - largestScore);
  const total = seen.reduce((sum, { index }) => sum + Math.exp(scores[index] - largestScore), ofSink);
  const order = seen.toSorted((a, b) => scores[b.index] - scores[a.index]);
  const isHidden = key < first || key >= end;
  const listed = [...order.slice(0, LISTED_KEYS), ...order.slice(LISTED_KEYS).filter(({ index }) => index === key)];
  const table = (rows, label) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, element("table", {},
    element("thead", {}, element("tr", {}, ...[["key"], ["position"], ["score"], ["exp(", element("wbr"), "score − max)"], ["weight"]].map((name) => element("th", { scope: "col" }, ...name)))),
    element("tbody", {}, ...rows.map(({ cell, index }) => element("tr", index === key ? { class: "chosen" } : {},
      element("th", { scope: "row" }, index === key ? tokenElement(cell.text) : comparing(cell, { query, key: index }, traced)), element("td", {}, cell.positions), element("td", {}, fixed(scores[index], 3)),
      element("td", {}, shareText(Math.exp(scores[index] - largestScore))), element("td", {}, shareText(weights[index])))))));
  const parts = [rowBars(scores, weights, key, [first, end]), element("p", { id: "weight-rival", class: "small" }, ...rivalInWords(traced, key, cells)), table(listed, "The keys with the highest scores"), ...rivalTable(traced, key, cells)];
  if (seen.length > listed.length) parts.push(element("details", {}, element("summary", { class: "small" }, `All ${seen.length} visible keys`), table(seen, "All visible keys")));
  return {
    step: "softmax", title: "Softmax", text: [isFrozen ? "The pattern of this head is frozen, so the weights below are the frozen ones and do not follow from these scores."
      : sink !== null ? `Softmax turns the scores of all visible keys, and the sink of this head (${fixed(sink, 3)}), into weights that sum to 1. The sink takes ${shareText(ofSink / total)}, which reads no token.`
        : "Softmax turns the scores of all visible keys into weights that sum to 1. A score that is higher by 1 has a weight that is 2.7 times as large. The largest score is subtracted first, which changes no weight."],
    formula: isFrozen ? `frozen weight = ${shareText(weights[key])}` : isHidden ? "weight = exp(−∞) = 0"
      : `weight = exp(${fixed(scores[key], 3)} − ${term(largestScore, 3)}) / ${fixed(total, 3)} = ${shareText(weights[key])}`,
    parts,
  };
}

/** Creates the button that compares the selected key with another one. */
function comparing({ text }, other, { rival }) {
  const button = element("button", { type: "button", class: "compared", "aria-pressed": other.key === rival, "aria-label": `compare with ${text} at ${other.key}` }, tokenElement(text));
  button.addEventListener("click", async () => {
    comparison = other;
    await showWeight();
    /** @type {HTMLElement | null} */ (at("weight").querySelector(".compared[aria-pressed=true]"))?.focus({ preventScroll: true });
  });
  return button;
}

/**
 * Returns the key that was chosen for comparison, else the one with the highest score, or the second highest if `key` has
 * the highest; null without another visible key.
 */
function rivalOf({ scores, visible: [first, end] }, { query, key }) {
  if (key < first || key >= end || end - first < 2) return null;
  const { key: chosen } = comparison;
  if (comparison.query === query && chosen !== key && chosen >= first && chosen < end) return chosen;
  return largest(scores.slice(first, end), 2).map((index) => first + index).find((index) => index !== key);
}

/** Compares a key with its rival. */
function rivalInWords({ scores, rival, visible: [first, end] }, key, cells) {
  if (rival === null) return [];
  const seen = scores.slice(first, end);
  const [highest, second] = largest(seen, 2).map((index) => first + index);
  const lead = scores[key] - scores[rival];
  const times = `exp(${fixed(Math.abs(lead), 3)}) = ${factor(Math.exp(Math.abs(lead)))}`;
  const other = cellInWords(cells[rival]);
  if (lead < 0) return [rival === highest ? "The key with the highest score is " : "The other key is ", ...other, `. Its score is higher by ${fixed(-lead, 3)}, so its weight is ${times} times as large.`];
  const start = key === highest ? "This key has the highest score. " : "";
  const isNext = key === highest && rival === second;
  return [start + (isNext ? "The second highest, of " : "The score of "), ...other, `${isNext ? "," : ""} is lower by ${fixed(lead, 3)}, so this weight is ${times} times as large. Choose a token in the table to compare another key.`];
}

/** Shows which products decide between a key and its rival. */
function rivalTable({ scores, products, scale, cap, rival, rivalProducts }, key, cells) {
  if (rival === null) return [];
  const differences = products.map((product, k) => product - rivalProducts[k]);
  const lead = differences.reduce((sum, difference) => sum + difference, 0) / scale;
  const ofBias = scores[key] - scores[rival] - lead;
  const bias = Math.abs(ofBias) < 5e-4 ? "" : `; ${cap === null ? "the position biases differ by" : "position biases and softcap change this by"} ${fixed(ofBias, 3)}`;
  const rows = [{ name: `q × k, key at ${cells[key].positions}`, values: products }, { name: `q × k, key at ${cells[rival].positions}`, values: rivalProducts }, { name: "difference", values: differences, isApart: true }];
  return [element("p", { class: "small" }, `The products of both keys differ by ${fixed(lead * scale, 3)} in sum, which is ${fixed(lead, 3)} after the division by ${fixed(scale, 3)}${bias}.`), vectorTable("Products of this key and of the other one", rows)];
}

/** Draws the scores of a query as bars around zero, and its weights as bars below them. */
function rowBars(scores, weights, key, [first, end]) {
  const seen = scores.slice(first, end);
  const [low, high] = [Math.min(0, ...seen), Math.max(0, ...seen)];
  const range = high - low || 1;
  const svg = svgElement("svg", { class: "row-bars", viewBox: `${first} 0 ${Math.max(end - first, 12)} 100`, preserveAspectRatio: "none", role: "img", "aria-label": "Scores of all visible keys (top) and their weights (bottom), by position" });
  const bar = (index, y, height, name) => svg.append(svgElement("rect", { x: index + 0.1, width: 0.8, y, height: Math.max(height, 0.6), class: `${name}${index === key ? " chosen" : ""}` }));
  for (let index = first; index < end; index++) {
    const y = (value) => 45 * (high - value) / range;
    bar(index, y(Math.max(scores[index], 0)), 45 * Math.abs(scores[index]) / range, scores[index] < 0 ? "negative" : "positive");
    bar(index, 100 - 45 * weights[index], 45 * weights[index], "weight");
  }
  return element("div", { class: "rows" }, element("span", { class: "muted small" }, "scores"), svg, element("span", { class: "muted small" }, "weights"));
}

/** Returns the steps from the weight to the output of the head. */
function outputSteps({ weight, value, context, gate, output, stream, strength, weights, isReplaced, differential }, key, cells) {
  const added = value.map((number) => number * weight);
  const ungated = context.map((number, k) => (strength === 0 || gate?.[k] === 0 ? number : number / strength / (gate?.[k] ?? 1)));
  /** @type {ReturnType<typeof weightSteps>} */
  const steps = [{
    step: "value", title: "Weight times value", text: ["The key also has a value: the numbers that are copied if the query attends to it. The head adds up the values of all keys, each multiplied by its weight."],
    formula: `z = Σ weight × v;  this key: ${shareText(weight)} × v`,
    // The sum is unknown if it is multiplied by zero.
    parts: [vectorTable("Value, weighted value and sum", [{ name: "value v", values: value }, { name: `${shareText(weight)} × v`, values: added },
      ...(strength === 0 ? [] : [{ name: "sum z", values: differential ? differential.sum.map((number) => number / strength) : ungated }])])],
  }];
  if (differential) {
    steps.push({
      step: "norm", title: "Norm", text: ["The difference of two maps has a changing scale, so an RMS norm of the sum follows. The factor 1 − λ_init of this layer keeps the output as large as in plain attention."],
      formula: `z′ = ${fixed(1 - differential.lambdaInit, 4)} RMSNorm(z)`, parts: [vectorTable("Normalised sum", [{ name: "z′", values: ungated }])],
    });
  }
  if (strength !== 1) {
    steps.push({ step: "strength", title: "Your change", text: [isReplaced ? "This head is mean-ablated here, so its output is its mean." : strength === 0 ? "This head is zero-ablated here, so its output is zero." : `The output of this head is multiplied by ${fixed(strength, 2)} here.`], formula: isReplaced ? "output = mean of the head" : `z′ = ${fixed(strength, 2)} z` });
  }
  if (gate) {
    steps.push({
      step: "gate", title: "Gate", text: ["A sigmoid of a linear function of x at the query multiplies the sum: a gate of 0 discards what the head has read."],
      formula: "z′ = sigmoid(x_query W_gate) z", parts: [vectorTable("Gates and gated sum", [{ name: "gate", values: gate }, { name: "gated sum z′", values: context }])],
    });
  }
  const hasStream = live.config.architecture !== "one_layer";
  const most = largest(weights, 1)[0];
  const numbers = isReplaced ? "This mean has" : "The output projection turns these numbers into";
  const product = isReplaced ? "output = mean of the head" : strength !== 1 || gate || differential ? "output = z′ W_O" : "output = z W_O";
  // The highest weight says nothing about a head whose output is replaced.
  const highest = isReplaced || strength === 0 ? [] : [" The highest weight of this query is on ", ...cellInWords(cells[most]), "."];
  steps.push({
    step: "output", title: hasStream ? "Output to the residual stream" : "Output", text: [hasStream
      ? `${numbers} ${output.length} numbers, which are added to the residual stream at the query${live.config.norm === "pre" ? "" : live.config.norm === "post" ? " before its norm" : " after a norm"}.`
      : `${numbers} ${output.length} numbers.`, ...highest],
    formula: `${product},  length ${fixed(norm(output), 2)}${hasStream ? `;  residual stream before: length ${fixed(norm(stream), 2)}` : ""}`,
    parts: [vectorTable("Output of the head", [{ name: "output", values: output }])],
  });
  return steps;
}

function startWeight() {
  at("weight-open").addEventListener("click", () => openWeight({ hasFocus: true }));
  at("weight-close").addEventListener("click", closeWeight);
  at("weight").addEventListener("keydown", (event) => event.key === "Escape" && closeWeight());
}
