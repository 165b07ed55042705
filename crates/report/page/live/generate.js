// Generation: the distribution of the next token, its truncation, and sampling from it.

/** The number of candidates shown. */
const CANDIDATES = 8;
let isGenerating = false;

const sampling = () => ({ temperature: Number(at("temperature").value), topK: Number(at("top-k").value), topP: Number(at("top-p").value) });

/**
 * Returns the tokens to sample from with their probabilities. Temperature, top-k and top-p apply in this order, as in
 * the program.
 */
function truncated(logits, { temperature, topK, topP }) {
  if (temperature === 0) return [{ id: largest(logits, 1)[0], probability: 1 }];
  const probabilities = softmax(logits, temperature);
  const order = largest(logits, topK || logits.length);
  const all = order.reduce((sum, id) => sum + probabilities[id], 0);
  let [reached, count] = [0, 0];
  while (count < order.length && (count === 0 || reached < topP)) reached += probabilities[order[count++]] / all;
  return order.slice(0, count).map((id) => ({ id, probability: probabilities[id] / all / reached }));
}

/** Samples a candidate in proportion to its probability, and returns its id. */
function sampleFrom(candidates) {
  let rest = Math.random();
  return (candidates.find(({ probability }) => (rest -= probability) < 0) ?? candidates[0]).id;
}

/** The logits of the token that follows the input; null if there are none. */
let next = null;

/** Returns the logits of the last token that was read. */
const lastRow = ({ logits, count }) => logits.subarray(logits.length - logits.length / count);

function updateNext({ answer, tokens }) {
  next = answer.logits.slice(answer.logits.length - answer.logits.length / tokens.length);
}

/** Returns the position of the input whose next tokens are shown. */
const candidatePosition = () => Math.min(state.position, shownAnswer.tokens.length - 1);

/** Returns the logits of the token after a position. */
function logitsAfter(position) {
  const { answer: { logits }, tokens } = shownAnswer;
  const vocab = logits.length / tokens.length;
  return logits.subarray(position * vocab, (position + 1) * vocab);
}

/** Draws the most likely tokens after the selected position; a click on a token continues the input with it. */
function drawCandidates() {
  for (const [id, text] of [["temperature", fixed(sampling().temperature, 2)], ["top-k", sampling().topK || "all"], ["top-p", fixed(sampling().topP, 2)]]) {
    at(`${id}-text`).replaceChildren(String(text));
    at(id).setAttribute("aria-valuetext", text);
  }
  if (!isGenerating && shownAnswer && !isInputShown()) return drawPredictedTokens();
  at("candidates-after").hidden = !next || isGenerating || !shownAnswer;
  if (!next) return at("candidates").replaceChildren();
  const isLive = isGenerating || !shownAnswer;
  const position = isLive ? -1 : candidatePosition();
  const logits = isLive ? next : logitsAfter(position);
  const follower = isLive ? undefined : shownAnswer.tokens[position + 1];
  if (!isLive) describePosition(position, follower);
  const shares = new Map(truncated(logits, sampling()).map(({ id, probability }) => [id, probability]));
  const untruncated = softmax(logits, 1);
  const before = isLive ? null : shownAnswer.probabilitiesBefore?.[position];
  const focused = at("candidates").contains(document.activeElement) ? Array.from(at("candidates").children).findIndex((row) => row.contains(document.activeElement)) : -1;
  at("candidates").replaceChildren(...largest(untruncated, Math.min(CANDIDATES, untruncated.length)).map((id) => {
    const token = live.tokenizer.token(id);
    const share = shares.get(id) ?? 0;
    const button = element("button", { type: "button", class: "candidate", "data-id": id, "aria-label": `continue with ${isolated(short(token, 60))}, probability ${fixed(share, 4)}` }, tokenElement(token));
    button.addEventListener("click", () => {
      isGenerating = false;
      continueWith(id, position);
    });
    const was = before ? ` (was ${fixed(before[id], 3)})` : "";
    const isTrue = id === follower ? "true" : "";
    return barRow([button], share, (share > 0 ? fixed(share, 3) : "excluded") + was, { "data-id": id, "data-probability": share, class: share > 0 ? isTrue : `cut ${isTrue}` });
  }));
  at("candidates").children[focused]?.querySelector("button").focus();
}

