// Checks what single panels say and where they are: names, numbers, titles, and places in windows of several widths.
//
//     node tests/page/views.mjs CHROMIUM DECODER.html TRANSLATOR.html UNTRAINED.html INTERRUPTED.html INSPECTED.html
//
// The decoder has two layers, a replay and a circuit; the translator is an encoder-decoder that answers its input; the
// circuit of the untrained run has nothing to explain. The interrupted run is the decoder without ablations of its heads.
// The page of `inspect` has no circuit. All read integers, and the folders of the first two contain `circuit.json`. Exits like explore.mjs.

import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, choose, dataset, explore, lowestContrast, page, pointUntil, press, same, settled, text, type, until } from "./hands.mjs";
import { rowsOf, savePanels } from "./panels.mjs";

const [decoder, translator, untrained, interrupted, inspected] = process.argv.slice(3).map((path) => pathToFileURL(resolve(path)).href);
const { value, click } = page;
const size = (width, height = 800) => page.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
const radio = (name, option) => `label:has(> input[name="${name}"][value="${option}"])`;
const isWithin = (a, b) => a.right <= b.left + 1;

/** Clicks a cell of the map without scrolling to it. */
async function clickCell(query, key) {
  const { left, top, map } = await value(`(() => { const { left, top } = document.getElementById("matrix").getBoundingClientRect(); return { left, top, map: { ...document.getElementById("matrix").dataset } }; })()`);
  await click(left + Number(map.left) + (key + 0.5) * map.cell, top + Number(map.top) + (query + 0.5) * map.cell);
}

/** Checks that map and computation are on the screen together after a click. */
async function clickIntoView() {
  for (const [width, height, scrolled] of [[1280, 800, 150], [1000, 800, 400], [320, 700, 400]]) {
    await size(width, height);
    await page.open(decoder);
    await value(`document.getElementById("${width > 1200 ? "input-area" : "stage"}").scrollIntoView()`);
    const before = await value("scrollY");
    await clickCell(4, 2);
    await until(`document.querySelector("#weight-steps > li") !== null`, "the computation");
    const [map, step] = await value(`["#matrix", "#weight-steps > li"].map((name) => { const { top, bottom } = document.querySelector(name).getBoundingClientRect(); return { top, bottom }; })`);
    check(map.bottom > 60 && step.top < height - 60, `${width}: map until ${map.bottom}, first step from ${step.top}`);
    if (width > 1200) check(map.top >= 0 && map.bottom <= height + 20, `${width}: the map is within the window: ${map.top} to ${map.bottom}`);
    const now = await value("scrollY");
    check(Math.abs(now - before) <= scrolled, `${width}: a click scrolls by ${now - before}`);
  }
  await size(1200, 1000);
}

/** Checks that both kinds of mean are named where their numbers are side by side. */
async function nameMeans() {
  await page.open(decoder);
  await value(`document.getElementById("components").open = true; document.querySelector("#components details").open = true`);
  await until(`document.querySelectorAll("#component-table tbody tr").length > 3`, "the table");
  const titles = () => value(`Array.from(document.querySelectorAll("#component-table thead th"), ({ textContent }) => textContent)`);
  const shown = await titles();
  same(shown[3], "change on this input, one mean for all positions", "the change on the input");
  check(/^change on \d+ validation sequences, a mean for each position$/.test(shown[4]), `the change in the analysis: ${shown[4]}`);
  check((await value(`document.getElementById("ablate-by").selectedOptions[0].textContent`)).startsWith("its mean over all positions of"), "the option names the positions");
  await pointUntil('#means-note [data-term="mean-ablated"]', `document.getElementById("definition").textContent.includes("a mean for each position")`, "the definition");
  await choose("ablate-by", "zero");
  await until(`document.getElementById("circuit-drawing").dataset.by === "zero"`, "zero ablation");
  same((await titles())[3], "change on this input, zero", "the change by zero ablation");
}

