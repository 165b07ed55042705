// The data that a page must show, for the scripts that explore it; explore.mjs describes the file.

import { readFileSync } from "node:fs";
import { check, dataset, page, same } from "./hands.mjs";

export const [report, expectedPath] = process.argv.slice(3);
export const expected = JSON.parse(readFileSync(expectedPath, "utf8"));
/** The scores that are known for at least one head. */
export const scores = Object.keys(expected.heads[0]?.[0] ?? {}).filter((score) => expected.heads.flat().some((head) => head[score] !== null));

/** Checks that two numbers agree to about seven digits; both may be missing. */
export function close(found, wanted, what) {
  if (wanted === null || wanted === undefined) return check(found === "" || found === undefined || found === "null", `${what}: found ${found}, expected none`);
  check(found !== "" && found !== undefined && Math.abs(Number(found) - wanted) <= 1e-6 * Math.abs(wanted) + 1e-12, `${what}: found ${found}, expected ${wanted}`);
}

const { value } = page;
export const radio = (name, option) => `label:has(> input[name="${name}"][value="${option}"])`;

/** Returns positions to point at: both ends and some positions in between. */
export const some = (length) => [...new Set([0, 1, Math.floor(length / 3), Math.floor((2 * length) / 3), length - 1])].filter((i) => i >= 0 && i < length);

export const weightsOf = ({ attention, cross, encoder }, kind) => ({ decoder: attention, cross, encoder })[kind];
/** Returns the query and key tokens of a kind of attention, and a function for the weight between two of them. */
export function expectedMaps(sample, kind) {
  const { inputs, source } = expected.readings[sample];
  const [queries, keys] = { decoder: [inputs, inputs], cross: [inputs, source], encoder: [source, source] }[kind];
  const weights = weightsOf(expected.views[sample], kind);
  return { queries, keys, weight: (layer, head, query, key) => weights[layer][head][query * keys.length + key] };
}
/** Returns the name of a head of the kind of attention on display, which is named if there are several kinds. */
export async function headInWords(layer, head) {
  const kind = { decoder: "decoder self-attention", cross: "cross-attention", encoder: "encoder self-attention" }[(await dataset("reading")).kind];
  return `${expected.readings[0].source ? `${kind}, ` : ""}layer ${layer}, head ${head}`;
}

/** Returns true if a weight agrees to the precision of a byte; JSON encodes NaN as null. */
export const near = (found, wanted) => found !== "" && (wanted === null ? found === "NaN" : Math.abs(Math.sqrt(Number(found)) - Math.sqrt(wanted)) <= 0.501 / 254);

/** Checks the reading of a cell. */
export async function checkReading({ sample, kind, layer, head }, query, key_, what) {
  const found = await dataset("reading");
  const { queries, keys, weight } = expectedMaps(sample, kind);
  const label = `${what} of sample ${sample}, ${kind}, layer ${layer}, head ${head}, query ${query}, key ${key_}`;
  for (const [name, wanted] of Object.entries({ sample, kind, layer, head, query, key: key_ })) same(found[name], String(wanted), `${label}: ${name}`);
  same(found.queryToken, queries[query], `${label}: query token`);
  same(found.keyToken, keys[key_], `${label}: key token`);
  const wanted = weight(layer, head, query, key_);
  if (kind === "decoder" && key_ > query && found.weight === "") return same(wanted, 0, `${label}: a key that is not visible`);
  check(near(found.weight, wanted), `${label}: weight ${found.weight}, expected ${wanted}`);
}

/** Returns the steps of all curves of the loss. */
export const lossSteps = ({ training, validation, learning_rate }) => [...training, ...validation, ...learning_rate].map(({ step }) => step);
