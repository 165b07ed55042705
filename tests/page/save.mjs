// Saves every panel of a report.html in every format, undoes changes, copies a link, and embeds the page.
//
//     node tests/page/save.mjs CHROMIUM REPORT.html
//
// Checks the files, and that a CSV holds the values of the page; that the browser's Back undoes a change, and typing is undone by
// word; that the link is copied; and that the page works as the `srcdoc` of a frame.
//
// Exits with code 0 and one line that counts the checks, or with code 1 and a line per failure, as `explore.mjs`.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, explore, page, press, reload, same, until } from "./hands.mjs";
import { rowsOf, savePanels } from "./panels.mjs";
import { copyLinks, embed, undoChanges } from "./points.mjs";

const report = process.argv[3];
const { value } = page;

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
  await until(`!document.getElementById("component-table").textContent.includes("…")`, "the components are ablated on the changed input");
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
  // A change that rounds to zero is displayed as ±0.
  const rounded = (text) => Number(Number(text.replace("±", "")).toFixed(3)) + 0;
  same(csv("circuit").slice(1, texts.length + 1).map((row) => rounded(row[4])).join(), texts.map(rounded).join(), "the changes in the CSV of the circuit");
  const shares = await value(`Array.from(document.querySelectorAll("#patched-components [data-share]"), (part) => part.dataset.share)`);
  same(csv("patching").slice(1, shares.length + 1).map((row) => row[3]).join(), shares.join(), "the shares in the CSV of patching");
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
  await reload();
  same(await view(), shown, "the view after a reload");
}

await page.open(pathToFileURL(resolve(report)).href);
await explore(report, [checkReload, undoChanges, checkPanels, copyLinks, () => embed(report)]);
