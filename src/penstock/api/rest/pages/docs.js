// Puts the views on the page, and does what is clicked.

import { contentsView, curlOf, introductionView, operationsOf, operationsView, requestOf } from "./view.js";

const find = (id) => document.getElementById(id);
const SHOWN_CHARACTERS_MAX = 200_000;

function mount(node) {
  if (typeof node === "string") return document.createTextNode(node);
  const element = document.createElement(node.tag);
  for (const [name, value] of Object.entries(node.props)) element.setAttribute(name, value);
  element.append(...node.children.map(mount));
  return element;
}

const say = (text) => { find("said").textContent = text; };

function requestOfForm(operation, form) {
  const values = Object.fromEntries(new FormData(form));
  return requestOf(operation, values, (values["·body"] || "").trim(), find("key").value.trim());
}

async function send(operation, form) {
  const state = find(`${operation.operationId}-state`);
  const answer = find(`${operation.operationId}-answer`);
  const { method, url, headers, body } = requestOfForm(operation, form);
  const began = performance.now();
  state.textContent = "…";
  try {
    const response = await fetch(url, { method, headers, body, credentials: "omit" });
    const text = await response.text();
    state.textContent = `${response.status} ${response.statusText} in ${Math.round(performance.now() - began)} ms`;
    answer.textContent = pretty(text).slice(0, SHOWN_CHARACTERS_MAX);
  } catch (error) {
    state.textContent = "no answer";
    answer.textContent = String(error);
  }
  answer.hidden = false;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

async function copy(button) {
  const code = find(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(code.textContent);
    say("Copied.");
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch {
    // Without the right to write, the text is selected: Ctrl-C does the rest.
    getSelection().selectAllChildren(code);
    say("Selected; copy it with your keyboard.");
  }
}

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const each of document.querySelectorAll("[data-find]")) {
    each.hidden = !words.every((word) => each.dataset.find.includes(word));
    count += !each.hidden && each.tagName === "ARTICLE";
  }
  for (const group of document.querySelectorAll("[data-group]")) group.hidden = !group.querySelector("[data-find]:not([hidden])");
  say(words.length ? `${count} operations` : "");
}

function listen(byName) {
  const main = find("operations");
  main.addEventListener("submit", (event) => {
    event.preventDefault();
    send(byName[event.target.dataset.operation], event.target);
  });
  main.addEventListener("input", (event) => {
    const form = event.target.closest("form");
    if (form) find(`${form.dataset.operation}-curl`).textContent = curlOf(requestOfForm(byName[form.dataset.operation], form), location.origin);
  });
  main.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button);
  });
  find("filter").addEventListener("input", (event) => filter(event.target.value));
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && !event.target.closest("input, textarea")) {
      event.preventDefault();
      find("filter").focus();
    }
  });
}

function chooseTheme() {
  const root = document.documentElement;
  find("theme").addEventListener("click", () => {
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
}

async function start() {
  chooseTheme();
  const described = await (await fetch("/openapi.json")).json();
  find("version").textContent = described.info.version;
  find("contents").append(...contentsView(described).map(mount));
  find("operations").replaceChildren(mount(introductionView(described)), ...operationsView(described, location.origin).map(mount));
  listen(Object.fromEntries(operationsOf(described).map((each) => [each.operationId, each])));
  // What the address names was not there when the browser looked for it.
  if (location.hash) document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
}

start().catch((error) => { find("operations").textContent = `The document cannot be shown: ${error}`; });
