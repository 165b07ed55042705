// The answer while the model writes: every generated token adds a row to the logits and maps, so that all panels follow.

/**
 * Returns an answer of `time` tokens: `before` with the rows of the tokens that were read since. If all tokens were read
 * again, nothing of `before` remains but the encoder's maps.
 */
function grownAnswer(before, { logits, weights, count, visible }, time) {
  const start = time - count;
  const grown = (old, rows) => {
    const keys = rows.length / count, oldKeys = start > 0 ? old.length / start : 0;
    const map = new Float32Array(time * keys);
    for (let query = 0; query < start; query++) map.set(old.subarray(query * oldKeys, (query + 1) * oldKeys), query * keys);
    map.set(rows, start * keys);
    return map;
  };
  const vocab = logits.length / count;
  const all = new Float32Array(time * vocab);
  all.set(before.logits.subarray(0, start * vocab));
  all.set(logits, start * vocab);
  const maps = Object.entries(weights).map(([kind, layers]) => [kind, layers.map((heads, layer) => heads.map((rows, head) => (start > 0 ? grown(before.weights[kind][layer][head], rows) : rows)))]);
  return { logits: all, weights: { ...before.weights, ...Object.fromEntries(maps) }, visible };
}

/** Shows the text written so far in all panels, with the newest token selected. */
function showWritten(answer) {
  const tokens = readTokens();
  for (const view of inputViews) view({ typing: false });
  state.position = lastShown;
  showAnswer({ input, tokens, source: input.source, answer, reference: null });
  showNote(inputRemark().text);
}

/** Waits until the frame is drawn, and at least for the chosen time per token. */
async function paced() {
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
  const pause = Number(at("speed").value);
  if (pause > 0) await new Promise((resolve) => setTimeout(resolve, pause));
}
