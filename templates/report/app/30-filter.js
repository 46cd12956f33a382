// The state of the page is its address: #/VIEW?KEY=VALUE&... ; the filters are part of it.
const KEYS = ["outcome", "backend", "area", "dtype", "tag", "state"];
const VIEWS = ["summary", "cases", "matrix", "support", "run", "case"];
const WORDS = ["q", "spec", "reason", "sort", "id", "from"];

T.read = (hash) => {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const found = new URLSearchParams(query || "");
  const state = { view: VIEWS.includes(path) ? path : "summary" };
  for (const key of KEYS) state[key] = found.getAll(key);
  for (const key of WORDS) state[key] = found.get(key) || "";
  return state;
};

T.hash = (state) => {
  const query = [];
  for (const key of KEYS) for (const value of state[key] || []) query.push(`${key}=${encodeURIComponent(value)}`);
  for (const key of WORDS) if (state[key]) query.push(`${key}=${encodeURIComponent(state[key])}`);
  const text = query.join("&");
  return `#/${state.view || "summary"}${text ? "?" + text : ""}`;
};

T.go = (state, { quietly = false } = {}) => {
  const hash = T.hash(state);
  if (hash === location.hash) return;
  if (quietly) { history.replaceState(null, "", hash); T.render(); } else location.hash = hash;
};

// Returns the cases that pass all filters, in order, and for each facet how many pass all others.
T.filtered = (state) => {
  const allows = D.facets.map((facet) => (state[facet.key].length ? new Set(state[facet.key].map((value) => facet.values.indexOf(value))) : null));
  // of each half: how many of its facets refuse its values, and the last that does
  const halves = D.halves.map(({ column, pairs, facets }) => {
    const active = facets.filter((f) => allows[f]), count = new Uint8Array(pairs.length), by = new Uint32Array(pairs.length);
    for (const f of active) pairs.forEach((own, at) => { if (!own.some(([facet, value]) => facet === f && allows[f].has(value))) { count[at]++; by[at] = f; } });
    return { column, pairs, count, by, sizes: new Uint32Array(pairs.length) };
  });
  const order = T.order(state.sort), refused = refusedByText(state), { n } = D, [kinds, points] = halves;
  const found = new Uint32Array(n);
  let length = 0;
  for (let at = 0; at < n; at++) {
    const i = order[at];
    if (refused !== null && refused[i]) continue;
    const kind = kinds.column[i], point = points.column[i], bad = kinds.count[kind] + points.count[point];
    if (bad > 1) continue;
    if (!bad) found[length++] = i;
    if (!points.count[point]) kinds.sizes[kind]++;
    if (!kinds.count[kind]) points.sizes[point]++;
  }
  const counts = D.facets.map((facet) => new Uint32Array(facet.values.length));
  for (const { pairs, count, by, sizes } of halves) {
    pairs.forEach((own, at) => { if (sizes[at]) for (const [f, value] of own) if (!count[at] || f === by[at]) counts[f][value] += sizes[at]; });
  }
  return { cases: found.subarray(0, length), counts };
};

// Returns a mark for each case that the text of the search refuses: every word must be in its id, its reason or a tag. Null without a text.
// The parts of cases are few: each is searched once, and the loops over the cases only look at what was found.
const refusedByText = (state) => {
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  if (!state.spec && !state.reason && !words.length) return null;
  const refused = new Uint8Array(D.n);
  if (state.spec) refuse(refused, D.spec, flags(D.prefix, (prefix) => prefix === state.spec));
  if (state.reason) refuse(refused, D.reason, flags(D.reasons, ([, reason]) => reason === state.reason));
  for (const word of words) refuseWithout(refused, word);
  return refused;
};

const refuse = (refused, column, passes) => { for (let i = 0; i < refused.length; i++) if (!passes[column[i]]) refused[i] = 1; };

const flags = (values, test) => Uint8Array.from(values, (value) => (test(value) ? 1 : 0));

