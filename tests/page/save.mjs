// Saves every panel of a report.html in every format, undoes changes, copies a link, and embeds the page.
//
//     node tests/page/save.mjs CHROMIUM REPORT.html
//
// Checks that an SVG is well-formed and holds text and no external reference, that a PNG is not empty, and that a CSV
// has a row per item with the values of the page; that the browser's Back undoes a change, and typing is undone by
// word; that the link is copied; and that the page works as the `srcdoc` of a frame.
//
// Exits with code 0 and one line that counts the checks, or with code 1 and a line per failure, as `explore.mjs`.

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { check, explore, page, press, same } from "./hands.mjs";

const report = process.argv[3];
const { value } = page;
const tokens = () => value(`Array.from(document.querySelectorAll("#chips > [data-index]"), (chip) => chip.dataset.id).join(" ")`);
const wait = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

/** Waits until an expression is true. */
async function until(expression, what) {
  for (let i = 0; i < 500; i++) {
    if (await value(expression)) return check(true, what);
    await wait(20);
  }
  check(false, `${what}: not within 10 s`);
}

/** Enters text as a keyboard would, character by character. */
const type = (text) => value(`for (const character of ${JSON.stringify(text)}) {
  const field = document.getElementById("input-text");
  field.value += character;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}`);

/** Opens the details of all panels, saves each panel, and returns the files by name. */
async function saveAll() {
  await value(`(() => {
    window.saved = {};
    const create = URL.createObjectURL;
    let last = null;
    URL.createObjectURL = (blob) => create(last = blob);
    HTMLAnchorElement.prototype.click = function () { window.saved[this.download] = last; };
    for (const panel of document.querySelectorAll("#flow, #pair, #score-table")) panel.open = true;
    document.getElementById("weight-open").click();
  })()`);
  await until(`document.querySelectorAll("#flow-table tr").length > 3 && document.querySelector("#weight-steps tr") !== null`, "the panels are drawn");
  const wanted = await value(`(() => {
    const buttons = Array.from(document.querySelectorAll(".save button")).filter((button) => button.closest(".save").checkVisibility());
    for (const button of buttons) button.click();
    return buttons.length;
  })()`);
  await until(`Object.keys(window.saved).length === ${wanted}`, `${wanted} files are saved`);
  return value(`(async () => {
    const files = {};
    for (const [name, blob] of Object.entries(window.saved)) {
      files[name] = name.endsWith("png") ? { type: blob.type, size: blob.size } : { type: blob.type, text: await blob.text() };
    }
    return files;
  })()`);
}

async function checkSvg(name, text) {
  const found = await value(`(() => {
    const root = new DOMParser().parseFromString(${JSON.stringify(text)}, "image/svg+xml").documentElement;
    const numbers = Array.from(root.querySelectorAll("*"), (part) => Array.from(part.attributes, ({ value }) => value)).flat();
    return { name: root.nodeName, texts: root.querySelectorAll("text").length, isBroken: numbers.some((text) => /NaN|undefined|Infinity/.test(text)) };
  })()`);
  same(found.name, "svg", `${name} is well-formed`);
  check(found.texts > 0 || name.includes("all-heads"), `${name} has no text`);
  check(!found.isBroken, `${name} has an invalid number`);
  check(!/https?:(?!\/\/www\.w3\.org)/.test(text), `${name} refers to a server`);
}

/** Returns the rows of a CSV without quotes. */
const rowsOf = (text) => text.trimEnd().split("\r\n").map((row) => row.split(","));

async function checkFiles() {
  const files = await saveAll();
  for (const [name, { type: media, text, size }] of Object.entries(files)) {
    if (name.endsWith(".svg")) await checkSvg(name, text);
    else if (name.endsWith(".png")) check(media === "image/png" && size > 1000, `${name} has ${size} bytes`);
    else check(rowsOf(text).length > 1, `${name} has no rows`);
  }
  const csv = (panel) => rowsOf(Object.entries(files).find(([name]) => name.endsWith(`-${panel}.csv`))[1].text);
  const { query, key, weight, layer, head } = await value(`({ ...document.getElementById("reading").dataset })`);
  const row = csv("attention").find((row) => row[2] === query && row[3] === key);
  same(row?.slice(0, 2).join(), `${layer},${head}`, "the head in the CSV of the map");
  check(Math.abs(Number(row?.at(-1)) - Number(weight)) < 1e-9, `the weight in the CSV: ${row} for ${weight}`);
  const { length } = csv("attention");
  const heads = await value(`document.querySelectorAll("#thumbnails > button").length`);
  same(csv("all-heads").length - 1, heads * (length - 1), "the rows of all heads");
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
  await wait(500);
  rmSync(folder, { recursive: true });
}

await page.open(pathToFileURL(resolve(report)).href);
await explore(report, [checkFiles, checkUndo, checkLink, checkFrame]);
