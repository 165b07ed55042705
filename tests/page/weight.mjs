// Opens the computation of attention weights and the residual stream in reports, and compares the numbers with the
// program's.
//
//     node tests/page/weight.mjs CHROMIUM CASES.json
//
// CASES.json is a list of pages: `{page, text, source, source_tokens, tokens, steps, sites, weights}`, with the
// path of the report, the input as typed and its source or null, the ids of both, the steps that the panel must have,
// the activations of the program by site (`{shape, values}`), and the weights of `inspect --json` by kind,
// [layer][head][query][key]. Models are pre-norm. Exits like explore.mjs.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, choose, dataset, emulate, explore, middle, page, press, same, screenshot, text, type, until } from "./hands.mjs";

const cases = JSON.parse(readFileSync(process.argv[3], "utf8"));
const { value, click, key } = page;


function close(found, wanted, what) {
  const numbers = (given) => [given].flat();
  const far = numbers(wanted).findIndex((number, at) => !(Math.abs(number - numbers(found)[at]) <= 1e-5));
  check(numbers(found).length === numbers(wanted).length && far < 0, `${what}: found ${found}, expected ${wanted}`);
}

/** Returns the part of an activation at the given indices. */
function part({ shape, values }, ...indices) {
  const size = (from) => shape.slice(from).reduce((product, side) => product * side, 1);
  const from = indices.reduce((sum, index, axis) => sum + index * size(axis + 1), 0);
  return values.slice(from, from + size(indices.length));
}

const PREFIXES = { decoder: "attn", cross: "cross", encoder: "encoder.attn" };

/** Compares the numbers of `window.model.weight` with the program's. */
async function compareNumbers({ page: path, sites, weights }) {
  for (const [kind, layers] of Object.entries(weights)) {
    for (const [layer, heads] of layers.entries()) {
      for (const [head, map] of heads.entries()) {
        const last = [map.length - 1, map[0].length - 1];
        for (const [query, key_] of [last, [last[0], 0], [1, 1], [0, last[1]]]) {
          const found = await value(`window.model.weight(${layer}, ${head}, ${query}, ${key_}, "${kind}")`);
          const what = `${path}: ${kind}, layer ${layer}, head ${head}, query ${query}, key ${key_}`;
          const site = (name, ...indices) => part(sites[`${PREFIXES[kind]}.${layer}.${name}`], ...indices);
          close(found.weight, map[query][key_], `${what}: weight`);
          close(found.weights, map[query], `${what}: all weights of the query`);
          // A differential head has two maps.
          const map_ = found.differential ? 2 * head : head;
          close(found.score, site("scores", map_, query, key_)[0], `${what}: score`);
          if (found.differential) {
            close(found.differential.score, site("scores", map_ + 1, query, key_)[0], `${what}: score of the second map`);
            close([found.differential.first.weights, found.differential.weights].flat(), [site("parts", map_, query), site("parts", map_ + 1, query)].flat(), `${what}: both maps`);
          }
          close(found.value, site("v", head, key_), `${what}: value`);
          close(found.output, site("out", head, query), `${what}: output`);
          const plain = found.unrotated ?? found;
          close(plain.query, site("q", head, query).slice(0, found.query.length), `${what}: query`);
          close(plain.key, site("k", head, key_).slice(0, found.key.length), `${what}: key`);
          close(found.products, found.query.map((number, k) => number * found.key[k]), `${what}: products`);
          const sum = found.products.reduce((total, product) => total + product, 0);
          close(found.score, sum / Math.sqrt(found.query.length) + found.bias, `${what}: the score is the scaled sum and the bias`);
        }
      }
    }
  }
}