const refuseWithout = (refused, word) => {
  const within = (text) => text.toLowerCase().includes(word), { spec, reason, tags: set, place, isOdd } = D;
  const specs = flags(D.prefix, within), reasons = flags(D.reasons, (texts) => texts.some(within)), sets = flags(D.tagSets, (tags) => tags.some(within));
  const { ends, across } = endsWith(word);
  for (let i = 0; i < refused.length; i++) {
    if (refused[i] || reasons[reason[i]] || sets[set[i]]) continue;
    if (isOdd !== null && isOdd[i] ? within(D.odd[i]) : specs[spec[i]] || ends[place[i]] || (across !== null && across(spec[i], place[i]))) continue;
    refused[i] = 1;
  }
};

// An id is the name of its spec and an end, [backend=...,...]. A word is in one of the two, or begins in the name and goes on in the end.
const endsWith = (word) => {
  const ends = flags(D.ends, (end) => end.includes(word)), splits = [];
  for (let at = word.indexOf("[", 1); at > 0; at = word.indexOf("[", at + 1)) {
    splits.push([flags(D.prefix, (name) => name.toLowerCase().endsWith(word.slice(0, at))), flags(D.ends, (end) => end.startsWith(word.slice(at)))]);
  }
  return { ends, across: splits.length ? (spec, place) => splits.some(([heads, tails]) => heads[spec] && tails[place]) : null };
};

// The filters. The elements stay in the document from view to view: to make them again takes longer than to filter.
T.sidebar = (state, counts) => {
  T.side ||= T.el("aside", { class: "side", "aria-label": "Filters" });
  const sets = [];
  D.facets.forEach((facet, f) => {
    const shown = facet.values.map((value, at) => [value, counts[f][at]]).filter(([value, count]) => count || state[facet.key].includes(value));
    if (!shown.length || (facet.values.length === 1 && !state[facet.key].length)) return;
    if (facet.key !== "outcome") shown.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    facet.set ||= T.el("fieldset", {});
    facet.legend ||= T.el("legend", {}, facet.title);
    const rows = shown.slice(0, 60).map(([value, count]) => choice(facet, value, count, state[facet.key].includes(value)));
    const more = shown.length > 60 ? [T.el("div", { class: "faint" }, `and ${shown.length - 60} more`)] : [];
    arrange(facet.set, [facet.legend, ...rows, ...more]);
    sets.push(facet.set);
  });
  arrange(T.side, sets);
  return T.side;
};

// A box of a facet, with how many cases have its value.
const choice = (facet, value, count, checked) => {
  facet.choices ||= new Map();
  let found = facet.choices.get(value);
  if (!found) {
    const box = T.el("input", { type: "checkbox", "data-facet": facet.key, value }), n = T.el("span", { class: "n" });
    box.addEventListener("change", () => {
      const state = T.read(location.hash), rest = state[facet.key].filter((one) => one !== value);
      T.go({ ...state, [facet.key]: box.checked ? [...rest, value] : rest });
    });
    found = { box, n, label: T.el("label", { title: value }, box, T.el("span", { class: "name" }, value), n) };
    facet.choices.set(value, found);
  }
  const text = T.number(count);
  if (found.n.textContent !== text) { found.n.textContent = text; found.label.className = count ? "" : "zero"; }
  if (found.box.checked !== checked) found.box.checked = checked;
  return found.label;
};

// Makes nodes the children of an element; those that are its children already, in this order, are not touched.
const arrange = (parent, nodes) => {
  if (nodes.length !== parent.children.length || nodes.some((node, at) => node !== parent.children[at])) parent.replaceChildren(...nodes);
};

T.statusbar = (state, [count, all, noun], ...more) => {
  const pills = [];
  for (const [key, value] of [["spec", state.spec], ["reason", state.reason]]) {
    if (value) pills.push(T.el("button", { class: "pill", title: "remove this filter", onclick: () => T.go({ ...state, [key]: "" }) }, `${key}: ${value} ×`));
  }
  const any = pills.length || state.q || KEYS.some((key) => state[key].length);
  return T.el("div", { class: "status" },
    T.el("b", { role: "status", "aria-live": "polite", id: "count" }, T.count(count, noun)),
    count !== all && T.el("span", { class: "dim" }, `of ${T.number(all)}`),
    pills,
    any ? T.el("button", { class: "link", onclick: () => T.go({ view: state.view, sort: state.sort }) }, "clear filters") : null,
    more);
};
