// Activation patching on the input: after a token is replaced, activations of the original input are restored one by one.

/** The components whose clean outputs are restored together, by name. */
const restored = new Set();
/** The last result; null before the first. */
let patchingFound = null;
/** The number of the last request, whose answer is shown. */
let patchingRequest = 0;

/** Returns the most likely tokens after a position of the clean and the corrupted input. */
const answersAt = (clean, corrupted, position) => [clean, corrupted].map((rows) => largest(rows[position], 1)[0]);

/** Returns the position at which the two most likely tokens differ and the logit difference drops most; null if none does. */
function bestPatchedPosition(clean, corrupted, from) {
  let best = null;
  for (let position = from; position < clean.length; position++) {
    const [a, b] = answersAt(clean, corrupted, position);
    const drop = clean[position][a] - clean[position][b] - corrupted[position][a] + corrupted[position][b];
    if (a !== b && (!best || drop > best.drop)) best = { position, drop };
  }
  return best?.position ?? null;
}

/** Returns the logits of a forward pass, one row for each position. */
async function logitRows(tokens, source) {
  const { logits } = await live.forward(tokens, { source });
  const vocab = logits.length / tokens.length;
  return tokens.map((_, position) => logits.subarray(position * vocab, (position + 1) * vocab));
}

/** Restores each component, and the residual stream at each depth and position, in the corrupted input. */
async function computePatching() {
  const request = ++patchingRequest;
  const isCurrent = () => request === patchingRequest && at("patching").open;
  if (!at("patching").open || !shownAnswer || isGenerating) return;
  const { tokens, source, input: { before } } = shownAnswer;
  const isReplaced = before !== null && before.length === tokens.length;
  // A hidden button cannot keep the focus.
  if (isReplaced && document.activeElement === at("exchange")) at("patching").querySelector("summary").focus();
  at("patching-start").hidden = isReplaced;
  at("patching-result").hidden = !isReplaced;
  at("patching-note").hidden = true;
  if (!isReplaced) return;
  const [clean, corrupted] = [await logitRows(before, source), await logitRows(tokens, source)];
  if (!isCurrent()) return;
  const first = before.findIndex((id, position) => id !== tokens[position]);
  const position = Math.min(state.position, tokens.length - 1);
  const answers = answersAt(clean, corrupted, position);
  if (position < first || answers[0] === answers[1]) return refusePatching(bestPatchedPosition(clean, corrupted, first));
  const given = { clean: before.slice(0, position + 1), corrupted: tokens.slice(0, position + 1), source, answers };
  const ask = async (variants) => (isCurrent() ? live.patch(given, variants) : null);
  const found = await ask(allComponents.map((component) => [component]));
  if (!found || !isCurrent()) return;
  patchingFound = { ...found, first, position, answers, tokens, before, stream: [] };
  await restoreTogether(ask);
  drawPatching();
  if (!isCurrent()) return;
  for (let depth = 0; depth <= live.config.layers; depth++) {
    const cells = Array.from({ length: position + 1 - first }, (_, at) => ({ depth, position: first + at }));
    // Few cells at a time, so that keystrokes do not wait.
    for (let from = 0; from < cells.length; from += 8) {
      const row = await ask(cells.slice(from, from + 8));
      if (!row || !isCurrent()) return;
      (patchingFound.stream[depth] ??= []).push(...row.patched);
    }
    drawStreamPatches();
  }
}

/** Restores the chosen components together. */
async function restoreTogether(ask) {
  const chosen = allComponents.filter((component) => restored.has(componentName(component)));
  const found = chosen.length > 0 ? await ask([chosen]) : null;
  if (patchingFound) patchingFound.together = found?.patched[0] ?? null;
}

/** Shows why nothing can be restored at the selected position, and where it can. */
function refusePatching(best) {
  at("patching-result").hidden = true;
  at("patching-note").hidden = false;
  const button = element("button", { type: "button" }, `Select position ${best}`);
  button.addEventListener("click", () => (isInputShown() ? update({ position: best }) : showTyped({ position: best })));
  at("patching-note").replaceChildren(...(best === null ? ["The replaced token changes the most likely token at no position; replace another one."]
    : ["At the selected position, the replaced token does not change the most likely token. ", button]));
}

