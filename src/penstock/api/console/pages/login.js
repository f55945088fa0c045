// @ts-check
// Logging in with an API key, which becomes a cookie that scripts cannot read.

import { h, put } from "./dom.js";
import { errorBox } from "./parts.js";
import { login } from "./session.js";

/** @param {() => void} done */
export function loginForm(done) {
  const input = h("input", { name: "key", type: "password", autocomplete: "current-password", spellcheck: "false", required: true, placeholder: "pk_…", "aria-describedby": "login-help" });
  const trouble = h("div", { class: "trouble" });
  const form = h("form", { class: "login", novalidate: true },
    h("img", { src: "/console/icon.svg", alt: "", width: 44, height: 44 }),
    h("h1", null, "Penstock"),
    h("p", { class: "faint" }, "This server has keys. Show yours to look at its queues."),
    h("label", { class: "field" }, h("span", null, "API key"), input),
    trouble,
    h("button", { type: "submit", class: "primary" }, "Log in"),
    h("p", { id: "login-help", class: "faint" }, "The server's operator makes keys with ", h("code", null, "penstock key create --name you --role read"),
      ". The page may do what the key may. The session ends after eight hours, or with its key."));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    put(trouble);
    try {
      await login(input.value.trim());
      done();
    } catch (error) {
      put(trouble, errorBox(error));
      input.select();
    }
  });
  return h("main", { id: "main", class: "alone", tabindex: "-1" }, form);
}