/** Checks that an earlier step has its own loss, and that other panels name their step. */
async function replaySteps() {
  await page.open(decoder);
  await value(`document.getElementById("components").open = true`);
  const hasNote = () => value(`document.querySelector("#components .end-note").checkVisibility()`);
  check(!(await hasNote()), "no note at the end of training");
  await press(`#film-strip > [data-frame="0"]`);
  await until(`document.getElementById("input-loss").textContent.includes("on this sequence at step 0")`, "the loss at the first step");
  const probabilities = await value(`Array.from(document.querySelectorAll("#predictions > [data-index]"), (cell) => {
    cell.dispatchEvent(new PointerEvent("pointerdown", { bubbles: true }));
    return document.getElementById("prediction").dataset.truthProbability;
  }).filter((text) => text !== "").map(Number)`);
  const loss = probabilities.reduce((sum, probability) => sum - Math.log(probability), 0) / probabilities.length;
  check(Math.abs(Number((await dataset("input-loss")).loss) - loss) < 1e-5, `the loss at the first step: ${(await dataset("input-loss")).loss} for ${loss}`);
  check(await hasNote() && (await value(`document.querySelector("#components .end-note").textContent`)).includes("at the end of training"), "the circuit names its step");
  await press("#film-strip > :last-child");
  await until(`!document.getElementById("input-loss").textContent.includes("at step")`, "the loss at the end");
  check(!(await hasNote()), "the note ends");
}

/** Checks that each phase of the training shows the frames around it and says what happened. */
async function followChapters() {
  await page.open(decoder);
  const steps = await value(`Array.from(document.querySelectorAll("#film-strip > button"), ({ textContent }) => Number(textContent.replace(/[^0-9]/g, "") || 1e9))`);
  const chapters = await value(`Array.from(document.querySelectorAll("#chapter-list > li"), (chapter) => ({ frames: Array.from(chapter.querySelectorAll("button"), ({ dataset }) => dataset.frame), text: chapter.textContent, bold: chapter.querySelectorAll("p b").length }))`);
  same(chapters.map(({ text }) => text.match(/^Phase \d: steps \d+ to \d+( \(layer \d, head \d\))?/)?.[0]).join(";"), "Phase 1: steps 30 to 80 (layer 1, head 0);Phase 2: steps 100 to 200", "the phases");
  check(chapters[0].text.includes("<b>0.1</b> rises.") && chapters[0].bold === 0, "sentences are text");
  for (const [index, [first, last]] of [[30, 80], [100, 200]].entries()) {
    const { frames } = chapters[index];
    same(frames.join(), [steps.findLastIndex((step) => step <= first), steps.findIndex((step) => step >= last)].join(), `phase ${index + 1}: the frames before and after`);
    for (const frame of frames) {
      await press(`#chapter-list > :nth-child(${index + 1}) [data-frame="${frame}"]`);
      await until(`document.getElementById("film-reading").dataset.frame === "${frame}"`, `phase ${index + 1}: frame ${frame} is shown`);
      same(await value(`document.querySelector('#film-strip > [aria-pressed="true"]').dataset.frame`), frame, "and its map is marked");
      const { layer, head } = await dataset("reading");
      same(`${layer}.${head}`, "1.0", "the head that changed, which stays selected");
    }
  }
  await page.open(translator);
  check(await value(`document.getElementById("chapters").hidden`), "no chapters without phases");
}

/** Checks that each head has its own line to the residual stream. */
async function separateLines() {
  await page.open(decoder);
  await value(`document.getElementById("flow").open = true`);
  await until(`document.querySelectorAll("#flow-drawing .adds").length > 4`, "the drawing");
  const found = await value(`(() => {
    const parts = Array.from(document.querySelectorAll("#flow-drawing .part"), (part) => part.dataset.logit);
    const lines = Array.from(document.querySelectorAll("#flow-drawing .adds"), (line) => ({ bus: line.getAttribute("d").match(/V([\\d.]+)/)[1], isNegative: line.classList.contains("negative") }));
    return { parts, lines };
  })()`);
  same(found.lines.length, found.parts.length, "a line per component");
  same(new Set(found.lines.map(({ bus }) => bus)).size, found.lines.length, "lines at heights of their own");
  found.lines.forEach(({ isNegative }, index) => same(isNegative, Number(found.parts[index]) < 0, `the colour of line ${index}`));
}

/** Checks that nothing is predicted in an input of one token. */
async function readOneToken() {
  await page.open(decoder);
  await value(`document.getElementById("components").open = true`);
  await type("3");
  await until(`document.querySelectorAll("#predictions > [data-index]").length === 1`, "one token");
  await until(`document.getElementById("circuit-reading").textContent.includes("nothing to predict")`, "the circuit gives the reason");
  check(!(await text("component-table")).includes("…"), "no number is awaited");
}