/** Opens the panel by a click and by keys, and checks that it shows the computed numbers. */
async function usePanel({ page: path, tokens, steps, weights }) {
  const kind = Object.keys(weights).at(-1);
  const keys = weights[kind][0][0][0].length;
  if (kind !== "decoder") await press(`label:has(> input[name="kind"][value="${kind}"])`);
  const { left, top } = await middle("#matrix");
  const layout = await dataset("matrix");
  const [query, key_] = [Number(layout.queries) - 1, Math.min(1, keys - 1)];
  await click(left + Number(layout.left) + (key_ + 0.5) * layout.cell, top + Number(layout.top) + (query + 0.5) * layout.cell);
  await until(`document.getElementById("weight").dataset.query === "${query}" && document.getElementById("weight").dataset.key === "${key_}"`, "a click on a cell opens its computation");
  const shown = await dataset("weight");
  const asked = await value(`window.model.weight(${shown.layer}, ${shown.head}, ${query}, ${key_}, "${kind}")`);
  same(`${shown.weight} ${shown.score}`, `${asked.weight} ${asked.score}`, `${path}: the panel has the numbers of window.model`);
  const names = await value(`Array.from(document.querySelectorAll("#weight-steps > li"), ({ dataset }) => dataset.step).join(" ")`);
  same(names, steps, `${path}: steps`);
  const cells = await value(`Array.from(document.querySelectorAll('#weight-steps > [data-step="products"] tbody tr:last-child td'), (cell) => Number(cell.textContent.replace("−", "-")))`);
  check(cells.length === asked.products.length && cells.every((cell, k) => Math.abs(cell - asked.products[k]) <= 0.00501), `${path}: products in the table: ${cells}`);
  const formula = await text("weight-steps");
  const [first] = asked.products;
  const digits = Math.abs(first).toFixed(2);
  const term = first < 0 && Number(digits) !== 0 ? `(−${digits})` : digits;
  check(formula.includes(`= ${term} + `), `${path}: the formula of the dot product begins with ${term}: ${formula}`);
  // Small weights have two digits.
  const shownWeight = asked.weight > 0 && asked.weight < 5e-5 ? Number(asked.weight.toPrecision(2)).toExponential() : asked.weight.toFixed(4).replace("-", "−");
  check(formula.includes(`= ${shownWeight}`), `${path}: the formula of the weight ends with ${shownWeight}`);

  const rivals = await value(`Array.from(document.querySelectorAll("#weight .compared"), (button) => button.getAttribute("aria-pressed")).join(" ")`);
  if (rivals.includes("false")) {
    const chosen = `#weight-steps .compared[aria-pressed="false"]`;
    const score = await value(`Number(document.querySelector('${chosen}').closest("tr").children[2].textContent.replace("−", "-"))`);
    const name = await value(`document.querySelector('${chosen}').ariaLabel`);
    await press(chosen);
    await until(`document.activeElement.ariaLabel === "${name}" && document.activeElement.ariaPressed === "true"`, "the chosen key is compared");
    const lead = Math.abs(asked.score - score);
    const sentence = await text("weight-rival");
    const stated = Number(/(?:lower|higher) by (\d+\.\d+)/.exec(sentence)?.[1]);
    check(Math.abs(stated - lead) <= 0.0011, `${path}: the compared score differs by ${lead}: ${sentence}`);
  }

  await press("#weight-close");
  same(await value(`document.getElementById("weight").hidden`), true, "the panel closes");
  same(await value(`document.activeElement.id`), "matrix", "the map has the focus");
  await key("ArrowLeft");
  await key("Enter");
  await until(`document.getElementById("weight").dataset.key === "${Math.max(key_ - 1, 0)}" && !document.getElementById("weight").hidden`, "Enter opens the computation of the cell");
  same(await value(`document.activeElement.id`), "weight", "the panel has the focus");
  const scheme = cases.findIndex(({ page: other }) => other === path) % 2 === 0 ? "light" : "dark";
  await emulate(scheme);
  await screenshot(`weight-${scheme}-${steps.length}`);
  await emulate("usual");
  // Another head, and a shorter input, with the panel open.
  await press(`label:has(> input[name="head"][value="0"])`);
  await until(`document.getElementById("weight").dataset.head === "0"`, "the panel follows the head");
  await value(`document.getElementById("weight").focus()`);
  await key("Escape");
  same(await value(`document.getElementById("weight").hidden`), true, "Escape closes the panel");
  if (kind !== "decoder") return;
  await choose("ablate-head-by", "zero");
  await press("#switch-off");
  await until(`document.getElementById("changes").textContent.includes("zero-ablated")`, "the head is off");
  const off = await value(`window.model.weight(${shown.layer}, 0, ${tokens.length - 1}, 0)`);
  check(off.output.every((number) => number === 0), "the output of a head that is off is zero");
}