/** Draws the most likely tokens after the selected position of a sequence of the page, which is not the input. */
function drawPredictedTokens() {
  const { inputs, targets, most_likely: predicted, sequence } = data.readings[state.sample];
  const position = Math.min(state.position, inputs.length - 1), target = targets[position];
  at("candidates-after").hidden = false;
  at("candidates-after").dataset.position = position;
  at("candidates-after").replaceChildren("After ", tokenElement(inputs[position]), ` at position ${position} of ${isolated(sequence)}`,
    ...(target === null ? ["."] : [", where ", tokenElement(target.text), ` follows (probability ${fixed(target.probability, 3)}).`]));
  at("candidates").replaceChildren(...(predicted[position] ?? []).map(({ id, token, probability }) =>
    barRow([tokenElement(token)], probability, fixed(probability, 3), { "data-id": id, "data-probability": probability, class: id === target?.id ? "true" : "" })));
}

/** Names the position whose next tokens are shown, and the token that follows it in the input. */
function describePosition(position, follower) {
  const token = tokenElement(live.tokenizer.token(shownAnswer.tokens[position]));
  const probability = follower === undefined ? 0 : shownAnswer.probabilities[position][follower];
  at("candidates-after").dataset.position = position;
  at("candidates-after").replaceChildren("After ", token, ` at position ${position}`,
    ...(follower === undefined ? [", the end of the input."] : [", where the input continues with ", tokenElement(live.tokenizer.token(follower)), ` (probability ${fixed(probability, 3)}).`]));
}

/** Appends a token to the input. */
const append = (id) => change(extended(id));

/** Appends a token after a position of the input, and removes the tokens that followed it. */
function continueWith(id, position) {
  const isAtEnd = position < 0 || position === shownAnswer.tokens.length - 1;
  if (isAtEnd) return append(id);
  const tokens = [...input.tokens.slice(0, input.first + position + 1), id];
  state.position = lastShown; // the new token is selected
  return change({ tokens, before: null, ...keptHeads(tokens) });
}

/** Returns the input with one more token. If the context is full, its second half is read again, as in the program. */
function extended(id) {
  const tokens = [...input.tokens, id];
  const { context } = live.config;
  const isFull = context !== null && tokens.length - input.first > context;
  const first = isFull ? tokens.length - Math.ceil(context / 2) : input.first;
  return { tokens, first, before: null, ...(isFull ? { heads: input.heads.filter(({ position }) => position === null), frozen: [] } : {}) };
}

/** Generates tokens with the KV cache until stopped. All panels show each new token. */
async function generate() {
  isGenerating = true;
  markGenerating();
  try {
    await isComputing;
    undoStack.push({ input, typing: false });
    let read = await live.begin(readTokens(), { source: input.source, interventions: await interventions(input) });
    let { answer } = shownAnswer;
    const { tokens } = input;
    let extendedInput = input;
    while (isGenerating && input === extendedInput && input.tokens.length < tokens.length + 1000) {
      const id = sampleFrom(truncated(lastRow(read), sampling()));
      read = await live.append(id);
      if (input !== extendedInput) break;
      input = extendedInput = { ...input, ...extended(id) };
      answer = grownAnswer(answer, read, readTokens().length);
      showWritten(answer);
      // The start token of an answer is also its end token.
      if (id === answerStart()[0]) break;
      await paced();
    }
  } catch (error) {
    showNote(error.message, true);
  }
  isGenerating = false;
  markGenerating();
  for (const view of inputViews) view({ typing: false });
  await compute();
}

function markGenerating() {
  at("generate-toggle").setAttribute("aria-pressed", isGenerating);
  at("generate-toggle").replaceChildren(isGenerating ? "Stop" : "Generate");
}

function startGenerate() {
  at("top-k").max = Math.min(live.config.vocab, 50);
  for (const id of ["temperature", "top-k", "top-p"]) at(id).addEventListener("input", drawCandidates);
  at("one-token").addEventListener("click", async () => {
    isGenerating = false;
    await isComputing;
    if (next && !inputRemark().refused) append(sampleFrom(truncated(next, sampling())));
  });
  at("generate-toggle").addEventListener("click", () => {
    if (isGenerating) isGenerating = false;
    else if (next && !inputRemark().refused) generate();
  });
  answerViews.push(updateNext);
  refusalViews.push(() => {
    if (!isRefused) return;
    next = null;
    drawCandidates();
  });
  drawCandidates();
}
