// What the page shows, as plain trees: nothing here knows a browser, so it is tested without one.
//
// A node is {tag, props, children}; a child is a node or text. Text stays text: there is
// no HTML in it, so nothing that came from a server can become part of the page.

export const h = (tag, props = {}, ...children) => ({ tag, props, children: children.flat(Infinity).filter((c) => c != null && c !== false) });

const METHODS = ["get", "post", "put", "patch", "delete"];

/** Every operation in the order of the document, with its place and the parameters of its path. */
export function operationsOf(document) {
  return Object.entries(document.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ ...item[method], method: method.toUpperCase(), path })));
}

export function resolve(document, value) {
  let found = value;
  while (found && found.$ref) {
    found = found.$ref.slice(2).split("/").reduce((place, step) => place[step.replaceAll("~1", "/").replaceAll("~0", "~")], document);
  }
  return found;
}

/** Text with `code` in it. */
export function prose(text = "") {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part)).filter((part) => part !== "");
}

const nameOf = (schema) => schema.$ref && schema.$ref.split("/").pop();

function bounds(schema) {
  const least = schema.minimum ?? schema.exclusiveMinimum;
  const said = [];
  if (least != null && schema.maximum != null) said.push(`${schema.exclusiveMinimum != null ? "above " : ""}${least} to ${schema.maximum}`);
  else if (least != null) said.push(`from ${least}`);
  else if (schema.maximum != null) said.push(`to ${schema.maximum}`);
  if (schema.maxLength != null) said.push(`${schema.minLength ?? 0} to ${schema.maxLength} characters`);
  if (schema.maxItems != null) said.push(schema.minItems === schema.maxItems ? `${schema.maxItems} of them` : `${schema.minItems ?? 0} to ${schema.maxItems} of them`);
  return said.length ? ` (${said.join(", ")})` : "";
}

/** The type of a schema in words. */
export function typeOf(schema) {
  if (schema.$ref) return nameOf(schema);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(" | ");
  const options = schema.anyOf || schema.oneOf;
  if (options && options.every((each) => each.type || each.$ref || each.enum)) return options.map(typeOf).join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items || {})}${bounds(schema)}`;
  if (schema.type === "object" && schema.additionalProperties) return `object of ${typeOf(schema.additionalProperties)}`;
  return schema.type ? `${schema.format || schema.type}${bounds(schema)}` : "any JSON";
}

/** The rows of a table of fields; those of an object inside follow it, under its name. */
export function fieldsOf(document, schema, front = "", depth = 0) {
  const found = resolve(document, schema);
  return Object.entries(found.properties || {}).flatMap(([name, field]) => {
    const inner = resolve(document, field.type === "array" ? field.items || {} : field);
    const path = front + name + (field.type === "array" && inner.properties ? "[]" : "");
    const row = { name: path, type: typeOf(field), required: (found.required || []).includes(name), fallback: field.default, description: field.description || "" };
    return [row, ...(inner.properties && depth < 2 ? fieldsOf(document, inner, `${path}.`, depth + 1) : [])];
  });
}

const choicesOf = (schema) => (schema.anyOf && schema.anyOf.some((each) => each.$ref) ? schema.anyOf : [schema]);

/** What to send for some values, by name of a parameter, and the text of a body. */
export function requestOf(operation, values, body, key) {
  const query = [];
  const headers = {};
  let path = operation.path;
  for (const { name, in: where } of operation.parameters) {
    const value = values[name];
    if (where === "path") path = path.replace(`{${name}}`, encodeURIComponent(value ?? ""));
    else if (value === undefined || value === "") continue;
    else if (where === "query") query.push(`${encodeURIComponent(name)}=${encodeURIComponent(value)}`);
    else headers[name] = String(value);
  }
  if (key) headers.Authorization = `Bearer ${key}`;
  if (operation.requestBody && body) headers["Content-Type"] = "application/json";
  return { method: operation.method, url: path + (query.length ? `?${query.join("&")}` : ""), headers, body: operation.requestBody && body ? body : undefined };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** The same request for a shell. */
export function curlOf(request, origin) {
  const parts = ["curl"];
  if (request.method !== "GET" && !(request.method === "POST" && request.body)) parts.push(`-X ${request.method}`);
  parts.push(quoted(origin + request.url));
  for (const [name, value] of Object.entries(request.headers)) parts.push(`-H ${quoted(`${name}: ${value}`)}`);
  if (request.body) parts.push(`-d ${quoted(request.body)}`);
  return parts.join(" \\\n  ");
}

export function exampleOf(operation) {
  const content = operation.requestBody && operation.requestBody.content["application/json"];
  const values = Object.fromEntries(operation.parameters.filter((each) => "example" in each).map((each) => [each.name, each.example]));
  return { values, body: content && content.example !== undefined ? JSON.stringify(content.example, null, 2) : "" };
}

const badge = (method) => h("span", { class: `method ${method.toLowerCase()}` }, method);

export function contentsView(document) {
  const operations = operationsOf(document);
  return document.tags.map((tag) => h("section", { "data-group": tag.name },
    h("h2", {}, tag.name),
    h("ul", {}, operations.filter((each) => each.tags[0] === tag.name).map((each) =>
      h("li", { "data-find": findable(each) }, h("a", { href: `#${each.operationId}` }, badge(each.method), " ", each.operationId.replaceAll("_", " ")))))));
}

