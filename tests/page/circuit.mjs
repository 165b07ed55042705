// Ablates components and paths, patches activations, and reads the residual stream in reports, and compares the numbers
// with the program's. Then uses everything else that a page with a model has (points.mjs).
//
//     node tests/page/circuit.mjs CHROMIUM CASES.json
//
// CASES.json is a list of pages: `{page, text, source, tokens, source_tokens, ablations, explained, is_used}`, with the path of
// the report, the input as typed and its source or null, and the ids of both. `ablations` are the outputs of `score --json`,
// each with `components` and `by`. `explained` is the output of `explain --text --json` on the input, or null. Controls are
// used on the pages with `is_used`. Exits like explore.mjs.

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { addressWritten, check, dataset, emulate, explore, page, pointUntil, press, same, screenshot, text, type, until as untilWithin } from "./hands.mjs";
import { usePage } from "./points.mjs";

const cases = JSON.parse(readFileSync(process.argv[3], "utf8"));
const { value, key } = page;
const list = JSON.stringify;
/** Waits longer than other scripts, because patching computes many answers. */
const until = (expression, what) => untilWithin(expression, what, 500);

function near(found, wanted, what, tolerance = 1e-5) {
  check(Math.abs(found - wanted) <= tolerance * Math.max(1, Math.abs(wanted)), `${what}: found ${found}, expected ${wanted}`);
}
const average = (values) => values.reduce((sum, number) => sum + number, 0) / values.length;
const mlp = ([layer, head], isCross) => (head === null ? `${layer}.mlp` : `${isCross ? "cross." : ""}${layer}.${head}`);

/** Compares ablated losses with `score`. */
async function compareScores({ page: path, ablations }) {
  for (const { components, by, log_probabilities, loss } of ablations) {
    const found = await value(`window.model.ablate(${list(components)}, "${by}")`);
    const what = `${path}: ${components}, ${by}`;
    near(found.loss, loss, `${what}: loss`);
    log_probabilities.forEach((wanted, at) => near(-found.losses[at], wanted, `${what}: log-probability ${at}`));
  }
}

/** Compares single ablations and ablated paths with `explain`. */
async function compareExplained({ page: path, explained }) {
  if (!explained) return;
  const { positions, components, edges, model, attribution, lens } = explained;
  const lossAt = ({ losses }) => average(positions.map((position) => losses[position]));
  near(lossAt(await value(`window.model.ablate([])`)), model, `${path}: loss of the model`);
  check(components.length > 0 && edges.length > 0, `${path}: the input has a circuit with paths`);
  for (const { layer, head = null, ablated } of components) {
    near(lossAt(await value(`window.model.ablate("${mlp([layer, head])}", "input")`)), ablated, `${path}: ${layer}.${head} ablated`);
  }
  for (const { from, to, input = null, ablated } of edges) {
    near(lossAt(await value(`window.model.ablatePath("${mlp(from)}", "${mlp(to)}", ${list(input)}, "input")`)), ablated, `${path}: path ${from} to ${to}, ${input}`);
  }
  await compareStream(path, explained.next, attribution, lens);
}

/** Compares the residual stream at one position with the attribution and the lens of `explain`. */
async function compareStream(path, next, attribution, lens) {
  const position = 2;
  await press(`#chip-${position}`);
  if (await value(`!document.getElementById("flow").open`)) await press("#flow > summary");
  await until(`document.getElementById("flow-table").dataset.position === "${position}"`, "the residual stream at the position");
  await value(`(() => { const select = document.getElementById("flow-target"); select.value = "${next[position]}"; select.dispatchEvent(new Event("change", { bubbles: true })); })()`);
  await until(`document.getElementById("flow-table").dataset.target === "${next[position]}"`, "the next token as the target");
  const rows = await value(`Array.from(document.querySelectorAll("#flow-table tbody > tr"), ({ dataset }) => ({ ...dataset }))`);
  const names = { embedding: () => "embedding", biases: () => "biases", decoder: ({ layer, head }) => `layer ${layer} head ${head}`, feed_forward: ({ layer }) => `layer ${layer} feed-forward` };
  let compared = 0;
  for (const row of rows.filter(({ kind }) => kind)) {
    const part = attribution.find(({ part }) => part === names[row.kind]?.(row));
    if (!part) continue;
    compared++;
    near(Number(row.logit), part.first[position], `${path}: share of ${part.part}`);
  }
  check(compared > 3, `${path}: ${compared} shares are compared`);
  rows.filter(({ depth }) => depth).forEach(({ depth, probability }) => near(Number(probability), lens.probability[Number(depth)][position], `${path}: lens at depth ${depth}`));
}

