// The page of a case: errors of numbers, attempts, candidates, and the column of facts.
const numbers = (c, s) => {
  if (!c.numbers) return null;
  const figure = (value) => (typeof value === "number" ? (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(4)))) : value === null || value === undefined ? "" : String(value));
  const one = (found) => {
    const where = `step ${found.step}${found.path ? `, ${found.path}` : ""}`;
    const times = typeof found.max_error === "number" && typeof found.whole_error === "number" && found.whole_error > 0 ? found.max_error / found.whole_error : null;
    const apart = found.nonfinite > 0;
    const outside = typeof found.outside === "number" && found.outside > 0;
    return T.el("div", { class: "hist" },
      T.el("div", { class: "filehead", style: { marginTop: "0" } }, T.el("b", {}, where), T.el("span", { class: "dim mono" }, [found.dtype, found.shape].filter(Boolean).join(" ")), outside && T.el("span", { class: "chip t-bad" }, `${T.number(found.outside)} of ${T.number(Number(found.numel))} outside`),
        apart && T.el("span", { class: "chip t-bad" }, `NaN or infinity on one side only in ${T.number(found.nonfinite)} of ${T.number(Number(found.numel))}`)),
      found.picture && picture(found.picture, figure),
      found.why_not ? T.el("p", { class: "dim" }, found.why_not) : found.max_error === undefined || (apart && !found.max_error) ? null : [
        T.el("div", {}, times !== null && T.el("b", { class: outside ? "failed" : "" }, `${figure(times)} × the greatest error of eager${found.runs ? ` in ${found.runs} runs` : ""}. `), T.el("span", { class: "dim" }, `Greatest error ${figure(found.max_ulp)} ulp (${figure(found.max_error)}), eager's ${figure(found.eager_max_ulp)} ulp (${figure(found.eager_max_error)}), against a float64 reference.`)),
        found.histogram ? histogram(found.histogram) : null,
        outside && found.worst ? T.el("div", { class: "dim mono" }, `worst element ${found.worst.index || ""}: compiled ${found.worst.value}, eager ${found.worst.eager_value}, float64 ${found.worst.reference_value}`) : null]);
  };
  const isBad = (found) => found.outside > 0 || found.nonfinite > 0 || found.picture;
  const bad = c.numbers.filter(isBad), rest = c.numbers.filter((found) => !isBad(found));
  return T.el("section", {}, T.el("h2", {}, "Errors of numbers, in units of eager's"), bad.map(one), bad.length ? rest.length > 0 && T.el("details", { class: "card fold" }, T.el("summary", {}, `${rest.length} within their bounds`), T.el("div", { class: "in" }, rest.map(one))) : rest.slice(0, 3).map(one),
    !bad.length && rest.length > 3 && T.el("details", {}, T.el("summary", {}, `${rest.length - 3} more`), rest.slice(3).map(one)), c.numbers_left && T.el("p", { class: "dim" }, `${c.numbers_left} more are in observation.json`));
};

// Where a tensor is wrong: its errors by place, and compiled against eager.
const picture = ({ columns, size, errors: error, values: compiled, eager_values: eager }, figure) => {
  const bad = (at) => typeof error[at] !== "number" || error[at] > 1;
  const most = Math.max(2, ...error.filter((value) => typeof value === "number"));
  const shade = (at) => (typeof error[at] !== "number" ? 1 : bad(at) ? 0.35 + (0.65 * Math.log(error[at])) / Math.log(most) : 0.3 * error[at]);
  const said = (at) => `row ${at / columns | 0}, column ${at % columns}: compiled ${figure(compiled[at])}, eager ${figure(eager[at])}, ${figure(error[at])} × the bound`;
  const wide = columns === error.length && columns > 64 ? 64 : columns;
  const cell = Math.min(12, 288 / Math.max(wide, Math.ceil(error.length / wide)));
  const map = T.svg("svg", { viewBox: `0 0 ${wide * cell} ${Math.ceil(error.length / wide) * cell}`, style: { maxWidth: `${Math.max(wide * cell, 60)}px` }, role: "img", "aria-label": `Errors by place: ${error.filter((_, at) => bad(at)).length} of ${error.length} cells are wrong` });
  error.forEach((_, at) => map.append(T.svg("rect", { class: bad(at) ? "wrong" : "right", "fill-opacity": shade(at).toFixed(2), x: (at % wide) * cell, y: (at / wide | 0) * cell, width: cell, height: cell }, T.svg("title", {}, said(at)))));
  const dots = compiled.map((value, at) => [eager[at], value, at]).filter(([x, y]) => typeof x === "number" && typeof y === "number");
  const all = dots.flatMap(([x, y]) => [x, y]);
  const low = Math.min(...all), span = Math.max(...all) - low || 1;
  const to = (value) => 6 + (228 * (value - low)) / span;
  const plot = T.svg("svg", { viewBox: "0 0 240 258", style: { maxWidth: "240px" }, role: "img", "aria-label": "Compiled against eager, an element of each cell" },
    T.svg("line", { class: "axis", x1: 6, y1: 234, x2: 234, y2: 6 }), T.svg("text", { x: 6, y: 252 }, `eager → ${figure(low)} to ${figure(low + span)}`), T.svg("text", { x: 8, y: 14 }, "compiled ↑"));
  for (const [x, y, at] of dots.sort((one, other) => bad(one[2]) - bad(other[2]))) plot.append(T.svg("circle", { class: bad(at) ? "wrong" : "right", cx: to(x), cy: 240 - to(y), r: 2 }, T.svg("title", {}, said(at))));
  return T.el("div", { class: "places" }, T.el("figure", {}, map, T.el("figcaption", { class: "dim" }, `${size.join(" × ")} elements, the greatest error of each cell`)), dots.length > 1 && T.el("figure", {}, plot));
};