const findable = (operation) => `${operation.method} ${operation.path} ${operation.operationId.replaceAll("_", " ")} ${operation.summary}`.toLowerCase();

export function introductionView(document) {
  return h("section", { class: "introduction" }, h("h1", {}, document.info.summary),
    document.info.description.split("\n\n").map((part) => h("p", {}, prose(part))));
}

export function operationsView(document, origin) {
  const operations = operationsOf(document);
  return document.tags.map((tag) => h("section", { "data-group": tag.name },
    h("h2", { class: "tag" }, tag.name), h("p", { class: "lead" }, prose(tag.description)),
    operations.filter((each) => each.tags[0] === tag.name).map((each) => operationView(document, each, origin))));
}

function operationView(document, operation, origin) {
  const { values, body } = exampleOf(operation);
  const id = operation.operationId;
  return h("article", { id, "data-find": findable(operation), "aria-labelledby": `${id}-title` },
    h("h3", { id: `${id}-title` }, h("a", { href: `#${id}`, class: "place" }, badge(operation.method), " ", pathView(operation.path))),
    h("p", {}, prose(operation.summary), " ", h("span", { class: "role" }, prose(operation.description))),
    operation.parameters.length > 0 && [h("h4", {}, "Parameters"), parametersView(operation)],
    operation.requestBody && [h("h4", {}, "Body", h("small", {}, operation.requestBody.required ? "" : " optional")), bodyView(document, operation)],
    h("h4", {}, "Answers"), answersView(document, operation),
    h("div", { class: "code" }, h("button", { type: "button", class: "copy", "data-copy": `${id}-curl`, "aria-label": `Copy the curl command of ${id}` }, "Copy"),
      h("pre", { tabindex: "0", "aria-label": "As a curl command" }, h("code", { id: `${id}-curl` }, curlOf(requestOf(operation, values, body), origin)))),
    h("details", { class: "try" }, h("summary", {}, "Try it"), formView(operation, values, body)));
}

const pathView = (path) => h("code", {}, path.split(/({\w+})/).map((part) => (part.startsWith("{") ? h("em", {}, part) : part)));

function table(head, rows) {
  return h("div", { class: "scroll" }, h("table", {}, h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))), h("tbody", {}, rows)));
}

const must = (isRequired) => isRequired && h("span", { class: "must" }, " required");

function parametersView(operation) {
  return table(["name", "in", "type", ""], operation.parameters.map((each) => h("tr", {},
    h("th", { scope: "row" }, h("code", {}, each.name), must(each.required)), h("td", {}, each.in),
    h("td", {}, typeOf(each.schema)), h("td", {}, prose(each.description), fallback(each.schema.default)))));
}

const fallback = (value) => value !== undefined && value !== null && [" Default ", h("code", {}, JSON.stringify(value)), "."];

function schemaView(document, schema) {
  const found = resolve(document, schema);
  return [found.description && h("p", { class: "about" }, h("strong", {}, nameOf(schema) || ""), " ", prose(found.description)),
    table(["field", "type", ""], fieldsOf(document, schema).map((row) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, row.name), must(row.required)),
      h("td", {}, row.type), h("td", {}, prose(row.description), fallback(row.fallback)))))];
}

const bodyView = (document, operation) => choicesOf(operation.requestBody.content["application/json"].schema).map((each) => schemaView(document, each));

function answersView(document, operation) {
  return h("ul", { class: "answers" }, Object.entries(operation.responses).map(([status, answer]) => {
    const found = resolve(document, answer);
    const content = found.content && (found.content["application/json"] || found.content["application/problem+json"]);
    const example = content && content.example !== undefined ? content.example : undefined;
    const more = [
      content && !answer.$ref && choicesOf(content.schema).map((each) => schemaView(document, each)),
      example !== undefined && h("pre", { tabindex: "0", "aria-label": `An answer with ${status}` }, h("code", {}, JSON.stringify(example, null, 2))),
    ].flat(Infinity).filter(Boolean);
    const words = found.description.split("\n\n").map((part) => h("p", {}, prose(part)));
    const label = h("span", { class: `status s${status[0]}` }, status);
    return h("li", {}, more.length ? h("details", {}, h("summary", {}, label, " ", words), more) : h("div", { class: "line" }, label, " ", words));
  }));
}

function formView(operation, values, body) {
  const id = operation.operationId;
  return h("form", { "data-operation": id, autocomplete: "off" },
    operation.parameters.map((each) => h("label", {}, h("span", {}, each.name),
      h("input", { name: each.name, value: String(values[each.name] ?? ""), ...(each.in === "path" ? { required: "" } : {}), spellcheck: "false" }))),
    operation.requestBody && h("label", { class: "wide" }, h("span", {}, "body"), h("textarea", { name: "·body", rows: "6", spellcheck: "false" }, body)),
    h("div", { class: "actions" }, h("button", { type: "submit" }, "Send"), h("output", { id: `${id}-state` })),
    h("pre", { id: `${id}-answer`, class: "answer", hidden: "", tabindex: "0", "aria-label": "The answer" }));
}
