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
  ablation: "Removing the output of a component (zero or mean ablation).",
  component: "A head or a feed-forward layer: it reads the residual stream and adds its output to it.",
  path: "The part of a component's input that comes from an earlier component; ablating it removes only this part (path patching).",
  patching: "Running the model on one input with an activation taken from another input.",
  induction: "Attending to the token after an earlier occurrence of the current token, which continues repeated patterns.",
  pattern: "The attention weights of a head on one sequence.",
  floor: "The loss of the optimal predictor; it is above zero where tokens are random.",
};

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
    box.replaceChildren(TERMS[term.dataset.term]);
    term.setAttribute("aria-describedby", "definition");
    box.hidden = false;
    const { left, bottom } = term.getBoundingClientRect();
    const room = document.documentElement.clientWidth - box.offsetWidth - 8;
    box.style.left = `${Math.max(Math.min(left, room), 8) + scrollX}px`;
    box.style.top = `${bottom + 4 + scrollY}px`;
  };
  for (const term of document.querySelectorAll("[data-term]")) {
    term.addEventListener("pointerenter", () => show(term));
    term.addEventListener("pointerleave", () => shownTerm === term && document.activeElement !== term && hide());
    term.addEventListener("focus", () => show(term));
    term.addEventListener("blur", hide);
    term.addEventListener("click", () => show(term));
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

function startExplain() {
  startTerms();
  at("explanations").addEventListener("change", (event) => {
    document.documentElement.dataset.explain = event.target.checked ? "on" : "off";
  });
}