/** Checks that printed labels are legible without backgrounds, and that the replay is complete. */
async function printLabels() {
  await page.open(decoder);
  await size(700);
  await page.send("Emulation.setEmulatedMedia", { media: "print", features: [] });
  const contrast = await lowestContrast(".choice input:checked + span", "color");
  const ink = await value(`Array.from(document.querySelectorAll(".choice input:checked + span"), (label) => getComputedStyle(label).color.match(/\\d+/g).map(Number).reduce((sum, part) => sum + part, 0))`);
  check(ink.length > 2 && ink.every((sum) => sum < 300), `dark labels on white paper: ${ink}, contrast ${contrast}`);
  const [needed, given] = await value(`(({ scrollWidth, clientWidth }) => [scrollWidth, clientWidth])(document.getElementById("film-strip"))`);
  check(needed <= given, `the replay needs ${needed} of ${given} pixels`);
  await page.send("Emulation.setEmulatedMedia", { media: "", features: [] });
  await size(1200, 1000);
}

/** Checks that names of components stay next to their bars. */
async function checkBars(width) {
  const rows = await value(`Array.from(document.querySelectorAll("#patched-components > li"), (row) => [row.querySelector("button"), ...row.children].map((part) => { const { left, right } = part.getBoundingClientRect(); return { left, right, isCut: part.scrollWidth > part.clientWidth + 1 }; }))`);
  check(rows.length > 0 && rows.every(([name, , track, share]) => isWithin(name, track) && isWithin(track, share) && !name.isCut), `${width}: names, bars and shares are apart`);
}

/** Restores activations in the translator, and replaces no token by the start of an answer. */
async function patchTranslator() {
  await page.open(translator);
  check((await text("lead")).includes("heads of each kind of attention: decoder self-attention"), `the kinds of heads: ${await text("lead")}`);
  await type("7 2 3 9 4 1", "input-source");
  await type("1 4 9 3 2 7");
  await until(`document.querySelectorAll("#predictions > [data-index]").length === 7`, "the input is read");
  await value(`document.getElementById("patching").open = true`);
  await value(`document.getElementById("matrix").focus()`);
  for (let i = 0; i < 7; i++) await page.key("ArrowRight");
  for (let i = 0; i < 7; i++) await page.key("ArrowDown");
  await until(`document.getElementById("exchange").checkVisibility()`, "a token that can be replaced");
  await press("#exchange");
  await until(`document.querySelector("#chips > .replaced") !== null`, "a token is replaced");
  const [start, replaced] = await value(`[document.querySelector("#chips > *"), document.querySelector("#chips > .replaced")].map((chip) => chip.dataset.token)`);
  check(replaced !== start, `the last token is replaced by ${replaced}`);
  await until(`!document.getElementById("patching-note").hidden || document.querySelector("#patched-stream td")`, "an answer");
  // Some token changes a prediction when it is replaced.
  const hasAnswer = `document.querySelector("#patching-note:not([hidden]) button, #patched-stream td")`;
  for (let key = 1; key <= 6 && !(await value(`Boolean(${hasAnswer})`)); key++) {
    await press("#restore");
    await press("#chip-6");
    await value(`document.getElementById("matrix").focus()`);
    for (let i = 0; i < key; i++) await page.key("ArrowLeft");
    await press("#exchange");
    await until(`!document.getElementById("patching-note").hidden || document.querySelector("#patched-stream td")`, "an answer");
  }
  await until(hasAnswer, "a position with an answer");
  await value(`document.querySelector("#patching-note:not([hidden]) button")?.click()`);
  await until(`document.querySelectorAll("#patched-stream td").length > 0`, "activations are restored");
  for (const width of [1200, 320]) {
    await size(width, 1000);
    await checkBars(width);
  }
  check(await value(`document.querySelector("header > div").getBoundingClientRect().width > 280`), "the title has its own line on a phone");
  await size(1200, 1000);
}

