// The section "Try it": tokenizes the typed text and displays its tokens as chips.

/** Returns true if the text field holds ids instead of text. */
const holdsIds = () => live.tokenizer.notation !== "integers" && at("as-ids").checked;

/** Returns the tokens of a text; the id of a token that is not in the vocabulary is null. */
function tokenized(text) {
  if (!holdsIds()) return live.tokenizer.encode(text);
  return Array.from(text.matchAll(/[^\s,]+/g), ([word]) => {
    const id = Number(word);
    return { id: /^\d+$/.test(word) && id < live.config.vocab ? id : null, text: word };
  });
}

const textOf = (tokens) => (holdsIds() ? tokens.join(" ") : live.tokenizer.join(tokens));

/**
 * Returns the tokens that precede the typed ones: the start token of an encoder-decoder's answer; empty for a decoder.
 */
const answerStart = () => (live.config.encoder_decoder ? (data.starts[0]?.tokens.slice(0, 1) ?? []) : []);

/**
 * Returns the contents of a text field. Browsers replace each `\r\n` in a field by `\n`, which a run on Windows text
 * reads as another sequence of tokens.
 */
function fieldText(id) {
  const text = at(id).value;
  return !holdsIds() && hasWindowsBreaks ? text.replaceAll("\n", "\r\n") : text;
}

/** True if the last text that was pasted lost its carriage returns, which the field replaces by line breaks. */
let hasLostReturns = false;

/** Finds out whether a pasted text loses carriage returns that the model would read. */
function checkPasted(event) {
  const readsReturns = ["characters", "pairs"].includes(live.tokenizer.kind) && !holdsIds();
  const text = event.clipboardData?.getData("text") ?? "";
  hasLostReturns = readsReturns && (hasWindowsBreaks ? /\r(?!\n)/ : /\r/).test(text);
}

/** True if most line breaks in the validation sequences are `\r\n`. */
let hasWindowsBreaks = false;

function findWindowsBreaks() {
  const texts = data.starts.map(({ tokens }) => live.tokenizer.join(tokens));
  const count = (pattern) => texts.reduce((sum, text) => sum + (text.match(pattern)?.length ?? 0), 0);
  return count(/\r\n/g) > count(/[^\r]\n/g);
}

/** Changes the input to the contents of both text fields. */
function readFields({ isPasted = false } = {}) {
  const texts = ["input-text", "input-source"].map(fieldText);
  const longest = Math.max(...texts.map((text) => text.length));
  const isLong = longest > MAX_CHARACTERS;
  const [answer, source] = texts.map((text) => (isLong ? [] : tokenized(text)));
  const ids = (all) => all.filter(({ id }) => id !== null).map(({ id }) => id);
  const unknown = new Set([...answer, ...source].filter(({ id }) => id === null).map(({ text }) => text));
  textProblem = isLong ? `this page reads at most ${integer(MAX_CHARACTERS)} characters, but the text has ${integer(longest)}; shorten it` : notInVocabulary([...unknown]);
  const tokens = [...answerStart(), ...ids(answer)];
  typedPieces = [...answerStart().map((id) => ({ id })), ...answer];
  change({ tokens, first: 0, source: live.config.encoder_decoder ? ids(source) : null, before: null, ...keptHeads(tokens) }, { typing: isLong ? "long" : typingStep(texts, isPasted) });
}

const WORDS = new Intl.Segmenter(undefined, { granularity: "word" });

/** Returns the words and punctuation marks of texts, in any script. */
const wordsOf = (texts) => texts.flatMap((text) => Array.from(WORDS.segment(text), ({ segment }) => segment).filter((segment) => segment.trim() !== ""));

/** The words of the text fields after the last edit; null if the fields were filled from the input. */
let typedWords = null;
/** The number of edits that change several words, each of which is undone alone. */
let largeEdits = 0;

