// Formulas evaluated in the page: a small grammar of its own, no eval. What does not parse is left as text.
"use strict";
sgl.page("formula", function (signal) {
  const DEFAULTS = { bs: 8, topk: 1, num_steps: 3, num_draft_tokens: 4, page_size: 1 };
  const KEY = "sgltrace-config";
  const CALLS = {
    max: Math.max, min: Math.min, ceiling: Math.ceil, ceil: Math.ceil, floor: Math.floor, abs: Math.abs,
    mod: (a, b) => a - b * Math.floor(a / b), ceildiv: (a, b) => Math.ceil(a / b), ceil_div: (a, b) => Math.ceil(a / b),
  };

  // expression: sum of products of powers of atoms; a tuple at the top is a shape
  function parse(text) {
    const tokens = text.match(/\s+|\d+(?:\.\d+)?|[A-Za-z_][\w.]*|\/\/|\*\*|[-+*/%(),[\]]|./g) || [];
    const parts = tokens.filter((token) => token.trim());
    let at = 0;
    const peek = () => parts[at];
    const take = (wanted) => { if (parts[at] !== wanted) throw new Error("not a formula"); at++; };
    function sum() {
      let left = product();
      while (peek() === "+" || peek() === "-") { const sign = parts[at++]; left = { op: sign, a: left, b: product() }; }
      return left;
    }
    function product() {
      let left = unary();
      while (["*", "/", "//", "%"].includes(peek())) { const op = parts[at++]; left = { op, a: left, b: unary() }; }
      return left;
    }
    function unary() {
      if (peek() === "-") { at++; return { op: "-", a: { number: 0 }, b: unary() }; }
      const base = atom();
      if (peek() === "**") { at++; return { op: "**", a: base, b: unary() }; }
      return base;
    }
    function atom() {
      const token = parts[at++];
      if (token === undefined) throw new Error("not a formula");
      if (/^\d/.test(token)) return { number: Number(token) };
      if (/^[A-Za-z_]/.test(token)) {
        if (peek() !== "(") return { name: token };
        const call = Object.hasOwn(CALLS, token.toLowerCase()) && CALLS[token.toLowerCase()];
        if (!call) throw new Error("not a formula");
        return { call, args: list("(", ")") };
      }
      if (token === "(") { const inner = sum(); take(")"); return inner; }
      throw new Error("not a formula");
    }
    function list(open, close) {
      take(open);
      const items = [];
      while (peek() !== close) { items.push(sum()); if (peek() !== close) take(","); }
      take(close);
      return items;
    }
    function top() {
      if (peek() === "(" || peek() === "[") {
        const start = at, close = peek() === "(" ? ")" : "]";
        try {
          const items = list(peek(), close);
          const comma = text.includes(",");
          if (at === parts.length && (comma || close === "]" || !items.length)) return { items };
        } catch { /* then it is an expression in brackets */ }
        at = start;
      }
      return { items: [sum()], scalar: true };
    }
    const found = top();
    if (at !== parts.length) throw new Error("not a formula");
    return found;
  }
  function value(node, given) {
    if ("number" in node) return node.number;
    if ("name" in node) return given[node.name];
    if (node.call) return node.call(...node.args.map((arg) => value(arg, given)));
    const a = value(node.a, given), b = value(node.b, given);
    switch (node.op) {
      case "+": return a + b;
      case "-": return a - b;
      case "*": return a * b;
      case "/": return a / b;
      case "//": return Math.floor(a / b);
      case "%": return a - b * Math.floor(a / b);
      default: return a ** b;
    }
  }
  function names(node, found) {
    if (node.name) found.add(node.name);
    for (const part of [node.a, node.b, ...(node.args || []), ...(node.items || [])]) if (part) names(part, found);
    return found;
  }
  function show(node, given) {
    if (node.name && given[node.name] === undefined) return node.name;
    const found = value(node, given);
    if (Number.isFinite(found)) return String(Math.round(found * 1000) / 1000);
    return null;
  }
  function evaluate(formula, given) {
    const shown = formula.items.map((item) => show(item, given));
    if (shown.includes(null)) return "";
    if (formula.scalar) return shown[0];
    return `(${shown.join(", ")}${shown.length === 1 ? "," : ""})`;
  }

  const found = [];
  const asked = new Set();
  function collect(rootElement) {
    for (const element of rootElement.querySelectorAll("[data-formula]")) {
      let formula;
      try { formula = parse(element.dataset.formula); } catch { continue; }
      const used = names(formula, new Set());
      if (!used.size || used.has("None")) continue;
      used.forEach((name) => asked.add(name));
      found.push({ element, formula });
    }
  }
  const form = document.querySelector(".config");
  const given = {};
  const listeners = [];

  function stored() {
    let kept = {};
    try { kept = JSON.parse(localStorage.getItem(KEY) || "{}"); } catch { /* nothing kept */ }
    return { ...DEFAULTS, ...JSON.parse(form.dataset.given || "{}"), ...kept, ...sgl.state.read() };
  }
  const least = (name) => (name in DEFAULTS ? 1 : 0); // no batch, tree or page is empty
  function update(save) {
    const wrong = [];
    for (const input of form.querySelectorAll("input")) {
      const number = Number(input.value), fits = input.value !== "" && Number.isInteger(number) && number >= least(input.name);
      if (fits) given[input.name] = number; else delete given[input.name];
      const refused = !fits && (input.value !== "" || input.validity.badInput);
      input.classList.toggle("invalid", refused);
      input.setAttribute("aria-invalid", String(refused));
      if (refused) wrong.push(`${input.name}: a whole number of ${least(input.name)} or more`);
    }
    form.querySelector(".wrong").textContent = wrong.join("; ");
    if (save) {
      sgl.state.write({ ...sgl.state.read(), ...given });
      try { localStorage.setItem(KEY, JSON.stringify(given)); } catch { /* a private window keeps nothing */ }
    }
    for (const { element, formula } of found) {
      const text = evaluate(formula, given);
      let output = element.nextElementSibling;
      if (!output || output.tagName !== "OUTPUT") {
        output = sgl.element("output", { class: "value" });
        element.after(output);
      }
      const plain = (value) => value.replace(/\s/g, "");
      output.textContent = text && plain(text) !== plain(element.dataset.formula) ? "= " + text : "";
    }
    listeners.forEach((listener) => listener(given));
  }
  function build() {
    const from = stored();
    const first = Object.keys(DEFAULTS).filter((name) => asked.has(name));
    const rest = [...asked].filter((name) => !first.includes(name)).sort();
    const field = (name) => {
      const input = sgl.element("input", { type: "number", name, min: String(least(name)), step: "1", inputmode: "numeric" });
      if (from[name] !== undefined && Number.isFinite(Number(from[name]))) input.value = from[name];
      return sgl.element("label", {}, name + " ", input);
    };
    form.append(...first.map(field));
    if (rest.length) form.append(sgl.element("details", {}, sgl.element("summary", {}, `${rest.length} more symbol${rest.length === 1 ? "" : "s"}`), sgl.element("div", { class: "filters" }, ...rest.map(field))));
    const reset = sgl.element("button", { type: "button" }, "Reset");
    reset.addEventListener("click", () => {
      try { localStorage.removeItem(KEY); } catch { /* nothing kept */ }
      const first = { ...DEFAULTS, ...JSON.parse(form.dataset.given || "{}") };
      for (const input of form.querySelectorAll("input")) input.value = first[input.name] ?? "";
      sgl.state.write(Object.fromEntries(Object.entries(sgl.state.read()).filter(([name]) => !asked.has(name))));
      update(false);
    });
    form.append(reset, sgl.element("output", { class: "wrong", role: "status" }));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = !asked.size;
    form.addEventListener("input", () => update(true));
    update(false);
  }
  sgl.formula = { parse, evaluate, given, listen(listener) { listeners.push(listener); listener(given); } };
  if (form) { collect(document); build(); }
});
