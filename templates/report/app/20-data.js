// The run: its index as columns, and chunks that are loaded when a view needs them.
const TONES = {
  PASS: "pass", FAIL: "bad", FELL_BACK: "fell", ERROR: "warn", CRASH: "odd", TIMEOUT: "late", NOT_RUN: "warn", FLAKY: "warn",
  UNAVAILABLE: "quiet", XFAIL: "blue", XPASS: "bad", OFFLINE_PASS: "blue", OFFLINE_FAIL: "bad",
};
T.tone = (outcome) => TONES[outcome] || "quiet";
T.glyph = (outcome) => { const at = D.names.indexOf(outcome); return D.failure[at] ? D.outcomes[at][3] : ""; };
T.chip = (outcome) => T.el("span", { class: `chip t-${T.tone(outcome)}` }, outcome);

const parts = { waiting: new Map(), here: new Map() };

// What each script of the folder calls.
window.conformance = (name, text) => {
  const value = JSON.parse(text);
  if (name === "index") { T.start(value); return; }
  parts.here.set(name, value);
};

T.part = (name) => {
  if (!parts.waiting.has(name)) {
    parts.waiting.set(name, new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `report/${name}.js`;
      script.onload = () => (parts.here.has(name) ? resolve(parts.here.get(name)) : reject(new Error(name)));
      script.onerror = () => { parts.waiting.delete(name); reject(new Error(`report/${name}.js cannot be loaded`)); };
      document.head.append(script);
    }));
  }
  return parts.waiting.get(name);
};

const D = {};

T.load = (index) => {
  Object.assign(D, index);
  const columns = index.columns;
  D.n = columns.outcome.length;
  D.outcome = Uint8Array.from(columns.outcome);
  for (const name of ["spec", "backend", "point", "reason", "tags", "ms"]) D[name] = Uint32Array.from(columns[name]);
  D.prefix = D.specs.map(([, area, name]) => (area ? `${area}/${name}` : name));
  D.names = D.outcomes.map(([label]) => label);
  D.failure = D.outcomes.map(([, fails]) => fails);
  D.params = D.points.map(params);
  D.facets = [facet("outcome", "Outcome", D.names, D.outcome, null), facet("backend", "Backend", D.backends, D.backend, null)];
  const areas = unique(D.specs.map(([, area]) => area || "(top)"));
  D.facets.push(facet("area", "Area", areas.values, D.spec, areas.of));
  const sets = D.tags.length ? index.tags : [];
  const tags = [...new Set(sets.flat())].sort();
  D.facets.push({ ...facet("tag", "Tag", tags, D.tags, null), sets: sets.map((set) => set.map((tag) => tags.indexOf(tag))) });
  D.tagSets = sets;
  D.byOutcome = sorted(D.n, D.outcome, D.outcomes.length);
  D.halves = [kinds(), points()];
  ends();
};

// A filter looks at the values of the facets, [facet, value], not at each case. They are in two halves, of which few are different:
// what is true of the case, and the matrix keys of its point.
const half = (column, pairs, first) => ({ column, pairs, facets: [...D.facets.keys()].slice(first) });

const kinds = () => {
  const found = new Map(), column = new Uint32Array(D.n), pairs = [];
  for (let i = 0; i < D.n; i++) {
    let key = 0;
    for (const facet of D.facets) { const value = facet.column[i]; key = key * ((facet.sets || facet.values).length + 1) + (facet.of ? facet.of[value] : value); }
    let kind = found.get(key);
    if (kind === undefined) {
      found.set(key, (kind = pairs.length));
      pairs.push(D.facets.flatMap((facet, f) => (facet.sets ? facet.sets[facet.column[i]] : [facet.of ? facet.of[facet.column[i]] : facet.column[i]]).map((value) => [f, value])));
    }
    column[i] = kind;
  }
  return half(column, pairs, 0);
};

