// Try it: typed text becomes tokens, and tokens become chips.

/** Returns true if the text field is read as ids, not as text. */
const isIds = () => live.tokenizer.notation !== "integers" && at("as-ids").checked;

/** Returns the tokens of a text; the id of a token that is not in the vocabulary is null. */
function piecesOf(text) {
  if (!isIds()) return live.tokenizer.encode(text);
  return Array.from(text.matchAll(/[^\s,]+/g), ([word]) => {
    const id = Number(word);
    return { id: /^\d+$/.test(word) && id < live.config.vocab ? id : null, text: word };
  });
}

const textOf = (tokens) => (isIds() ? tokens.join(" ") : live.tokenizer.join(tokens));

/** Returns the start token of an answer, which is not typed, as a list; empty for a decoder. */
const begin = () => (live.config.encoder_decoder ? (data.starts[0]?.tokens.slice(0, 1) ?? []) : []);

/** Reads both text fields. */
function typeInput() {
  const texts = ["input-text", "input-source"].map((id) => at(id).value);
  const longest = Math.max(...texts.map((text) => text.length));
  const isLong = longest > MAX_CHARACTERS;
  const [answer, source] = texts.map((text) => (isLong ? [] : piecesOf(text)));
  const ids = (all) => all.filter(({ id }) => id !== null).map(({ id }) => id);
  const unknown = new Set([...answer, ...source].filter(({ id }) => id === null).map(({ text }) => text));
  unreadable = isLong ? `this page reads at most ${MAX_TOKENS} tokens, but the text has ${whole(longest)} characters; shorten it` : notInVocabulary([...unknown]);
  const tokens = [...begin(), ...ids(answer)];
  typedPieces = [...begin().map((id) => ({ id })), ...answer];
  change({ tokens, first: 0, source: live.config.encoder_decoder ? ids(source) : null, before: null, ...keptPlaces(tokens) }, { typing: true });
}

/** Returns a message that names the symbols missing from the vocabulary; empty if there are none. */
function notInVocabulary(symbols) {
  if (symbols.length === 0) return "";
  const named = symbols.slice(0, 5).map((symbol) => isolated(short(symbol, 20))).join(", ");
  const more = symbols.length > 5 ? ` and ${whole(symbols.length - 5)} more` : "";
  return `${named}${more} ${symbols.length === 1 ? "is" : "are"} not in the vocabulary; remove or replace the marked parts`;
}

/** Drops changes at positions that no longer exist. */
const keptPlaces = (tokens) => ({ heads: input.heads.filter(({ position }) => position === null || position < tokens.length) });

/** The symbols in the text field, including unknown ones; null if only the tokens are known. */
let typedPieces = null;

function drawChips({ typing }) {
  if (!typing) {
    typedPieces = null;
    at("input-text").value = textOf(input.tokens.slice(begin().length));
    at("input-source").value = input.source ? textOf(input.source) : "";
  }
  const all = typedPieces ?? input.tokens.map((id) => ({ id }));
  // Only the start of an input that is too long to be read is shown.
  const shown = all.length - input.first > MAX_TOKENS ? all.slice(0, MAX_TOKENS) : all;
  let place = -1;
  const chips = shown.map((piece) => {
    if (piece.id === null) {
      return tokenElement(piece.text, { class: "unknown", role: "option", "aria-disabled": "true", "aria-selected": "false", "aria-label": `${isolated(short(piece.text, 20))}, not in the vocabulary`, title: "not in the vocabulary" });
    }
    place += 1;
    const token = live.tokenizer.token(piece.id);
    const classes = [place < input.first ? "forgotten" : "", input.before && input.before[place] !== piece.id ? "exchanged" : ""];
    return tokenElement(token, { class: classes.join(" "), role: "option", id: `chip-${place}`, "data-index": place, "data-token": token, "data-id": piece.id, title: `id ${piece.id}, position ${place - input.first}` });
  });
  if (shown.length < all.length) chips.push(element("span", { class: "muted" }, `… and ${whole(all.length - shown.length)} more`));
  at("chips").replaceChildren(...chips);
  at("chips").hidden = shown.length === 0;
  markChip();
}

