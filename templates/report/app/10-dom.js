"use strict";
// The only functions that make elements. Text is set as text; nothing here reads markup.
const T = {};

T.el = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  T.set(node, attributes);
  T.add(node, children);
  return node;
};

T.svg = (tag, attributes, ...children) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  const { style, ...others } = attributes || {};
  T.set(node, { style }); // the policy of the page refuses it as an attribute
  for (const [name, value] of Object.entries(others)) node.setAttribute(name, value);
  T.add(node, children);
  return node;
};

// href is set by T.link and T.to alone: an address from a run could be a script
T.set = (node, attributes) => {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name === "style") Object.assign(node.style, value);
    else if (name === "href" || name === "src") throw new Error(name);
    else node.setAttribute(name, value === true ? "" : value);
  }
};

T.add = (node, children) => {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
};

// A link to another place on the web: http and https alone; anything else stays text.
T.link = (address, text) => {
  let url = null;
  try { url = new URL(address); } catch { /* no address */ }
  if (!url || (url.protocol !== "https:" && url.protocol !== "http:")) return document.createTextNode(text || address);
  const node = T.el("a", { rel: "noopener noreferrer", target: "_blank" }, text || address);
  node.href = url.href;
  return node;
};

// Text in which addresses of the web are links.
T.linked = (text) => text.split(/(https?:\/\/[^\s<>"')\]]+)/).map((part, at) => (at % 2 ? T.link(part) : part));

// A link to a file of the run's folder. Names of other forms stay text.
T.file = (folder, name, text) => {
  const parts = [...folder.split("/"), ...name.split("/")].filter(Boolean);
  if (!parts.every((part) => /^[A-Za-z0-9_-][A-Za-z0-9_.-]*$/.test(part))) return document.createTextNode(text || name);
  const node = T.el("a", { target: "_blank", class: "mono" }, text || name);
  node.href = parts.join("/");
  return node;
};

// A link to a state of this page.
T.to = (state, attributes, ...children) => {
  const node = T.el("a", attributes, ...children);
  node.href = T.hash(state);
  return node;
};

T.clear = (node) => { while (node.firstChild) node.firstChild.remove(); return node; };

// One formatter: toLocaleString makes another for each number.
const integers = new Intl.NumberFormat("en");
T.number = (number) => integers.format(number);

T.count = (number, word, words) => `${T.number(number)} ${number === 1 ? word : words || word + "s"}`;

T.seconds = (seconds) => {
  if (seconds >= 100) return `${Math.round(seconds)} s`;
  if (seconds >= 1) return `${seconds.toFixed(1)} s`;
  return seconds === 0 ? "0 s" : `${Math.max(1, Math.round(seconds * 1000))} ms`;
};