/** Saves the panel of a head of cross-attention, whose rows and title name it. */
async function saveHead() {
  await page.open(translator);
  const csv = async () => rowsOf(Object.entries(await savePanels()).find(([name]) => name.endsWith("-head.csv"))[1].text);
  const scores = await value(`Array.from(document.querySelectorAll("#head-scores dd"), ({ dataset }) => dataset.score)`);
  const own = await csv();
  check(scores.length > 0 && scores.every((score) => own.some(([kind, , , quantity]) => kind === "decoder" && quantity === score)), "scores of decoder self-attention");
  await press(radio("kind", "cross"));
  check(await value(`document.getElementById("score-table").hidden && document.getElementById("sort").parentElement.hidden`), "scores of decoder self-attention are hidden");
  await press(radio("head", 1));
  same(await text("chosen"), "cross-attention, layer " + (await dataset("reading")).layer + ", head 1", "the title of the panel");
  const rows = await csv();
  same(rows[0][0], "kind", "the first column");
  check(rows.slice(1).every((row) => row[0] === "cross" && row[2] === "1" && row[3] === "weight"), `rows of the head: ${rows[1]}`);
  const { weight, key } = await dataset("reading");
  same(rows.find((row) => row[5] === key)?.[6], weight, "the weight on the selected key");
}

/** Checks that the tables of a weight use the width of the panel and are not cut, also after the window is resized. */
async function fitTables() {
  for (const report of [decoder, translator]) {
    await size(1280);
    await page.open(report);
    await press("#weight-open");
    await until(`document.querySelectorAll("#weight .vectors td").length > 0`, "the tables of vectors");
    for (const width of [1280, 1000, 768, 320]) {
      await size(width);
      await value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
      const tables = await value(`Array.from(document.querySelectorAll("#weight .scroll"), (box) => {
        const bands = Array.from(box.querySelectorAll(".vectors tbody"), (band) => band.rows[0].cells.length - 1);
        const cell = Math.max(0, ...Array.from(box.querySelectorAll(".vectors td"), (cell) => cell.offsetWidth));
        return { label: box.ariaLabel, isCut: box.scrollWidth > box.clientWidth, free: box.parentElement.clientWidth - box.clientWidth, bands, cell };
      })`);
      check(tables.length > 4 && tables.every(({ isCut }) => !isCut), `${width}: tables are not cut: ${JSON.stringify(tables.filter(({ isCut }) => isCut))}`);
      // Fewer rows would need more columns than fit.
      const isWide = ({ free, bands, cell }) => bands.length < 2 || (Math.ceil(bands.reduce((sum, count) => sum + count) / (bands.length - 1)) - bands[0]) * (cell + 1) > free;
      check(tables.every(isWide), `${width}: tables use the width: ${JSON.stringify(tables.filter((table) => !isWide(table)))}`);
    }
  }
  await size(1200, 1000);
}

/** Returns the most important heads of the circuit of a run: of its decoder, or of its cross-attention. */
function circuitHeads(report, isCross) {
  const { components } = JSON.parse(readFileSync(join(dirname(process.argv[report]), "circuit.json"), "utf8"));
  return components.filter(({ head, cross }) => Number.isInteger(head) && Boolean(cross) === isCross);
}

/** Checks that maps open on the heads that the circuit finds important if these were not ablated alone. */
async function openImportantHeads() {
  await page.open(interrupted);
  const [first] = circuitHeads(3, false);
  const opened = await dataset("reading");
  same(`${opened.layer}.${opened.head}`, `${first.layer}.${first.head}`, "the first head of an interrupted run");
  await page.open(translator);
  await press(radio("kind", "cross"));
  for (const layer of [1, 0]) {
    const head = circuitHeads(4, true).find((it) => it.layer === layer)?.head;
    await press(radio("layer", layer));
    same(Number((await dataset("reading")).head), head, `the cross-attention head of layer ${layer}`);
  }
}

/** Takes the tour of a page, and returns the text of each step with the input and the selection that it shows. */
async function takeTour(report, count) {
  await size(1280, 800);
  await page.open(report);
  await press("#tour-begin");
  const steps = [];
  for (let step = 1; step <= count; step++) {
    await until(`document.getElementById("tour-step").textContent === "Step ${step} of ${count}" && document.getElementById("tour-text").textContent !== ${JSON.stringify(steps.at(-1)?.words ?? "")}`, `step ${step} of ${count}`);
    const ids = await value(`Array.from(document.querySelectorAll("#chips > [data-index]"), (chip) => chip.dataset.id).join(" ")`);
    steps.push({ words: await text("tour-text"), ids, source: await value(`document.getElementById("input-source").value`), reading: await dataset("reading") });
    await settled();
    const [{ bottom }, { top }] = await value(`["#candidates > :last-child", "#tour"].map((name) => { const { top, bottom } = document.querySelector(name).getBoundingClientRect(); return { top, bottom }; })`);
    check(bottom <= top, `step ${step}: the last candidate ends at ${bottom}, above the tour at ${top}`);
    await press("#tour-next");
  }
  await size(1200, 1000);
  await until(`document.getElementById("tour").hidden`, "the tour ends");
  return steps;
}