// Each matrix key of the run is a facet; what most points have comes first.
const points = () => {
  const keys = new Map(), first = D.facets.length;
  for (const found of D.params) for (const [key, value] of found) { if (!keys.has(key)) keys.set(key, []); keys.get(key).push(value); }
  const places = new Map([...keys].sort(([, one], [, other]) => other.length - one.length).map(([key, values], at) => {
    const own = [...new Set(values)];
    D.facets.push({ key: T.filterOf(key), title: key, values: own });
    return [key, [first + at, new Map(own.map((value, at) => [value, at]))]];
  }));
  KEYS.push(...D.facets.slice(first).map(({ key }) => key).filter((key) => !KEYS.includes(key)));
  return half(D.point, D.params.map((found) => found.map(([key, value]) => [places.get(key)[0], places.get(key)[1].get(value)])), first);
};

// The name of the filter of a matrix key in an address; the support table filters by backend and dtype too.
T.filterOf = (key) => (["backend", "dtype"].includes(key) ? key : `matrix.${key}`);

// The ends of ids, after the name of the spec: few are different, and a search looks at these.
const ends = () => {
  const found = new Map();
  D.place = new Uint32Array(D.n);
  D.ends = [];
  for (let i = 0; i < D.n; i++) {
    const key = D.backend[i] * D.points.length + D.point[i];
    let place = found.get(key);
    if (place === undefined) { found.set(key, (place = D.ends.length)); D.ends.push(endOf(i).toLowerCase()); }
    D.place[i] = place;
  }
  const odd = Object.keys(D.odd);
  D.isOdd = odd.length ? new Uint8Array(D.n) : null;
  for (const i of odd) D.isOdd[i] = 1;
};

const endOf = (i) => `[backend=${D.backends[D.backend[i]]}${D.points[D.point[i]] ? "," + D.points[D.point[i]] : ""}]`;

const facet = (key, title, values, column, of) => ({ key, title, values, column, of });

const unique = (values) => {
  const found = [...new Set(values)].sort();
  const places = new Map(found.map((value, at) => [value, at]));
  return { values: found, of: Uint32Array.from(values, (value) => places.get(value)) };
};

const params = (point) => (point ? point.split(",").map((part) => {
  const at = part.indexOf("=");
  let value = part.slice(at + 1);
  try { value = decodeURIComponent(value); } catch { /* stays as it is */ }
  return [part.slice(0, at), value];
}) : []);

// The cases by the number of their outcome, which is the order of the page; equal ones in the order of the run.
const sorted = (n, column, kinds) => {
  const starts = new Uint32Array(kinds + 1);
  for (let i = 0; i < n; i++) starts[column[i] + 1]++;
  for (let k = 0; k < kinds; k++) starts[k + 1] += starts[k];
  const order = new Uint32Array(n);
  for (let i = 0; i < n; i++) order[starts[column[i]]++] = i;
  return order;
};

// Time and place of a case are one number each: numbers are sorted many times as fast as by a function.
const slowestFirst = () => {
  const places = 2 ** Math.ceil(Math.log2(D.n + 1)), keys = new Float64Array(D.n);
  for (let i = 0; i < D.n; i++) keys[i] = i - D.ms[i] * places;
  return Uint32Array.from(keys.sort(), (key) => ((key % places) + places) % places);
};

T.order = (kind) => {
  if (kind === "time") return (D.byTime ||= slowestFirst());
  if (kind === "run") return (D.byRun ||= Uint32Array.from({ length: D.n }, (_, i) => i));
  return D.byOutcome;
};

T.id = (i) => D.odd[i] || D.prefix[D.spec[i]] + endOf(i);

T.find = (id) => {
  const bracket = id.indexOf("[");
  const head = bracket < 0 ? id : id.slice(0, bracket);
  for (let i = 0; i < D.n; i++) if ((D.prefix[D.spec[i]] === head || D.odd[i]) && T.id(i) === id) return i;
  return -1;
};

T.details = async (i) => {
  let low = 0, high = D.chunks.length - 1;
  while (low < high) { const middle = (low + high + 1) >> 1; if (D.chunks[middle] <= i) low = middle; else high = middle - 1; }
  const chunk = await T.part(`cases-${low}`);
  return { c: chunk.cases[i - D.chunks[low]], s: (number) => chunk.strings[number || 0] };
};

T.source = async (file) => {
  if (!Object.hasOwn(D.sources, file)) return { why: "this file is not in the report" };
  return (await T.part(`sources-${D.sources[file]}`))[file] || { why: "this file is not in the report" };
};