/** Marks the chip at the position of the displayed prediction. */
function markChip() {
  const marked = state.sample === TYPED_SAMPLE ? state.position + input.first : -1;
  for (const chip of at("chips").children) chip.setAttribute("aria-selected", Number(chip.dataset.index ?? -2) === marked);
  if (marked >= 0) at("chips").setAttribute("aria-activedescendant", `chip-${marked}`);
  drawExchange(marked);
}

/** Selects a token of the typed sequence in all panels. */
function choosePlace(place) {
  const position = Math.max(place - input.first, 0);
  if (!answered || isRefused || position >= answered.tokens.length) return;
  const query = state.kind === "encoder" ? state.query : position;
  showTyped({ position, query });
  update(strongest({ query }));
  markChip();
}

/** Shows the controls for the chosen token. */
function drawExchange(place) {
  const token = input.tokens[place];
  at("exchange").hidden = token === undefined || isRefused;
  if (at("exchange").hidden) return;
  at("exchange-label").replaceChildren("Replace ", tokenElement(live.tokenizer.token(token)), ` at position ${place - input.first} with`);
  at("exchange").dataset.place = place;
}

/** Replaces a token, and keeps the tokens before the replacement for comparison. */
function exchange(place, id) {
  const tokens = input.tokens.with(place, id);
  const before = input.before ?? readTokens();
  const same = before.every((token, position) => token === tokens[position + input.first]);
  return change({ tokens, before: same ? null : before });
}

/** Replaces the chosen token by the one typed in the field. */
function exchangeByField(event) {
  event.preventDefault();
  const place = Number(at("exchange").dataset.place);
  const typed = piecesOf(at("exchange-by").value);
  const problem = typed.length !== 1 ? "type one token" : typed[0].id === null ? "not in the vocabulary" : "";
  at("exchange-by").setCustomValidity(problem);
  if (problem) return at("exchange-by").reportValidity();
  exchange(place, typed[0].id);
  at("exchange-by").value = "";
}

/** Shows the loss on the input, compared with the loss before the changes. */
function drawInputLoss({ losses, lossesBefore }) {
  const line = losses.length === 0 ? "" : `Loss on this input: ${fixed(mean(losses), 3)} nats per token`;
  const before = lossesBefore ? `, ${fixed(mean(lossesBefore), 3)} ${input.before ? "before the change" : "as trained"}` : "";
  at("input-loss").dataset.loss = losses.length > 0 ? mean(losses) : "";
  at("input-loss").replaceChildren(line + before);
}

/** Starts from a sequence of the validation set. */
function startFrom(number) {
  const { tokens, source } = data.starts[number];
  drawn = number;
  at("drawn").replaceChildren(`validation sequence ${number} of ${data.starts.length} in this page`);
  return change({ tokens, first: 0, source: source ?? null, before: null, heads: [], frozen: [] });
}
let drawn = -1;

function startTry() {
  at("try").hidden = false;
  at("source-field").hidden = !live.config.encoder_decoder;
  at("input-label").replaceChildren(live.config.encoder_decoder ? "Answer" : "Input");
  at("as-ids-field").hidden = live.tokenizer.notation === "integers";
  // Some tokenizers can only decode.
  at("as-ids").disabled = at("as-ids").checked = live.tokenizer.kind === "ids";
  at("as-ids").addEventListener("change", () => {
    // The field no longer holds the unreadable text.
    unreadable = "";
    drawChips({ typing: false });
    compute();
  });
  for (const id of ["input-text", "input-source"]) at(id).addEventListener("input", typeInput);
  choosable(at("chips"), () => state.position + input.first, choosePlace, ["pointerdown"]);
  at("exchange").addEventListener("submit", exchangeByField);
  at("exchange-by").addEventListener("input", () => at("exchange-by").setCustomValidity(""));
  at("end-here").addEventListener("click", () => {
    const tokens = input.tokens.slice(0, Number(at("exchange").dataset.place) + 1);
    change({ tokens, before: null, ...keptPlaces(tokens) });
  });
  at("draw-another").hidden = data.starts.length < 2;
  at("draw-another").addEventListener("click", () => {
    startFrom((Math.max(drawn, 0) + 1 + Math.floor(Math.random() * (data.starts.length - 1))) % data.starts.length);
  });
  inputViews.push(drawChips);
  refusalViews.push(markChip);
  answerViews.push(drawInputLoss);
}
