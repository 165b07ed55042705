// Edits the input of a page whose run was trained on text with Windows line breaks, and restores it.
//
//     node tests/page/line_breaks.mjs CHROMIUM REPORT
//
// Exits like explore.mjs.

import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { launch } from "./browser.mjs";

const [chromium, report] = process.argv.slice(2);
const page = await launch(chromium);
await page.open(pathToFileURL(report).href);

const chips = (field) => page.value(`Array.from(document.querySelectorAll("#chips > [data-index]"), (chip) => chip.${field}).join(" ")`);
const tokens = () => chips("dataset.id");
const before = await tokens();
assert.ok((await chips("textContent")).includes("\\r \\n"), "the input has Windows line breaks");
const set = (text) => page.value(`(() => {
  const field = document.getElementById("input-text");
  field.value = ${text};
  field.dispatchEvent(new Event("input"));
})()`);
await set("field.value + 'b'");
assert.notEqual(await tokens(), before);
await set("field.value.slice(0, -1)");
assert.equal(await tokens(), before, "restored text has the same tokens");
assert.deepEqual(page.problems, []);
await page.close();
console.log("4 checks of line breaks");
