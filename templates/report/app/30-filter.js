// The state of the page is its address: #/VIEW?KEY=VALUE&... ; the filters are part of it.
const KEYS = ["outcome", "backend", "area", "dtype", "tag"];
const VIEWS = ["summary", "cases", "matrix", "run", "case"];

T.read = (hash) => {
  const [path, query] = hash.replace(/^#\/?/, "").split("?");
  const found = new URLSearchParams(query || "");
  const state = { view: VIEWS.includes(path) ? path : "summary" };
  for (const key of KEYS) state[key] = found.getAll(key);
  for (const key of ["q", "spec", "reason", "sort", "id"]) state[key] = found.get(key) || "";
  return state;
};

T.hash = (state) => {
  const query = new URLSearchParams();
  for (const key of KEYS) for (const value of state[key] || []) query.append(key, value);
  for (const key of ["q", "spec", "reason", "sort", "id"]) if (state[key]) query.set(key, state[key]);
  const text = query.toString();
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
  // of each kind of case: how many facets refuse it, and the last that does
  const refusals = D.kinds.map((values) => values.reduce((all, own, f) => (allows[f] && !own.some((value) => allows[f].has(value)) ? [all[0] + 1, f] : all), [0, -1]));
  const passes = Uint8Array.from(refusals, ([count]) => (count === 0 ? 1 : 0));
  const text = matcher(state), order = T.order(state.sort);
  const found = new Uint32Array(D.n), sizes = new Uint32Array(D.kinds.length);
  let length = 0;
  for (let at = 0; at < D.n; at++) {
    const i = order[at];
    if (text && !text(i)) continue;
    const kind = D.kind[i];
    sizes[kind]++;
    if (passes[kind]) found[length++] = i;
  }
  const counts = D.facets.map((facet) => new Uint32Array(facet.values.length));
  refusals.forEach(([refused, by], kind) => {
    if (refused > 1 || !sizes[kind]) return;
    D.kinds[kind].forEach((values, f) => { if (!refused || f === by) for (const value of values) counts[f][value] += sizes[kind]; });
  });
  return { cases: found.subarray(0, length), counts };
};

// Returns a test of a case for the text of the search: every word must be in its id, its reason or a tag.
const matcher = (state) => {
  const tests = [];
  if (state.spec) { const passes = flags(D.prefix, (prefix) => prefix === state.spec); tests.push((i) => passes[D.spec[i]] === 1); }
  if (state.reason) { const passes = flags(D.reasons, ([, reason]) => reason === state.reason); tests.push((i) => passes[D.reason[i]] === 1); }
  for (const word of state.q.toLowerCase().split(/\s+/).filter(Boolean)) tests.push(containing(word));
  if (!tests.length) return null;
  return tests.length === 1 ? tests[0] : (i) => tests.every((test) => test(i));
};

const flags = (values, test) => Uint8Array.from(values, (value) => (test(value) ? 1 : 0));

// A word without the signs between the parts of an id can only be in one part; the parts are few.
const containing = (word) => {
  const within = (text) => text.toLowerCase().includes(word);
  const reasons = flags(D.reasons, (reason) => reason.some(within)), tags = flags(D.tagSets, (set) => set.some(within));
  const beside = (i) => reasons[D.reason[i]] === 1 || tags[D.tags[i]] === 1;
  if (/[[\],=]/.test(word)) return (i) => beside(i) || T.id(i).toLowerCase().includes(word);
  const specs = flags(D.prefix, within), points = flags(D.points, within), backends = flags(D.backends, (name) => within(name) || within("backend"));
  const odd = Object.keys(D.odd).length > 0;
  return (i) => specs[D.spec[i]] === 1 || points[D.point[i]] === 1 || backends[D.backend[i]] === 1 || beside(i) || (odd && within(D.odd[i] || ""));
};

T.sidebar = (state, counts) => {
  const side = T.el("aside", { class: "side", "aria-label": "Filters" });
  D.facets.forEach((facet, f) => {
    const shown = facet.values.map((value, at) => [value, counts[f][at]]).filter(([value, count]) => count || state[facet.key].includes(value));
    if (!shown.length || (shown.length === 1 && !state[facet.key].length)) return;
    if (facet.key !== "outcome") shown.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1));
    const rows = shown.slice(0, 60).map(([value, count]) => {
      const box = T.el("input", { type: "checkbox", "data-facet": facet.key, value });
      box.checked = state[facet.key].includes(value);
      box.addEventListener("change", () => {
        const rest = state[facet.key].filter((one) => one !== value);
        T.go({ ...state, view: state.view, [facet.key]: box.checked ? [...rest, value] : rest });
      });
      return T.el("label", { class: count ? "" : "zero", title: value }, box, T.el("span", { class: "name" }, value), T.el("span", { class: "n" }, count.toLocaleString("en")));
    });
    const more = shown.length > 60 ? T.el("div", { class: "faint" }, `and ${shown.length - 60} more`) : null;
    side.append(T.el("fieldset", {}, T.el("legend", {}, facet.title), rows, more));
  });
  return side;
};

T.statusbar = (state, count, ...more) => {
  const pills = [];
  for (const [key, value] of [["spec", state.spec], ["reason", state.reason]]) {
    if (value) pills.push(T.el("button", { class: "pill", title: "remove this filter", onclick: () => T.go({ ...state, [key]: "" }) }, `${key}: ${value} ×`));
  }
  const any = pills.length || state.q || KEYS.some((key) => state[key].length);
  return T.el("div", { class: "status" },
    T.el("b", { role: "status", "aria-live": "polite", id: "count" }, T.count(count, "case")),
    count !== D.n && T.el("span", { class: "dim" }, `of ${D.n.toLocaleString("en")}`),
    pills,
    any ? T.el("button", { class: "link", onclick: () => T.go({ view: state.view, sort: state.sort }) }, "clear filters") : null,
    more);
};
