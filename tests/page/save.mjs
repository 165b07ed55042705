// Saves every panel of a report.html in every format, undoes changes, copies a link, and embeds the page.
//
//     node tests/page/save.mjs CHROMIUM REPORT.html
//
// Checks the files, and that a CSV holds the values of the page; that the browser's Back undoes a change, and typing is undone by
// word; that the link is copied; and that the page works as the `srcdoc` of a frame.
//
// Exits with code 0 and one line that counts the checks, or with code 1 and a line per failure, as `explore.mjs`.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, explore, page, press, same, until } from "./hands.mjs";
import { rowsOf, savePanels } from "./panels.mjs";

const report = process.argv[3];
const { value } = page;
const tokens = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), (chip) => chip.dataset.id).join(" ")`);

/** Enters text as a keyboard would, character by character. */
const type = (text) => value(`for (const character of ${JSON.stringify(text)}) {
  const field = document.getElementById("input-text");
  field.value += character;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}`);

/** Opens all panels, saves each, and checks its files. */
async function checkPanels() {
  await value(`(() => {
    for (const panel of document.querySelectorAll("#strips, #flow, #components, #patching, #pair, #score-table")) panel.open = true;
    document.getElementById("weight-open").click();
  })()`);
  await until(`document.querySelectorAll("#flow-table tr").length > 3 && document.querySelector("#weight-steps tr") !== null`, "the panels are drawn");
  await until(`document.getElementById("circuit-drawing").dataset.loss && !document.getElementById("component-table").textContent.includes("…")`, "the components are ablated");
  await press("#exchange");
  await until(`!document.getElementById("patching-note").hidden || document.querySelectorAll("#patched-stream td").length > 0`, "a token is exchanged");
  if (await value(`Boolean(document.querySelector("#patching-note:not([hidden]) button"))`)) await press("#patching-note button");
  await until(`document.querySelectorAll("#patched-stream tbody tr").length > 1`, "the residual stream is patched");
  const files = await savePanels();
  const csv = (panel) => rowsOf(Object.entries(files).find(([name]) => name.endsWith(`-${panel}.csv`))?.[1].text ?? "");
  const { query, key, weight, layer, head } = await value(`({ ...document.getElementById("reading").dataset })`);
  const row = csv("attention").find((row) => row[2] === query && row[3] === key);
  same(row?.slice(0, 2).join(), `${layer},${head}`, "the head in the CSV of the map");
  check(Math.abs(Number(row?.at(-1)) - Number(weight)) < 1e-9, `the weight in the CSV: ${row} for ${weight}`);
  const { length } = csv("attention");
  const heads = await value(`document.querySelectorAll("#thumbnails > button").length`);
  same(csv("all-heads").length - 1, heads * (length - 1), "the rows of all heads");
  same(csv("strips").filter((row) => row[0] === layer && row[1] === head && row[3] === key && row.at(-1) === String(weight)).length, 1, "the weight in the CSV of the strips");
  const texts = await value(`Array.from(document.querySelectorAll("#component-table tbody tr"), (row) => row.cells[3].textContent.replace("−", "-"))`);
  same(csv("circuit").slice(1, texts.length + 1).map((row) => Number(row[4]).toFixed(3)).join(), texts.map((text) => Number(text).toFixed(3)).join(), "the changes in the CSV of the circuit");
  const shares = await value(`Array.from(document.querySelectorAll("#patched-components [data-share]"), (part) => part.dataset.share)`);
  same(csv("patching").slice(1, shares.length + 1).map((row) => row[3]).join(), shares.join(), "the shares in the CSV of patching");
}

/** Undoes by the browser and by word. */
async function checkUndo() {
  const before = await tokens();
  await press("#switch-off");
  await until(`location.hash.includes("head=")`, "the change is in the address");
  await value("history.back()");
  await until(`document.getElementById("changes").children.length === 0 && !location.hash.includes("head=")`, "Back undoes");
  const isTyped = await value(`document.getElementById("as-ids-field").hidden`);
  if (!isTyped) return;
  await type(" 1 2");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${before.split(" ").length + 2}`, "two words are typed");
  await press("#undo");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${before.split(" ").length + 1}`, "the last word is undone");
  await press("#undo");
  await until(`document.querySelectorAll("#chips > [data-index]").length === ${before.split(" ").length}`, "the first word is undone");
  same(await tokens(), before, "the tokens");
}

async function checkLink() {
  await value(`window.copied = null; Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text; } } })`);
  await value(`document.getElementById("link").dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }))`);
  await until(`document.getElementById("link-status").textContent === "Copied."`, "copying is confirmed");
  check(await value(`window.copied.startsWith(location.href.split("#")[0] + "#tokens=")`), "the link leads to this state");
}

/** Reloads the page, which must look as before. */
async function checkReload() {
  const view = () => value(`[document.getElementById("reading").dataset.layer, document.getElementById("reading").dataset.query, document.documentElement.dataset.theme, document.getElementById("theme").textContent].join(" ")`);
  const before = await value(`document.getElementById("reading").dataset.query`);
  await press("#chip-3");
  await until(`document.getElementById("reading").dataset.query !== "${before}"`, "another position is selected");
  await press("#theme");
  await press("#theme");
  const shown = await view();
  check(shown.endsWith("dark Dark"), `the dark theme: ${shown}`);
  await page.send("Page.reload");
  await new Promise((done) => setTimeout(done, 300));
  await until(`document.documentElement?.dataset.ready === "true"`, "the page is reloaded");
  same(await view(), shown, "the view after a reload");
}

/** Embeds the page as the text of a frame, as a notebook does. */
async function checkFrame() {
  const folder = mkdtempSync(join(tmpdir(), "frame-"));
  const text = readFileSync(report, "utf8").replaceAll("&", "&amp;").replaceAll('"', "&quot;");
  writeFileSync(join(folder, "frame.html"), `<!doctype html><html data-ready="true"><link rel="icon" href="data:,"><iframe width="1000" height="700" srcdoc="${text}"></iframe>`);
  await page.open(pathToFileURL(join(folder, "frame.html")).href);
  await until(`frames[0]?.document.documentElement?.dataset.ready === "true"`, "the frame is drawn");
  await value(`frames[0].document.getElementById("switch-off")?.click()`);
  await until(`frames[0].document.getElementById("changes").children.length === 1`, "a head is switched off in the frame");
  // The address is written with a delay.
  await new Promise((done) => setTimeout(done, 500));
  rmSync(folder, { recursive: true });
}

await page.open(pathToFileURL(resolve(report)).href);
await explore(report, [checkReload, checkUndo, checkLink, checkPanels, checkFrame]);
