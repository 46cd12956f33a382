// The frame: head, views, keys, theme.
T.narrow = matchMedia("(max-width: 640px)"); // as in the style
const THEMES = ["", "light", "dark"], THEME_WORDS = { "": "auto", light: "light", dark: "dark" };
const TITLES = { summary: "Summary", cases: "Cases", matrix: "Matrix", support: "Support", run: "Run" };

T.start = (index) => {
  T.load(index);
  T.frame();
  window.addEventListener("hashchange", T.render);
  T.narrow.addEventListener("change", T.render);
  document.addEventListener("keydown", T.pressed);
  T.render();
};

T.frame = () => {
  const app = T.clear(document.getElementById("app"));
  T.nav = T.el("nav", { "aria-label": "Views" });
  let waiting = 0;
  T.search = T.el("input", { type: "search", placeholder: "Search cases, reasons, tags", "aria-label": "Search cases, reasons, tags", title: "press /", spellcheck: "false" });
  T.search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(T.searched, 60); });
  T.search.addEventListener("keydown", (event) => { if (event.key === "Enter") { T.searched(); T.focusList = true; T.render(); T.search.blur(); } });
  const theme = T.el("button", { title: "dark or light" });
  const apply = (value) => {
    if (value) document.documentElement.dataset.theme = value; else delete document.documentElement.dataset.theme;
    theme.textContent = `theme: ${THEME_WORDS[value]}`;
  };
  let now = "";
  try { now = localStorage.getItem("theme") || ""; } catch { /* a page from a file may have no storage */ }
  if (!THEMES.includes(now)) now = "";
  apply(now);
  theme.addEventListener("click", () => {
    now = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    apply(now);
    try { localStorage.setItem("theme", now); } catch { /* as above */ }
    T.render();
  });
  T.main = T.el("main", { class: "body", id: "main" });
  const skip = T.el("button", { class: "skip", onclick: () => { const first = T.main.querySelector("[tabindex]"); if (first) first.focus(); } }, "To the content");
  app.append(skip, T.el("header", { class: "top" }, T.el("span", { class: "brand" }, "torch-conformance ", T.el("span", { class: "dim" }, D.head.run)), T.nav, T.el("span", { class: "space" }), T.search, theme), T.main);
};

T.searched = () => {
  const state = T.read(location.hash), view = ["matrix", "support"].includes(state.view) ? state.view : "cases";
  if (state.q === T.search.value && state.view === view) return;
  T.go({ ...state, view, id: "", q: T.search.value }, { quietly: state.view === view });
};

T.render = () => {
  const state = T.read(location.hash);
  const focused = document.activeElement, mark = focused ? focused.dataset.mark : undefined;
  if (document.activeElement !== T.search) T.search.value = state.q;
  T.clear(T.nav).append(...Object.entries(TITLES).filter(([view]) => view !== "support" || D.head.has_support).map(([view, title]) => T.to(["summary", "run"].includes(view) ? { view } : view === "support" ? { view, state: state.state, backend: state.backend, dtype: state.dtype } : { ...state, view, id: "", from: "", state: [] }, { "aria-current": state.view === view || (state.view === "case" && view === (state.from || "cases")) ? "page" : null }, title)));
  T.keys = {};
  const made = state.view === "cases" ? T.casesView(state, T.filtered(state)) : state.view === "matrix" ? T.matrixView(state, T.filtered(state)) : state.view === "case" ? T.caseView(state) : state.view === "support" ? T.supportView(state) : state.view === "run" ? T.runView() : T.summaryView();
  arrangeMain(made.nodes);
  document.title = `${state.view === "case" ? state.id : TITLES[state.view]} · ${D.head.run}`;
  made.ready();
  if (focused && focused !== document.activeElement && T.main.contains(focused)) focused.focus({ preventScroll: true });  // a box that was moved
  else if (mark) { const same = [...T.main.querySelectorAll("[data-mark]")].find((node) => node.dataset.mark === mark); if (same) same.focus({ preventScroll: true }); }
  T.focusList = false;
  T.renderedAt = performance.now();
};

// The filters stay where they are, with their scroll and focus, from list to list.
const arrangeMain = (nodes) => {
  if (nodes.length === 2 && nodes[0] === T.main.firstChild && T.main.children.length === 2) T.main.lastChild.replaceWith(nodes[1]);
  else T.main.replaceChildren(...nodes);
};

T.pressed = (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target === T.search || event.target.tagName === "SELECT" || event.target.tagName === "TEXTAREA";
  if (typing) { if (event.key === "Escape") { T.search.blur(); event.preventDefault(); } return; }
  if (event.key === "/") { event.preventDefault(); T.search.focus(); T.search.select(); return; }
  const inControl = ["A", "BUTTON", "SUMMARY", "INPUT"].includes(event.target.tagName);
  if (inControl && ["Enter", " "].includes(event.key)) return;
  const act = T.keys[event.key];
  if (act) { event.preventDefault(); act(); }
};