/** Compares the shares recovered by patches with `explain`. */
async function comparePatching({ page: path, explained }) {
  if (!explained) return;
  check(explained.patching !== null, `${path}: the input can be patched`);
  const { clean, corrupted, heads, feed_forward, stream, pair } = explained.patching;
  const found = await value(`window.model.patching(${list(pair.clean)}, ${list(pair.corrupted)}, ${list(pair.answers)})`);
  near(found.clean, clean, `${path}: clean logit difference`);
  near(found.corrupted, corrupted, `${path}: corrupted logit difference`);
  // Shares of a difference of logits in single precision.
  heads.flat().forEach((share, at) => near(found.heads.flat()[at], share, `${path}: share of head ${at}`));
  feed_forward.forEach((share, at) => near(found.feed_forward[at], share, `${path}: share of feed-forward layer ${at}`));
  const first = pair.clean.findIndex((id, at) => id !== pair.corrupted[at]);
  stream.forEach((row, depth) => row.slice(first).forEach((share, at) => near(found.stream[depth][first + at], share, `${path}: share of depth ${depth}, position ${first + at}`)));
}

/** Ablates with clicks and keys, as a user does. */
async function useCircuit({ page: path, tokens, source }) {
  await press("#components > summary");
  await until(`document.querySelector("#circuit-drawing .box") && Array.from(document.querySelectorAll("#circuit-drawing .box")).every(({ dataset }) => dataset.effect !== "")`, `${path}: all components are ablated`);
  const plain = Number(await value(`document.getElementById("input-loss").dataset.loss`));
  near(Number((await dataset("circuit-drawing")).loss), plain, `${path}: the loss of the drawing`);
  const { by } = await dataset("circuit-drawing");
  const boxes = await value(`Array.from(document.querySelectorAll("#circuit-drawing .box"), ({ dataset }) => ({ ...dataset }))`);
  for (const { component, effect } of boxes.slice(0, 3)) {
    const { loss } = await value(`window.model.ablate("${component}", "${by}")`);
    near(plain + Number(effect), loss, `${path}: effect of ${component}`);
  }
  const { component, effect } = boxes.at(-1);
  await press("#chip-1");
  const { position } = await dataset("candidates-after");
  await press(`#circuit-drawing [data-component="${component}"]`);
  await until(`Math.abs(document.getElementById("input-loss").dataset.loss - ${plain + Number(effect)}) < 1e-5`, `${path}: a click on ${component} ablates it in all panels`);
  same(await value(`document.querySelector('#circuit-drawing [data-component="${component}"]').getAttribute("aria-pressed")`), "true", "and presses its box");
  same((await dataset("candidates-after")).position, position, "the selected position stays");
  check((await text("changes")).length > 0 && (await text("circuit-reading")).includes("changes from"), "the ablation is named");
  const named = await text("changes");
  check(by === "zero" || named.includes("mean over"), `the change names the mean: ${named}`);
  await value(`document.querySelector('#circuit-drawing [tabindex="0"]').focus()`);
  await key("Enter");
  await until(`Math.abs(document.getElementById("input-loss").dataset.loss - ${plain}) < 1e-6 && document.getElementById("changes").hidden`, `${path}: Enter restores it`);
  await press("#find-paths");
  await until(`document.getElementById("find-paths").ariaDisabled === "false" && document.querySelectorAll("#circuit-drawing .path").length > 0`, `${path}: paths on the input`);
  await value(`document.querySelector("#circuit-drawing .path").dispatchEvent(new MouseEvent("click", { bubbles: true }))`);
  await until(`document.getElementById("changes").textContent.includes("path from")`, `${path}: a click ablates a path`);
  await addressWritten();
  const hash = await value("location.hash");
  check(/&path=/.test(hash), `the link holds the path: ${hash}`);
  check(Math.abs(Number((await dataset("input-loss")).loss) - plain) > 1e-6, `${path}: which changes the loss`);
  await press("#restore");
  await until(`document.getElementById("changes").hidden`, "reset");
  await screenshot(`circuit-${tokens.length}-${source === null ? 1 : 2}`);
}