/**
 * Returns the name of the undo step of an edit: edits of the same word are one step. A pasted text and an edit of several
 * words are steps of their own.
 */
function typingStep(texts, isPasted) {
  const before = typedWords ?? wordsOf([textOf(input.tokens.slice(answerStart().length)), input.source ? textOf(input.source) : ""]), after = wordsOf(texts);
  typedWords = after;
  const first = after.findIndex((word, index) => word !== before[index]);
  const index = first < 0 ? after.length : first;
  const rest = (words, from) => JSON.stringify(words.slice(from));
  // One word is changed, added or removed.
  const isSmall = [[1, 1], [0, 1], [1, 0], [0, 0]].some(([removed, added]) => rest(before, index + removed) === rest(after, index + added));
  if (isPasted || !isSmall) return `edit ${++largeEdits}`;
  // A space after a word belongs to the word.
  const last = undoStack.at(-1)?.typing;
  if (first < 0 && before.length === after.length && last && !last.startsWith("strength")) return last;
  return `word ${index} of ${after.length}`;
}

/** Returns a message that names the symbols missing from the vocabulary; empty if there are none. */
function notInVocabulary(symbols) {
  if (symbols.length === 0) return "";
  const named = symbols.slice(0, 5).map((symbol) => isolated(short(symbol, 20))).join(", ");
  const more = symbols.length > 5 ? ` and ${integer(symbols.length - 5)} more` : "";
  if (holdsIds()) return `${named}${more} ${symbols.length === 1 ? "is not a token id" : "are not token ids"}; type numbers from 0 to ${integer(live.config.vocab - 1)}`;
  const unclear = symbols.find((symbol) => live.tokenizer.ids.has(symbol));
  if (unclear !== undefined) return `${isolated(short(unclear, 20))} is a symbol, or the beginning of another one; put each symbol in double quotes`;
  return `${named}${more} ${symbols.length === 1 ? "is" : "are"} not in the vocabulary; remove or replace the marked ${symbols.length === 1 ? "part" : "parts"}`;
}

/** Returns the changes to heads without those at positions that no longer exist. */
const keptHeads = (tokens) => ({ heads: input.heads.filter(({ position }) => position === null || position < tokens.length) });

/** The tokens in the text field, including unknown ones; null if the field was filled from the input. */
let typedPieces = null;

function drawChips({ typing }) {
  if (!typing) {
    typedPieces = null;
    typedWords = null;
    at("input-text").value = textOf(input.tokens.slice(answerStart().length));
    at("input-source").value = input.source ? textOf(input.source) : "";
  }
  const all = typedPieces ?? input.tokens.map((id) => ({ id }));
  // Displays only the start of an input that is too long.
  const shown = all.length - input.first > MAX_TOKENS ? all.slice(0, MAX_TOKENS) : all;
  let index = -1;
  const chips = shown.map((piece) => {
    if (piece.id === null) {
      return tokenElement(piece.text, { class: "unknown", role: "option", "aria-disabled": "true", "aria-selected": "false", "aria-label": `${isolated(short(piece.text, 20))}, not in the vocabulary`, title: "not in the vocabulary" });
    }
    index += 1;
    const token = live.tokenizer.token(piece.id);
    const classes = [index < input.first ? "forgotten" : "", input.before && input.before[index] !== piece.id ? "replaced" : ""];
    return tokenElement(token, { class: classes.join(" "), role: "option", id: `chip-${index}`, "data-index": index, "data-token": token, "data-id": piece.id, title: `id ${piece.id}, ${index < input.first ? "dropped" : `position ${index - input.first}`}` });
  });
  if (shown.length < all.length) chips.push(element("span", { class: "muted" }, `… and ${integer(all.length - shown.length)} more`));
  at("chips").replaceChildren(...chips);
  at("chips").hidden = shown.length === 0;
  markChip();
}

