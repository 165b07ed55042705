// What every page with a model does, whatever its architecture: one position drives all panels, heads are compared, panels
// follow while the model writes, panels are saved, changes undone and linked, and the page is embedded.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { addressWritten, check, choose, dataset, page, press, same, type, until } from "./hands.mjs";
import { savePanels } from "./panels.mjs";

const { value, key } = page;
const chipIds = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), (chip) => chip.dataset.id).join(" ")`);
const radio = (name, option) => `label:has(> input[name="${name}"][value="${option}"])`;

/** Checks that chip, query, next tokens, prediction and the text of the tour are at a position. */
export async function isEverywhere(position, what) {
  const chip = await value(`document.querySelector('#chips > [aria-selected="true"]')?.dataset.index`);
  const shown = [chip, (await dataset("reading")).query, (await dataset("candidates-after")).position, (await dataset("prediction")).position];
  same(JSON.stringify(shown), JSON.stringify(Array(4).fill(String(position))), `${what}: chip, query, next tokens and prediction`);
  await until(`document.getElementById("tour").hidden || document.getElementById("tour-text").textContent.includes("at position ${position}")`, `${what}: the text of the tour`);
}

/** Selects positions by a click, a key and the map. */
export async function selectPositions() {
  await press(radio("view", "matrix"));
  await press("#chip-1");
  await isEverywhere(1, "a click on a token");
  await key("ArrowRight");
  await isEverywhere(2, "an arrow key");
  await value(`document.getElementById("matrix").focus()`);
  await key("ArrowUp");
  await isEverywhere(1, "an arrow key in the map");
}

/** Compares two heads, shows all heads, and draws lines. */
export async function compareHeads() {
  await press(radio("layer", 1));
  await press(radio("head", 1));
  await value(`document.getElementById("pair").open = true`);
  await until(`document.getElementById("other-head").options.length > 1`, "the heads to compare with");
  await choose("other-head", "0 0");
  await until(`document.querySelectorAll("#pair-maps .frame canvas").length === 3`, "two maps and their difference");
  // Arrow keys in the map may have left the cell at a key that the query does not see.
  await press("#chip-1");
  const { first, second, difference } = await dataset("pair-reading");
  check(first !== "" && Math.abs(Number(difference) - (Number(first) - Number(second))) < 1e-6, `the difference of two weights: ${first}, ${second}, ${difference}`);
  same(await value(`document.querySelectorAll("#thumbnails canvas").length`), await value(`document.querySelectorAll("#layers input").length * document.querySelectorAll("#heads input").length`), "a map of each head");
  await press(radio("view", "lines"));
  same(await value(`document.querySelectorAll("#lines > g").length`), await value(`document.querySelectorAll("#chips > [data-index]").length`), "lines for each query");
  await press(radio("view", "matrix"));
  await value(`document.getElementById("pair").open = false`);
}

/** Checks that maps, chips, loss and strips agree with each other while the model writes, and stops it. */
export async function followWriting() {
  await value(`(() => { const speed = document.getElementById("speed"); speed.value = "200"; speed.dispatchEvent(new Event("change", { bubbles: true })); })()`);
  const seen = await value(`(async () => {
    const seen = [];
    for (let i = 0; i < 30 && seen.length < 3 && document.getElementById("generate-toggle").ariaPressed === "true"; i++) {
      await new Promise((done) => setTimeout(done, 60));
      if (document.getElementById("generate-toggle").ariaPressed !== "true") break;
      const chips = document.querySelectorAll("#chips > [data-index]:not(.forgotten)").length, strip = document.querySelector('#strip-rows [aria-pressed="true"]');
      if (seen.at(-1)?.chips === chips) continue;
      seen.push({ chips, queries: Number(document.getElementById("matrix").dataset.queries), query: Number(strip.dataset.query), loss: document.getElementById("input-loss").dataset.loss, kind: document.querySelector("#kinds input:checked")?.value ?? "decoder", glow: document.querySelectorAll('#chips [style*="--glow"]').length });
    }
    return seen;
  })()`);
  // A short answer may end at once.
  for (const { chips, queries, query, loss, kind, glow } of seen) {
    same(queries, chips, "the map has a row for each token while the model writes");
    same(query, chips - 1, "the strips show the newest token");
    check(loss !== "", "the loss follows");
    if (kind === "decoder") check(glow > 0, "earlier tokens glow");
  }
  // The generation may already have ended.
  await value(`document.querySelector('#generate-toggle[aria-pressed="true"]')?.click()`);
  await until(`document.getElementById("generate-toggle").ariaPressed === "false"`, "generation stops");
}

/** Undoes by the browser and by word. */
export async function undoChanges() {
  const before = await chipIds();
  // Changes until the address is written are one entry of the history.
  await addressWritten();
  await press("#switch-off");
  await until(`location.hash.includes("ablated=")`, "the change is in the address");
  await value("history.back()");
  await until(`document.getElementById("changes").children.length === 0 && !location.hash.includes("ablated=")`, "Back undoes");
  const isTyped = await value(`document.getElementById("as-ids-field").hidden`);
  if (!isTyped) return;
  const count = before.split(" ").length;
  /** Enters text as a keyboard would, character by character. */
  await value(`for (const character of " 1 2") {
    const field = document.getElementById("input-text");
    field.value += character;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  }`);
  for (const [length, what] of [[count + 2, "two words are typed"], [count + 1, "the last word is undone"], [count, "the first word is undone"]]) {
    await until(`document.querySelectorAll("#chips > [data-index]").length === ${length}`, what);
    if (length > count) await press("#undo");
  }
  same(await chipIds(), before, "the tokens");
}

/** Copies links to the input and to another sequence, and opens the latter. */
export async function copyLinks() {
  await value(`window.copied = null; Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text; } }, configurable: true })`);
  const copy = () => value(`document.getElementById("link").dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))`);
  await copy();
  await until(`document.getElementById("link-status").textContent === "Copied."`, "copying is confirmed");
  check(await value(`window.copied.startsWith(location.href.split("#")[0] + "#tokens=")`), "the link leads to this state");
  // A link to a sequence of the page holds its position, layer and head.
  const sample = await value(`Array.from(document.getElementById("sample").options).filter(({ textContent }) => textContent !== "your input").at(-1).value`);
  await choose("sample", sample);
  await press(radio("layer", 0));
  await press(radio("head", 1));
  await press("#prediction-1");
  const shown = () => value(`(() => { const { sample, kind, layer, head, query, key } = document.getElementById("reading").dataset; return [sample, kind, layer, head, query, key, document.getElementById("prediction").dataset.position].join(); })()`);
  const before = await shown();
  check(before.startsWith(`${sample},decoder,0,1,1,`) && before.endsWith(",1"), `the selection in another sequence: ${before}`);
  await value("window.copied = null");
  await copy();
  await until("window.copied !== null", "the link is copied");
  const copied = await value("window.copied");
  await page.send("Page.navigate", { url: "about:blank" });
  await page.open(copied);
  same(await shown(), before, "the copied link restores sequence, head and position");
}

/** Embeds the page as the text of a frame, as a notebook does. */
export async function embed(report) {
  const folder = mkdtempSync(join(tmpdir(), "frame-"));
  const text = readFileSync(report, "utf8").replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  writeFileSync(join(folder, "frame.html"), `<!doctype html><html data-ready="true"><link rel="icon" href="data:,"><iframe width="1000" height="700" srcdoc="${text}"></iframe>`);
  await page.open(pathToFileURL(join(folder, "frame.html")).href);
  await until(`frames[0]?.document.documentElement?.dataset.ready === "true"`, "the frame is drawn");
  await value(`frames[0].document.getElementById("switch-off")?.click()`);
  await until(`frames[0].document.getElementById("changes").children.length === 1`, "a head is ablated in the frame");
  // The address is written with a delay.
  await new Promise((done) => setTimeout(done, 500));
  rmSync(folder, { recursive: true });
}

/** Performs all of this on the page of a report on display, with a short input. */
export async function usePage(report, text) {
  await type(text);
  await until(`document.getElementById("sample").selectedOptions[0]?.textContent === "your input" && document.getElementById("input-text").value === ${JSON.stringify(text)}`, "the input is read");
  await selectPositions();
  await compareHeads();
  await press("#generate-toggle");
  await followWriting();
  await type(text);
  await until(`document.getElementById("changes").hidden`, "an input without changes");
  await until(`!document.getElementById("component-table").textContent.includes("…")`, "the components are ablated");
  await savePanels();
  await undoChanges();
  await copyLinks();
  await embed(report);
}