const recoveredShare = (patched) => (patched - patchingFound.corrupted) / (patchingFound.clean - patchingFound.corrupted);

function drawPatching() {
  const { clean, corrupted, answers, position, tokens, patched, together } = patchingFound;
  const name = (id) => tokenElement(live.tokenizer.token(id));
  const chosen = allComponents.filter((component) => restored.has(componentName(component)));
  Object.assign(at("patching-reading").dataset, { position, clean, corrupted, together: together ?? "" });
  at("patching-reading").replaceChildren("After ", name(tokens[position]), ` at position ${position}, the logit of `, name(answers[0]), " minus that of ", name(answers[1]),
    ` is ${fixed(clean, 2)} on the original input and ${fixed(corrupted, 2)} after the replacement.`,
    ...(chosen.length === 0 ? [" Select components to restore their original outputs."]
      : [` With ${chosen.map(componentInWords).join(" and ")} restored, it is ${fixed(together, 2)}: ${fixed(100 * recoveredShare(together), 0)} % is recovered.`]));
  const focused = /** @type {?HTMLElement} */ (document.activeElement?.closest("#patched-components button"))?.dataset.component;
  at("patched-components").replaceChildren(...allComponents.map((component, index) => {
    const share = recoveredShare(patched[index]), isChosen = restored.has(componentName(component));
    const button = element("button", { type: "button", class: "toggle", "aria-pressed": isChosen, "data-component": componentName(component) }, componentInWords(component));
    button.addEventListener("click", () => toggleRestored(component));
    return barRow([button], share, `${fixed(100 * share, 1)}\u00a0%`, { "data-share": share, class: Math.abs(share) > 1 ? "clipped" : "" });
  }));
  if (focused) /** @type {?HTMLElement} */ (at("patched-components").querySelector(`[data-component="${focused}"]`))?.focus();
}

async function toggleRestored(component) {
  const name = componentName(component);
  if (!restored.delete(name)) restored.add(name);
  const { before, tokens, position, answers } = patchingFound;
  const given = { clean: before.slice(0, position + 1), corrupted: tokens.slice(0, position + 1), source: shownAnswer.source, answers };
  await restoreTogether((variants) => live.patch(given, variants));
  drawPatching();
}

/** Draws the share recovered by the residual stream at each depth and position. */
function drawStreamPatches() {
  const { stream, first, tokens, position } = patchingFound;
  const columns = tokens.slice(first, position + 1);
  const row = (values, depth) => element("tr", {}, element("th", { scope: "row" }, depth === 0 ? "before layer 0" : `after layer ${depth - 1}`), ...values.map((patched) => {
    const share = recoveredShare(patched);
    const cell = element("td", { class: share < 0 ? "negative" : "positive", "data-share": share }, fixed(100 * share, 0));
    cell.style.setProperty("--share", `${Math.min(Math.abs(share), 1) * 45}%`);
    return cell;
  }));
  at("patched-stream").replaceChildren(
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "recovered, in %"), ...columns.map((id, index) => element("th", { scope: "col" }, tokenElement(live.tokenizer.token(id)), ` at ${first + index}`)))),
    element("tbody", {}, ...stream.map(row).reverse()));
}

/** Replaces the token at the selected key by the next different token, as the program does with a text of a decoder. */
function exchangeToken() {
  const position = Math.min(state.selected.key, shownAnswer.tokens.length - 1);
  const { tokens } = shownAnswer;
  const other = otherToken([...tokens.slice(position), ...tokens], [tokens[position]]);
  const shown = keptSelection();
  return replaceToken(position + input.first, other).then(() => showTyped(shown));
}

function startPatching() {
  if (!hasPaths) return;
  at("patching").hidden = false;
  at("patching").addEventListener("toggle", computePatching);
  at("exchange").addEventListener("click", exchangeToken);
  answerViews.push(computePatching);
}