/** Marks the chip at the selected position. */
function markChip() {
  const marked = isInputShown() ? state.position + input.first : -1;
  for (const chip of at("chips").children) chip.setAttribute("aria-selected", Number(chip.dataset.index ?? -2) === marked);
  // A refused input has no chips.
  if (at(`chip-${marked}`)) at("chips").setAttribute("aria-activedescendant", `chip-${marked}`);
  else at("chips").removeAttribute("aria-activedescendant");
  requestChipInView();
  drawReplacement(marked);
}

/** Scrolls to the selected chip in the next frame, when the layout is computed anyway. */
const requestChipInView = oncePerFrame(() => showWithin(at("chips"), at("chips").querySelector('[aria-selected="true"]')));

/** Scrolls a box, but not the page, until a part of it is visible. */
function showWithin(box, part) {
  if (!part || box.scrollHeight <= box.clientHeight) return;
  const [{ top, bottom }, outer] = [part.getBoundingClientRect(), box.getBoundingClientRect()];
  if (top < outer.top) box.scrollTop -= outer.top - top;
  if (bottom > outer.bottom) box.scrollTop += bottom - outer.bottom;
}

/** Selects a token of the input in all panels. */
function chooseToken(index) {
  const position = Math.max(index - input.first, 0);
  if (!shownAnswer || isRefused || position >= shownAnswer.tokens.length) return;
  if (isInputShown()) update({ position });
  else showTyped({ position });
  markChip();
}

/** Shows the controls that replace the chosen token. */
function drawReplacement(index) {
  const token = input.tokens[index];
  at("replace").hidden = token === undefined || isRefused;
  if (at("replace").hidden) return;
  at("replacement-label").replaceChildren("Replace ", tokenElement(live.tokenizer.token(token)), ` at position ${index - input.first} with`);
  at("replace").dataset.index = index;
}

/** Replaces a token, and keeps the original tokens for comparison. */
function replaceToken(index, id) {
  const tokens = input.tokens.with(index, id);
  const before = input.before ?? readTokens();
  const isOriginal = before.every((token, position) => token === tokens[position + input.first]);
  return change({ tokens, before: isOriginal ? null : before });
}

/**
 * Returns the first of some tokens that differs from others and can follow in an answer, or else the next token of the
 * vocabulary. The start token of an answer never follows.
 */
function otherToken(tokens, others) {
  const isOther = (id) => !others.includes(id) && !answerStart().includes(id);
  const following = Array.from({ length: live.config.vocab }, (_, step) => (others[0] + 1 + step) % live.config.vocab);
  return tokens.find(isOther) ?? following.find(isOther) ?? others[0];
}

/** Replaces the chosen token by the token typed in the field. */
function replaceByField(event) {
  event.preventDefault();
  const index = Number(at("replace").dataset.index);
  const typed = tokenized(at("replacement").value);
  const problem = typed.length !== 1 ? "type one token" : typed[0].id === null ? "not in the vocabulary; type another token" : "";
  at("replacement").setCustomValidity(problem);
  if (problem) return at("replacement").reportValidity();
  at("replacement").value = "";
  // The field is hidden until the model has read the input.
  replaceToken(index, typed[0].id).then(() => document.activeElement === document.body && at("replacement").focus());
}

/** Shows the loss on the input, compared with the loss before the changes; in the replay, the loss at the step on display. */
function drawInputLoss() {
  if (earlierFrame(state.sample)) return drawStepLoss(earlierFrame(state.sample));
  if (!shownAnswer) return;
  const { losses, lossesBefore } = shownAnswer;
  // A tokenizer's template can begin answers in ways that the page does not know.
  const isUnclear = live.tokenizer.answers !== null && !shownAnswer.tokens.some((id) => live.tokenizer.answers.begin.includes(id));
  const line = losses.length === 0 ? "" : `Loss on this input: ${fixed(mean(losses), 3)} nats per token${isUnclear ? ", although training counted only answers" : ""}`;
  const before = lossesBefore ? `, ${fixed(mean(lossesBefore), 3)} ${input.before ? "before the change" : "as trained"}` : "";
  at("input-loss").dataset.loss = losses.length > 0 ? mean(losses) : "";
  at("input-loss").replaceChildren(line + before);
}