/** Checks that the tour of an encoder-decoder shows what it reads from its source, and that a page without a circuit has a tour. */
async function followTours() {
  const [first, , , reads, replaced] = await takeTour(translator, 5);
  const [{ layer, head }] = circuitHeads(4, true);
  check(reads.words.includes("reads the source by cross-attention") && reads.words.includes(`cross-attention, layer ${layer}, head ${head}`), `the map of cross-attention: ${reads.words}`);
  const { kind, query, key, keyToken, weight } = reads.reading;
  same(kind, "cross", "the map on display");
  check(reads.words.includes(`at position ${query} attends to the source token ${keyToken} at position ${key} with a weight of ${Number(weight).toFixed(2)}`), `the weight on the source: ${reads.words}`);
  same(replaced.ids, first.ids, "no token of the answer is replaced");
  const [before, after] = [first, replaced].map(({ source }) => source.split(/\s+/));
  const changed = before.flatMap((token, position) => (token === after[position] ? [] : [position]));
  same(changed.join(), key, "the source token that the decoder reads is replaced");
  check(replaced.words.includes(`The source token ${before[Number(key)]} at position ${key}`), `the replaced token: ${replaced.words}`);
  const steps = await takeTour(inspected, 4);
  check(!steps.some(({ words }) => /circuit|validation|kind|undefined/.test(words)), `nothing is said about a circuit: ${steps.map(({ words }) => words)}`);
}

/** Checks that a token in the table of scores is one line, and that no circuit has no losses. */
async function readLast() {
  await size(320);
  await page.open(translator);
  await press("#weight-open");
  await until(`document.querySelector('#weight-steps [data-step="softmax"] table .token') !== null`, "the table of scores");
  const heights = await value(`Array.from(document.querySelectorAll("#weight-steps table .token"), (token) => token.getClientRects().length)`);
  check(heights.every((lines) => lines === 1), "tokens in tables are not broken");
  await size(1200, 1000);
  await page.open(untrained);
  check(await value(`document.getElementById("circuit").hidden === false`), "the page says that there is no circuit");
  check(!(await text("circuit")).includes("Losses of the circuit"), "and gives no note on its losses");
}

/** Undoes typing by the keyboard and by the button. */
async function undoTyping() {
  await page.open(decoder);
  const typed = () => value(`document.getElementById("input-text").value`);
  for (const line of ["1 2", "1 2 3", "1 2 3 4"]) {
    await type(line);
    await until(`document.getElementById("try").ariaBusy === "false"`, "an answer");
  }
  await value(`document.getElementById("input-text").dispatchEvent(new KeyboardEvent("keydown", { key: "z", ctrlKey: true, bubbles: true, cancelable: true }))`);
  same(await typed(), "1 2 3", "Ctrl-Z undoes the last word");
  await press("#undo");
  same(await typed(), "1 2", "and the button the word before");
}

/** Reads the definition of a term below the box with the definition of another one. */
async function readCoveredTerm() {
  await page.open(decoder);
  const found = await value(`(() => {
    const terms = Array.from(document.querySelectorAll("#summary [data-term]"));
    const box = document.getElementById("definition");
    for (const term of terms) {
      term.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
      for (const other of terms) {
        const { left, top, width, height } = other.getBoundingClientRect();
        const [clientX, clientY] = [left + width / 2, top + height / 2];
        if (other === term || document.elementFromPoint(clientX, clientY) !== box) continue;
        const before = box.textContent;
        box.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX, clientY }));
        return { before, after: box.textContent, describes: other.getAttribute("aria-describedby") };
      }
    }
    return null;
  })()`);
  check(found !== null, "a definition covers another term");
  check(found?.before !== found?.after && found?.describes === "definition", `the covered term shows its definition: ${JSON.stringify(found)}`);
}

await explore("views", [clickIntoView, nameMeans, replaySteps, followChapters, separateLines, readOneToken, printLabels, patchTranslator, saveHead, undoTyping, readCoveredTerm, openImportantHeads, fitTables, followTours, readLast]);