const histogram = ({ first, compiled, eager }) => {
  const all = compiled.map((count, at) => count + (eager[at] || 0));
  let low = all.findIndex(Boolean), high = all.length - 1;
  while (high > low && !all[high]) high--;
  low = Math.max(0, low - 1); high = Math.min(all.length - 1, Math.max(high + 1, low + 8));
  const bins = high - low + 1, width = T.narrow.matches ? 320 : 640, height = 96, step = width / bins;
  const most = Math.max(...all.slice(low, high + 1).map((_, at) => Math.max(compiled[low + at] || 0, eager[low + at] || 0)), 1);
  const tall = (count) => (count ? 6 + (Math.log1p(count) / Math.log1p(most)) * (height - 6) : 0);
  const svg = T.svg("svg", { viewBox: `0 0 ${width} ${height + 34}`, role: "img", "aria-label": `Elements by error in ulp, from 2^${first + low} to 2^${first + high}; compiled ${compiled.slice(low, high + 1).join(" ")}; eager ${eager.slice(low, high + 1).join(" ")}` });
  for (let at = 0; at < bins; at++) {
    const own = tall(compiled[low + at]), reference = tall(eager[low + at]);
    if (own) svg.append(T.svg("rect", { class: "own", x: at * step + 2, y: height - own, width: Math.max(step - 4, 2), height: own }, T.svg("title", {}, `${compiled[low + at]} elements of the compiled result`)));
    if (reference) svg.append(T.svg("rect", { class: "eager", x: at * step + 2, y: height - reference, width: Math.max(step - 4, 2), height: reference }));
    if (at % Math.ceil(36 / step) === 0) svg.append(T.svg("text", { x: Math.min(Math.max(at * step + step / 2, 16), width - 16), y: height + 13, "text-anchor": "middle" }, `2^${first + low + at}`));
  }
  svg.append(T.svg("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }));
  svg.append(T.svg("rect", { class: "own", x: 0, y: height + 22, width: 9, height: 9 }), T.svg("text", { x: 14, y: height + 30 }, "compiled"),
    T.svg("rect", { class: "eager", x: 76, y: height + 22, width: 9, height: 9 }), T.svg("text", { x: 90, y: height + 30 }, "eager"), T.svg("text", { x: width, y: height + 30, "text-anchor": "end" }, "error in ulp; heights are logarithmic"));
  return svg;
};

const attempts = (c, s) => (c.attempts ? T.el("section", {}, T.el("h2", {}, "Attempts"), T.el("div", { class: "card" }, c.attempts.map((one, at) => T.el("details", { class: "fold" },
  T.el("summary", {}, T.el("span", { class: "count" }, at + 1), T.chip(one.outcome), ` ${T.seconds(one.seconds || 0)}  `, T.el("span", { class: "dim" }, s(one.reason))),
  T.el("div", { class: "in" }, (one.verdicts || []).filter((verdict) => verdict[1] === 1 || verdict[1] === 2).slice(0, 20).map((verdict) => failure(verdict, s)),
    one.stderr && T.el("pre", { class: "detail" }, s(one.stderr)), one.folder && T.el("p", { class: "dim" }, `files: ${s(one.folder)}`)))))) : null);

const tunings = (c) => (c.tunings ? T.el("section", {}, T.el("h2", {}, "Choices of kernels"), T.el("div", { class: "card" }, T.el("table", { class: "grid" },
  T.el("thead", {}, T.el("tr", {}, ["step", "operation", "selected", "how", "backend", "rendered", "compiled", "failed", "refused", "timed", "first error"].map((name, at) => T.el("th", { scope: "col", class: at === 0 || (at > 4 && at < 10) ? "num" : "" }, name)))),
  T.el("tbody", {}, c.tunings.map((one) => Object.entries(one.backends).map(([backend, tally], at) => T.el("tr", {}, T.el("td", { class: "num" }, at ? "" : one.step), T.el("td", {}, at ? "" : one.op), T.el("td", {}, at ? "" : one.winner), T.el("td", { class: "dim" }, at ? "" : one.how),
    T.el("td", { class: backend === one.won_by ? "held" : "" }, backend, backend === one.won_by && " ✓"), tally.slice(0, 5).map((count) => T.el("td", { class: "num" }, count)), T.el("td", { class: "dim" }, tally[6])))))), c.tunings_left && T.el("p", { class: "dim" }, `${c.tunings_left} more operations`))) : null);

const timings = (c, s) => (c.timings ? T.el("section", {}, T.el("h2", {}, "Timings"), T.el("div", { class: "card" }, T.el("table", { class: "grid" }, T.el("thead", {}, T.el("tr", {}, ["function", "form", "median ms", "least", "most", "times"].map((name, at) => T.el("th", { scope: "col", class: at > 1 ? "num" : "" }, name)))),
  T.el("tbody", {}, c.timings.map(([name, form, ...figures]) => T.el("tr", {}, T.el("td", {}, s(name)), T.el("td", {}, s(form)), figures.map((value) => T.el("td", { class: "num" }, Number(value.toFixed ? value.toFixed(3) : value))))))))) : null);

const facts = (i, { c, s }) => {
  const rows = (found) => T.el("table", { class: "facts" }, T.el("tbody", {}, found.filter(([, value]) => value !== "" && value !== null && value !== undefined && value !== false).map(([name, value]) => T.el("tr", {}, T.el("th", { scope: "row" }, name), T.el("td", {}, value)))));
  const part = (title, ...nodes) => T.el("section", {}, T.el("h3", {}, title), nodes);
  const repro = c.repro ? c.repro.map(s).join(T.id(i)) : "";
  const env = D.head.environment;
  return T.el("aside", { "aria-label": "Facts" },
    repro && part("Run it again", T.copyable(repro)),
    part("Case", rows([["backend", D.backends[D.backend[i]]], ...D.params[D.point[i]], ["time", T.seconds(c.seconds || 0)], ["phase", s(c.phase)], ["worker", [s(c.isolation), c.worker ? `number ${c.worker}` : ""].filter(Boolean).join(", ")],
      ["GPUs", (c.gpus || []).join(", ")], ["began", s(c.begun).replace("T", " ").slice(0, 23)], ["tags", D.tagSets[D.tags[i]].join(", ")], ["requires", (c.requires || []).map(s).join(", ")], ["target", s(c.target)], ["evidence", s(c.level)], ["bench steps", c.benches ? `${c.benches} left out` : ""]])),
    c.waivers && part("Waiver", c.waivers.map(([effect, file, line, reason, issue, until]) => T.el("div", { style: { marginBottom: "8px" } }, T.el("div", {}, T.el("span", { class: "chip t-blue" }, s(effect))), T.el("div", {}, s(reason)), T.el("div", {}, T.link(s(issue))), T.el("div", { class: "dim" }, `until ${s(until)} · ${s(file)}:${line}`)))),
    c.phases && part("Phases", phases(c.phases.map(([name, seconds]) => [s(name), seconds]))),
    c.options && part("Options in force", T.el("ul", { class: "ids mono" }, c.options.map((option) => T.el("li", {}, s(option))))),
    c.covers && part("Restates", T.el("ul", { class: "ids" }, c.covers.map((name) => T.el("li", {}, s(name))))),
    c.notes && part("Notes", T.el("ul", { class: "ids" }, c.notes.map((note) => T.el("li", {}, s(note))))),
    c.folder && part("Files", T.el("div", { class: "dim" }, s(c.folder)), T.el("ul", { class: "ids" }, [...(c.files || []).map(s), "plan.json", "stdout.txt", "stderr.txt", ...(c.script ? [s(c.script)] : []), ...(c.attachments || []).map(s)].map((name) => T.el("li", {}, T.file(s(c.folder), name))))),
    part("Environment", rows([["torch", env.torch], ["triton", env.triton], ["device", env.device], ["arch", env.arch], ["CUDA", env.cuda], ["HIP", env.hip], ["Python", env.python], ["CPU", env.cpu]])));
};

const phases = (found) => {
  const most = Math.max(...found.map(([, seconds]) => seconds), 1e-9);
  return found.map(([name, seconds]) => T.el("div", { class: "phase" }, T.el("span", {}, name), T.el("span", { class: "track" }, T.el("i", { style: { width: `${(100 * seconds) / most}%` } })), T.el("span", { class: "num dim" }, T.seconds(seconds))));
};

T.copyable = (text) => {
  const said = T.el("span", { class: "sr", role: "status" });
  const button = T.el("button", { onclick: () => { copied(text).then((done) => { button.textContent = done ? "copied" : "select it"; said.textContent = button.textContent; }); } }, "copy");
  return T.el("div", { class: "copy" }, T.el("pre", {}, text), button, said);
};

const copied = async (text) => {
  try { await navigator.clipboard.writeText(text); return true; } catch { /* a page from a file may lack it */ }
  const area = T.el("textarea", { class: "sr" });
  area.value = text; document.body.append(area); area.select();
  const done = document.execCommand("copy"); area.remove();
  return done;
};