/** Shows the loss at a step of the replay, on its sequence, compared with the end of training. */
function drawStepLoss({ sample, step }) {
  const [loss, end] = [sample, data.sample].map(readingLoss);
  at("input-loss").dataset.loss = Number.isNaN(loss) ? "" : loss;
  at("input-loss").replaceChildren(`Loss on this sequence at step ${integer(step)}: ${fixed(loss, 3)} nats per token, ${fixed(end, 3)} at the end of training`);
}

/** Starts from a sequence of the validation set. */
function startFrom(number) {
  const { tokens, source } = data.starts[number];
  startIndex = number;
  return change({ tokens, first: 0, source: source ?? null, before: null, ...NO_CHANGES });
}
/** The index of the last validation sequence that was started from; -1 for none. */
let startIndex = -1;

/** Names the validation sequence of the input; another input has no name. */
function drawStart() {
  const isStart = data.starts[startIndex]?.tokens === input.tokens;
  at("drawn").replaceChildren(isStart ? `validation sequence ${startIndex + 1} of ${data.starts.length} in this page` : "");
}

function startTry() {
  hasWindowsBreaks = findWindowsBreaks();
  for (const id of ["try", "next"]) at(id).hidden = false;
  at("source-field").hidden = !live.config.encoder_decoder;
  at("input-label").replaceChildren(live.config.encoder_decoder ? "Answer" : "Input");
  at("as-ids-field").hidden = live.tokenizer.notation === "integers";
  const [before, after] = live.tokenizer.added.map((tokens) => tokens.join(""));
  at("added-tokens").hidden = before + after === "" || live.config.encoder_decoder;
  const sides = [before && `begins with ${before}`, after && `ends with ${after}`].filter(Boolean).join(" and ");
  at("added-tokens").replaceChildren(`This page reads the input as typed. Elsewhere, a text for this model ${sides}; type these tokens for the same predictions.`);
  // Tokenizers of this kind can only decode.
  at("as-ids").disabled = at("as-ids").checked = live.tokenizer.kind === "ids";
  at("as-ids").addEventListener("change", () => {
    // The field is filled from the input, which is always readable.
    textProblem = "";
    drawChips({ typing: false });
    compute();
  });
  for (const id of ["input-text", "input-source"]) {
    at(id).addEventListener("paste", checkPasted);
    at(id).addEventListener("input", (event) => {
      hasLostReturns &&= event.inputType === "insertFromPaste";
      readFields({ isPasted: ["insertFromPaste", "insertFromDrop"].includes(event.inputType) });
    });
    // The browser's own undo would be one more edit, which the button then undoes.
    at(id).addEventListener("keydown", (event) => {
      if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.key.toLowerCase() !== "z") return;
      event.preventDefault();
      undo();
    });
  }
  makeSelectable(at("chips"), () => state.position + input.first, chooseToken);
  at("replace").addEventListener("submit", replaceByField);
  at("replacement").addEventListener("input", () => at("replacement").setCustomValidity(""));
  at("end-here").addEventListener("click", () => {
    const tokens = input.tokens.slice(0, Number(at("replace").dataset.index) + 1);
    change({ tokens, before: null, ...keptHeads(tokens) });
  });
  at("draw-another").hidden = data.starts.length < 2;
  at("draw-another").addEventListener("click", () => {
    startFrom((Math.max(startIndex, 0) + 1 + Math.floor(Math.random() * (data.starts.length - 1))) % data.starts.length);
  });
  inputViews.push(drawChips, drawStart);
  refusalViews.push(markChip);
  answerViews.push(drawInputLoss);
}
