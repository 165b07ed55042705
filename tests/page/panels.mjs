// Saves the panels of a page, and checks their files: an SVG is well-formed and holds text and no external reference, a
// PNG is not empty, and a CSV has rows.

import { check, page, same, until } from "./hands.mjs";

const { value } = page;

/** Returns the rows of a CSV without quotes. */
export const rowsOf = (text) => text.trimEnd().split("\r\n").map((row) => row.split(","));

async function checkSvg(name, text) {
  const found = await value(`(() => {
    const root = new DOMParser().parseFromString(${JSON.stringify(text)}, "image/svg+xml").documentElement;
    // An embedded image may spell anything.
    const numbers = Array.from(root.querySelectorAll("*"), (part) => Array.from(part.attributes, ({ value }) => value)).flat().filter((text) => !text.startsWith("data:"));
    const places = Array.from(root.querySelectorAll("text:not([transform])"), (text) => [text.getAttribute("x"), text.getAttribute("y")].map((side) => Math.round(Number(side))).join());
    const shown = document.body.appendChild(document.importNode(root, true)), frame = shown.getBoundingClientRect();
    const cut = Array.from(shown.querySelectorAll(":scope > text"), (text) => ({ text: text.textContent, box: text.getBoundingClientRect() })).filter(({ box }) => box.left < frame.left - 2 || box.right > frame.right + 2).map(({ text }) => text);
    shown.remove();
    return { cut, name: root.nodeName, texts: root.querySelectorAll("text").length, width: Number(root.getAttribute("width")), overprinted: places.length - new Set(places).size, isBroken: numbers.some((text) => /NaN|undefined|Infinity/.test(text)) };
  })()`);
  same(found.name, "svg", `${name} is well-formed`);
  check(found.texts > 0 || name.includes("all-heads"), `${name} has no text`);
  check(!found.isBroken, `${name} has an invalid number`);
  check(found.width <= 1600, `${name} is ${found.width} pixels wide`);
  same(found.cut.join("; "), "", `texts of ${name} that are cut`);
  same(found.overprinted, 0, `texts of ${name} on top of each other`);
  check(!/https?:(?!\/\/www\.w3\.org)/.test(text), `${name} refers to a server`);
}

/** Saves each visible panel in each format. Returns the files by name. */
export async function savePanels() {
  const wanted = await value(`(() => {
    window.saved = {};
    const create = URL.createObjectURL;
    let last = null;
    URL.createObjectURL = (blob) => create(last = blob);
    HTMLAnchorElement.prototype.click = function () { window.saved[this.download] = last; };
    const buttons = Array.from(document.querySelectorAll(".save button")).filter((button) => button.closest(".save").checkVisibility());
    for (const button of buttons) button.click();
    return buttons.length;
  })()`);
  await until(`Object.keys(window.saved).length === ${wanted}`, `${wanted} files are saved`);
  const files = await value(`(async () => {
    const files = {};
    for (const [name, blob] of Object.entries(window.saved)) {
      files[name] = name.endsWith("png") ? { type: blob.type, size: blob.size } : { type: blob.type, text: await blob.text() };
    }
    return files;
  })()`);
  check(wanted > 0, "no panel can be saved");
  for (const [name, { type: media, text, size }] of Object.entries(files)) {
    if (name.endsWith(".svg")) await checkSvg(name, text);
    else if (name.endsWith(".png")) check(media === "image/png" && size > 1000, `${name} has ${size} bytes`);
    else check(rowsOf(text).length > 1, `${name} has no rows`);
  }
  return files;
}