/** Compares the components of the residual stream with the program's, and their shares with the logit. */
async function compareFlow({ page: path, tokens, source_tokens: ids, sites }) {
  await press("#chip-1");
  await press("#flow > summary");
  await until(`document.getElementById("flow-table").dataset.position === "1"`, "the residual stream at the selected position");
  const { target, logit } = await dataset("flow-table");
  const rows = await value(`Array.from(document.querySelectorAll("#flow-table tbody > tr"), ({ dataset }) => ({ ...dataset }))`);
  const parts = rows.filter(({ kind }) => kind), stages = rows.filter(({ depth }) => depth);
  for (const { kind, layer, head, length } of parts) {
    const [name, ...indices] = { decoder: ["attn", Number(head), 1], cross: ["cross", Number(head), 1], feed_forward: ["mlp", 1] }[kind] ?? [];
    if (name) close(Number(length), Math.hypot(...part(sites[`${name}.${layer}.out`], ...indices)), `${path}: length of ${kind} ${layer} ${head}`);
  }
  const given = ids === null ? JSON.stringify(tokens) : `${JSON.stringify(ids)}, ${JSON.stringify(tokens)}`;
  const [logits, probabilities] = await value(`window.model.forward(${given}).then(({ logits, probabilities }) => [logits[1], probabilities[1]])`);
  const mean = logits.reduce((total, number) => total + number, 0) / logits.length;
  close(Number(logit), logits[target] - mean, `${path}: logit above the mean`);
  close(Number(stages.at(-1).probability), probabilities[target], `${path}: probability after the last layer`);
  same(probabilities.filter((probability) => probability > probabilities[target]).length, 0, `${path}: the target is the most likely token`);
  const sum = parts.reduce((total, { logit: share }) => total + Number(share), 0);
  close(sum, Number(logit), `${path}: the shares add up to the logit`);
  await screenshot(`flow-${parts.length}`);
  const boxes = await value(`Array.from(document.querySelectorAll("#flow-drawing .part"), ({ dataset }) => ({ ...dataset }))`);
  same(boxes.map(({ kind, layer, head, logit }) => [kind, layer, head, logit].join()).join("; "), parts.map(({ kind, layer, head, logit }) => [kind, layer, head, logit].join()).join("; "), `${path}: the drawing has the numbers of the table`);
  const other = await value(`Number(document.querySelector('#flow-drawing .predicted[aria-pressed="false"]').dataset.id)`);
  await press(`#flow-drawing .predicted[data-id="${other}"]`);
  await until(`document.getElementById("flow-table").dataset.target === "${other}"`, `${path}: a predicted token in the drawing is decomposed`);
  check(await value(`document.querySelector("#flow-drawing .neuron").textContent.includes(" at ")`), `${path}: neurons name the tokens that drive them`);
  // The kind of attention is named if there are several.
  const kind = await value(`document.querySelectorAll("#kinds input").length > 1`) ? "decoder self-attention, " : "";
  await press(`#flow-drawing .part[data-kind="decoder"][data-layer="1"][data-head="1"]`);
  same(await value(`document.getElementById("chosen").textContent`), `${kind}layer 1, head 1`, "a head in the drawing selects its map");
  await press("#flow > details > summary");
  await press("#flow-table .link");
  same(await value(`document.getElementById("chosen").textContent`), `${kind}layer 0, head 0`, "a head in the table selects its map");
  await press("#flow > summary");
}

const steps = cases.map((each) => async () => {
  await page.open(pathToFileURL(resolve(each.page)).href);
  if (each.source !== null) await type(each.source, "input-source");
  await type(each.text, "input-text");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${each.tokens.length} && document.getElementById("predictions").children.length === ${each.tokens.length}`, "an answer");
  await until(`document.getElementById("sample").selectedOptions[0]?.textContent === "your input"`, "the panels show the input");
  await compareNumbers(each);
  await compareFlow(each);
  await usePanel(each);
  const reply = await value(`window.model.weight(0, 0, 0, 999).then(() => "nothing", String)`);
  check(reply.includes("unknown cell: query 0, key 999"), `a cell outside the map is refused: ${reply}`);
});
await explore(process.argv[3], steps);
