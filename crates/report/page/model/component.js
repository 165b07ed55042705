// The names of components: heads and feed-forward layers of the decoder.

/** Returns the name of a component as the program writes it, such as 1.3, cross.1.3 or 1.mlp. */
const componentName = ({ kind, layer, head }) => (kind === "feed_forward" ? `${layer}.mlp` : `${kind === "cross" ? "cross." : ""}${layer}.${head}`);