/** Replaces a token and restores activations, as a user does. */
async function usePatching({ page: path, tokens }) {
  await press("#patching > summary");
  check(!(await value(`document.getElementById("patching-start").hidden`)), "patching asks for a replacement");
  await press("#chip-1");
  await press("#matrix");
  await press("#exchange");
  await until(`document.querySelectorAll("#changes > li").length === 1`, `${path}: a token is exchanged`);
  await until(`!document.getElementById("patching-note").hidden || document.querySelectorAll("#patched-stream td").length > 0`, `${path}: an answer, or a position with one`);
  if (await value(`!document.getElementById("patching-note").hidden`)) {
    if (!(await value(`Boolean(document.querySelector("#patching-note button"))`))) return;
    await press("#patching-note button");
  }
  await until(`document.querySelectorAll("#patched-stream tbody tr").length === document.querySelectorAll("#layers input").length + 1`, `${path}: the residual stream is patched`);
  const { clean, corrupted, position } = await dataset("patching-reading");
  check(Number(clean) > 0 && Number(corrupted) < 0, `${path}: each answer is the most likely one on its input: ${clean}, ${corrupted}`);
  const shares = await value(`Array.from(document.querySelectorAll("#patched-stream tbody tr"), (row) => Array.from(row.querySelectorAll("td"), ({ dataset }) => Number(dataset.share)))`);
  near(shares[0].at(-1), 1, `${path}: the last layer at the position restores everything`, 1e-4);
  const first = Number(position) + 1 - shares[0].length;
  near(shares.at(-1)[0], 1, `${path}: the embedding at the replaced position ${first} restores everything`, 1e-4);
  const all = await value(`document.querySelectorAll("#patched-components button").length`);
  for (let index = 1; index <= all; index++) {
    await press(`#patched-components > li:nth-child(${index}) button`);
    await until(`document.querySelectorAll('#patched-components [aria-pressed="true"]').length === ${index}`, "one more component");
  }
  check(Number((await dataset("patching-reading")).together) > Number(corrupted), `${path}: all components together restore a part`);
  await screenshot(`patching-${tokens.length}`);
  await press("#restore");
}

/** Checks that a copied link restores the colour scale and the comparison, and that words have definitions. */
async function useLink({ page: path }) {
  await press('#scales label:has(> input[value="root"])');
  await press("#pair > summary");
  await until(`document.getElementById("other-head").options.length > 1`, "the heads to compare with");
  await value(`(() => { const select = document.getElementById("other-head"); select.value = "1 0"; select.dispatchEvent(new Event("change", { bubbles: true })); })()`);
  await until(`/&scale=root&pair=1_0_$/.test(location.hash)`, `${path}: the link holds the scale and the comparison`);
  const link = await value("document.getElementById('link').getAttribute('href')");
  await press('#scales label:has(> input[value="linear"])');
  await press("#pair > summary");
  await until(`!/&scale=/.test(location.hash)`, `${path}: the address follows`);
  await value(`location.hash = ${list(link)}`);
  await until(`document.querySelector("#scales input:checked").value === "root" && document.getElementById("pair").open && document.getElementById("other-head").value === "1 0"`, `${path}: and restores them`);
  await pointUntil('#head-scores [data-term="chance"]', `document.getElementById("definition").textContent.includes("attends to all visible keys equally")`, `${path}: the chance level is defined`);
}

const steps = cases.map((each) => async () => {
  await page.open(pathToFileURL(resolve(each.page)).href);
  if (each.source !== null) await type(each.source, "input-source");
  await type(each.text, "input-text");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${each.tokens.length} && document.getElementById("predictions").children.length === ${each.tokens.length}`, "an answer");
  same(list(await value(`Array.from(document.querySelectorAll("#chips > [data-index]"), ({ dataset }) => Number(dataset.id))`)), list(each.tokens), `${each.page}: tokens`);
  await compareScores(each);
  await compareExplained(each);
  await comparePatching(each);
  if (!each.is_used) return;
  await emulate(each.source === null ? "light" : "dark");
  await useCircuit(each);
  await usePatching(each);
  await useLink(each);
  for (const [call, reason] of [[`ablate("9.9")`, "unknown component: 9.9"], [`ablate("0.0", "median")`, "unknown ablation: median"], [`ablatePath("1.0", "0.0", "key")`, "must come later"], [`ablatePath("0.0", "1.0", "keys")`, "does not have the input"], [`patching([1], [1, 2], [0, 1])`, "same length"]]) {
    const reply = await value(`window.model.${call}.then(() => "nothing", String)`);
    check(reply.includes(reason), `${call} is refused: ${reply}`);
  }
  await usePage(resolve(each.page), each.text.split(" ").slice(0, 5).join(" "));
});
await explore(process.argv[3], steps);
