// The model in the page: null where the page has none.

const live = null;
