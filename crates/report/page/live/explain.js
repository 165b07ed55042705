// Explanations of the panels: terms with their definitions, and the switch that hides the explanatory text.

/** The definitions of the page's terms, as in docs/terminology.md. */
const TERMS = {
  token: "A unit of a sequence: a character, a word, a number or a few letters.",
  query: "The position that attends. Its row shows how much weight it puts on each key.",
  key: "A position that is attended to. Its column shows how much weight each query puts on it.",
  weight: "The share of a query's attention that a key gets; the weights of a query sum to 1 (softmax of its scores).",
  head: "One of several attention operations that a layer computes in parallel, each with its own projections. Layers and heads are numbered from 0.",
  layer: "One stage of the model, which reads the output of all layers before it.",
  probability: "How certain the model is of a next token, from 0 to 1; over all tokens it sums to 1.",
  loss: "The mean negative log-probability of the true next tokens, in nats; lower is better, and 1 nat is 1.443 bits.",
  temperature: "The divisor of the logits: values below 1 sharpen the distribution, values above 1 flatten it, and 0 always takes the most likely token.",
  "top-k": "Sampling from the k most likely tokens only.",
  "top-p": "Sampling from the most likely tokens whose probabilities add up to at least p.",
  ablation: "Replacing the output of a component: by its mean (mean ablation, the default) or by zero (zero ablation).",
  component: "A head or a feed-forward layer: it reads the residual stream and adds its output to it.",
  path: "The part of a component's input that comes from an earlier component; ablating it removes only this part (path patching).",
  patching: "Running the model on one input with an activation taken from another input.",
  induction: "Attending to the token after an earlier occurrence of the current token, which continues repeated patterns.",
  pattern: "The attention weights of a head on one sequence.",
  floor: "The loss of the optimal predictor; it is above zero where tokens are random.",
  chance: "The score of a head that attends to all visible keys equally.",
  gain: "The loss of the best baseline minus the loss of the model.",
  "uniform distribution": "The baseline that gives each token the same probability.",
  "unigram baseline": "The loss of a predictor that knows only the frequency of each token.",
  "mean-ablated": "With the output of a component replaced by its mean over sequences, which removes what the output says about this one. The circuit of a run takes a mean for each position; an input of the page takes one mean for all positions, so that their numbers differ.",
  "zero-ablated": "With the output of a component replaced by zero.",
  "determined targets": "The targets that the optimal predictor knows.",
  accuracy: "The share of targets for which the most likely token is the true one.",
  "best step": "The training step with the lowest validation loss.",
  parameters: "The numbers of the model that training changes.",
  step: "One update of the weights.",
  "tokens per second": "The number of targets trained on per second.",
  seed: "The number from which all random choices of the run follow.",
  composition: "How strongly a head reads the output of an earlier head, by the weights alone.",
  nats: "The unit of the loss, with the natural logarithm: 1 nat is 1.443 bits.",
};

/** The definitions of names in the summary that mean something else in sentences. */
const SUMMARY_TERMS = {
  "summary ended": "The reason for which training ended.",
  "summary tokens": "The number of targets trained on.",
  "summary time": "The time of the training steps, without validations and checkpoints.",
  "summary backend": "The library that computes with tensors.",
  "summary device": "The processor or GPU that trained the model.",
};

/** The words of the summary that are defined, as patterns with their terms; longer ones first. */
const SENTENCE_TERMS = [
  [/mean-ablat\w+/, "mean-ablated"], [/zero-ablat\w+/, "zero-ablated"], [/ablat\w+/, "ablation"], [/unigram baseline/, "unigram baseline"],
  [/uniform distribution/, "uniform distribution"], [/determined targets/, "determined targets"], [/gain/, "gain"], [/nats/, "nats"],
  [/floor/, "floor"], [/(?:validation )?loss/, "loss"], [/components?/, "component"], [/paths?/, "path"], [/[QKV]-composition/, "composition"],
  [/accuracy/, "accuracy"], [/best step/, "best step"], [/parameters/, "parameters"], [/steps?/, "step"], [/tokens per second/, "tokens per second"], [/seed/, "seed"],
].map(([pattern, term]) => ({ pattern: new RegExp(`^${/** @type {RegExp} */ (pattern).source}$`, "i"), source: /** @type {RegExp} */ (pattern).source, term }));
const ALL_SENTENCE_TERMS = new RegExp(`\\b(${SENTENCE_TERMS.map(({ source }) => source).join("|")})\\b`, "i");

/** Creates a word that shows its definition; within a control, it cannot be a button of its own. */
const termElement = (term, text, { isWithinControl = false } = {}) =>
  (isWithinControl ? element("span", { class: "term", "data-term": term }, text) : element("button", { type: "button", class: "term", "data-term": term }, text));

/** Splits a text into parts, of which the terms show their definitions, each term once among the texts with the same `defined`. */
function withTerms(text, defined = new Set(), options = {}) {
  return text.split(ALL_SENTENCE_TERMS).map((part) => {
    const term = SENTENCE_TERMS.find(({ pattern }) => pattern.test(part))?.term;
    if (!term || defined.has(term)) return part;
    defined.add(term);
    return termElement(term, part, options);
  });
}

/** Makes each `[data-term]` show its definition on hover, focus and click. */
function startTerms() {
  const box = at("definition");
  let shownTerm = null;
  const hide = () => {
    shownTerm?.removeAttribute("aria-describedby");
    shownTerm = null;
    box.hidden = true;
  };
  const show = (term) => {
    hide();
    shownTerm = term;
    box.replaceChildren(TERMS[term.dataset.term] ?? SUMMARY_TERMS[term.dataset.term]);
    term.setAttribute("aria-describedby", "definition");
    box.hidden = false;
    const { left, bottom } = term.getBoundingClientRect();
    const room = document.documentElement.clientWidth - box.offsetWidth - 8;
    box.style.left = `${Math.max(Math.min(left, room), 8) + scrollX}px`;
    box.style.top = `${bottom + 4 + scrollY}px`;
  };
  const termOf = (event) => event.target.closest?.("[data-term]");
  // The box of a term may lie on another term.
  box.addEventListener("pointermove", ({ clientX, clientY }) => {
    const below = document.elementsFromPoint(clientX, clientY).find((it) => it.matches("[data-term]"));
    if (below && below !== shownTerm) show(below);
  });
  document.addEventListener("pointerover", (event) => {
    if (termOf(event)) show(termOf(event));
    else if (shownTerm && document.activeElement !== shownTerm && !box.contains(event.target)) hide();
  });
  document.addEventListener("focusin", (event) => (termOf(event) ? show(termOf(event)) : hide()));
  document.addEventListener("focusout", hide);
  document.addEventListener("click", (event) => termOf(event) && show(termOf(event)));
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

function startExplain() {
  startTerms();
  at("explanations").addEventListener("change", (event) => {
    document.documentElement.dataset.explain = event.target.checked ? "on" : "off";
  });
}
