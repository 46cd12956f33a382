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
  const begun = performance.now();
  const counts = D.facets.map((facet) => new Uint32Array(facet.values.length));
  const allows = D.facets.map((facet) => allowed(facet, state[facet.key]));
  const text = matcher(state);
  const order = T.order(state.sort);
  const found = new Uint32Array(D.n);
  let length = 0;
  for (let at = 0; at < D.n; at++) {
    const i = order[at];
    if (text && !text(i)) continue;
    let failed = -1, failures = 0;
    for (let f = 0; f < allows.length; f++) {
      if (allows[f] && !allows[f][D.facets[f].column[i]]) { failed = f; if (++failures > 1) break; }
    }
    if (failures > 1) continue;
    if (failures === 0) found[length++] = i;
    for (let f = 0; f < counts.length; f++) {
      if (failures && f !== failed) continue;
      const facet = D.facets[f], value = facet.column[i];
      if (facet.sets) for (const tag of facet.sets[value]) counts[f][tag]++;
      else counts[f][facet.of ? facet.of[value] : value]++;
    }
  }
  T.lastFilter = performance.now() - begun;
  return { cases: found.subarray(0, length), counts };
};

// For each number of a facet's column, whether it passes; null where everything does.
const allowed = (facet, chosen) => {
  if (!chosen || !chosen.length) return null;
  const places = new Set(chosen.map((value) => facet.values.indexOf(value)));
  if (facet.sets) return Uint8Array.from(facet.sets, (set) => (set.some((tag) => places.has(tag)) ? 1 : 0));
  const size = facet.of ? facet.of.length : facet.values.length;
  return Uint8Array.from({ length: size }, (_, at) => (places.has(facet.of ? facet.of[at] : at) ? 1 : 0));
};

const matcher = (state) => {
  const tests = [];
  if (state.spec) tests.push((i) => D.prefix[D.spec[i]] === state.spec);
  if (state.reason) tests.push((i) => D.reasons[D.reason[i]][1] === state.reason);
  for (const word of state.q.toLowerCase().split(/\s+/).filter(Boolean)) {
    const hay = T.haystack();
    const reasons = Uint8Array.from(D.reasons, ([kind, why]) => (`${kind} ${why}`.toLowerCase().includes(word) ? 1 : 0));
    const tags = Uint8Array.from(D.tagSets, (set) => (set.some((tag) => tag.toLowerCase().includes(word)) ? 1 : 0));
    tests.push((i) => hay[i].includes(word) || reasons[D.reason[i]] === 1 || tags[D.tags[i]] === 1);
  }
  if (!tests.length) return null;
  return tests.length === 1 ? tests[0] : (i) => tests.every((test) => test(i));
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
