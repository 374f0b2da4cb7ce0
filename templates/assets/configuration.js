// A configuration: what applies to one server. The conditions of the source are asked three-valued, as
// `sgltrace points --config` does; what the argument handling would decide besides is not known here.
"use strict";
(function () {
  const MOST = 64, DEEP = 12;
  const same = (a, b) => a === b || (Array.isArray(a) && Array.isArray(b) && a.length === b.length && a.every((x, i) => same(x, b[i])));
  const truthy = (value) => (Array.isArray(value) ? value.length > 0 : Boolean(value));
  const number = (value) => (typeof value === "boolean" ? Number(value) : value);
  function truth(options) {
    if (options === null) return null;
    const found = new Set(options.map(truthy));
    return found.size === 1 ? [...found][0] : null;
  }
  function either(a, b) {
    if (a === null || b === null) return null;
    const found = [...a];
    for (const value of b) if (!found.some((known) => same(known, value))) found.push(value);
    return found.length <= MOST ? found : null;
  }
  function each(work, a, b) {
    if (a.length * b.length > MOST) return null;
    let found = [];
    for (const x of a) for (const y of b) {
      let value;
      try { value = work(x, y); } catch { continue; }  // Python refuses this possibility
      found = either(found, [value]) || [];
    }
    return found.length ? found : null;
  }
  const equal = (a, b) => same(number(a), number(b));
  function ordered(a, b) {
    const x = number(a), y = number(b);
    if (x === null || y === null || typeof x !== typeof y) throw new TypeError("not compared");
    return [x, y];
  }
  const inside = (a, b) => {
    if (typeof b === "string" && typeof a === "string") return b.includes(a);
    if (Array.isArray(b)) return b.some((item) => equal(a, item));
    throw new TypeError("not searched");
  };
  const COMPARE = {
    "==": equal, "!=": (a, b) => !equal(a, b), "is": same, "is not": (a, b) => !same(a, b),
    "<": (a, b) => { const [x, y] = ordered(a, b); return x < y; }, "<=": (a, b) => { const [x, y] = ordered(a, b); return x <= y; },
    ">": (a, b) => { const [x, y] = ordered(a, b); return x > y; }, ">=": (a, b) => { const [x, y] = ordered(a, b); return x >= y; },
    "in": inside, "not in": (a, b) => !inside(a, b),
  };
  function arithmetic(op, a, b) {
    const x = number(a), y = number(b);
    if (typeof x !== "number" || typeof y !== "number" || ("/%".includes(op[0]) && y === 0)) throw new TypeError("no numbers");
    return { "+": x + y, "-": x - y, "*": x * y, "//": Math.floor(x / y), "/": x / y, "%": x - y * Math.floor(x / y) }[op];
  }

  // What applies, for values by argument: a list of what each may be. An argument that is left out may be anything.
  sgl.applies = function (data, values, given) {
    const known = { ...values };
    const member = known[data.algorithm] && known[data.algorithm].length === 1 ? String(known[data.algorithm][0] || "NONE").toUpperCase() : null;
    const answers = {};
    for (const [name, answer] of Object.entries((member && data.algorithms[member]) || {})) {
      answers[name] = answer;
      answers["self." + name.split(".").pop()] = answer;
    }
    const found = new Map(), truths = new Map(), decided = new Set(data.decided);
    let deep = 0;
    function named(name) {
      if (name === "enable_overlap" && given.overlap != null) return [given.overlap];
      if (name in known) return known[name];
      return meant(name);
    }
    function meant(name) {
      if (found.has(name)) return found.get(name);
      if (!Object.hasOwn(data.meanings, name) || deep >= DEEP) return null;
      found.set(name, null);
      deep += 1;
      let all = [];
      for (const one of data.meanings[name]) all = either(all, options(data.expressions[one]));
      deep -= 1;
      found.set(name, all);
      return all;
    }
    function called([, name, text, args]) {
      if (text) for (const [predicate, answer] of Object.entries(answers)) if (text === predicate || text.endsWith("." + predicate)) return [answer];
      if (name === "getattr" && args.length > 1) {
        let all = [];
        for (const one of options(args[1]) || [""]) all = either(all, named(String(one)));
        return all;
      }
      if (name === "bool" && args.length === 1) { const is = truth(options(args[0])); return is === null ? null : [is]; }
      return meant(name + "()");
    }
    function logical(parts, decisive) {
      let all = [];
      for (const part of parts.slice(0, -1)) {
        const some = options(part);
        if (truth(some) === decisive) return all !== null ? either(all, some) : [decisive];
        if (some === null) all = null;
        else if (all !== null) all = either(all, some.filter((value) => truthy(value) === decisive));
      }
      const last = options(parts.at(-1));
      if (all === null) return truth(last) === decisive ? [decisive] : null;
      return either(all, last);
    }
    function among(left, items, negative) {
      if (left === null) return null;
      let all = [];
      for (const value of left) {
        const sides = items.map(options);
        let answer;
        if (sides.some((side) => side !== null && side.every((one) => equal(value, one)))) answer = [true];
        else if (sides.includes(null)) return null;
        else answer = sides.some((side) => side.some((one) => equal(value, one))) ? [false, true] : [false];
        all = either(all, answer) || [];
      }
      return negative ? all.map((answer) => !answer) : all;
    }
    function compared([, first, ops, rights]) {
      let left = options(first), results = [true];
      for (const [at, op] of ops.entries()) {
        let right = null, one;
        if ((op === "in" || op === "not in") && rights[at] && rights[at][0] === "t") one = among(left, rights[at][1], op === "not in");
        else { right = options(rights[at]); one = left === null || right === null ? null : each(COMPARE[op], left, right); }
        if (one === null) return null;
        results = same(results, [true]) ? one : each((a, b) => a && b, results, one) || [];
        left = right;
      }
      return results.length ? results : null;
    }
    function options(node) {
      if (!node) return null;
      switch (node[0]) {
        case "k": return [node[1]];
        case "n": return named(node[1]);
        case "c": return called(node);
        case "!": { const is = truth(options(node[1])); return is === null ? null : [!is]; }
        case "neg": { const some = options(node[1]); return some === null ? null : each((a) => -a, some, [null]); }
        case "|": case "&": return logical(node[1], node[0] === "|");
        case "?": {
          const is = truth(options(node[1]));
          return is === null ? either(options(node[2]), options(node[3])) : options(is ? node[2] : node[3]);
        }
        case "<": return compared(node);
        case "+": { const a = options(node[2]), b = options(node[3]); return a === null || b === null ? null : each((x, y) => arithmetic(node[1], x, y), a, b); }
        case "[": {
          if (node[1] && node[1][0] === "t" && typeof node[2] === "number" && node[2] < node[1][1].length) return options(node[1][1][node[2]]);
          const some = options(node[1]);
          return some === null ? null : each((value, at) => { if (!Array.isArray(value) || at >= value.length) throw new TypeError("no such part"); return value[at]; }, some, [node[2]]);
        }
        case "t": {
          const parts = node[1].map(options);
          return parts.every((part) => part !== null && part.length === 1) ? [parts.map((part) => part[0])] : null;
        }
        default: return null;
      }
    }
    function expression(at) {
      if (!truths.has(at)) truths.set(at, truth(options(data.expressions[at])));
      return truths.get(at);
    }
    const undecided = (at) => data.leaves[at].length > 0 && data.leaves[at].every((leaf) => decided.has(leaf));
    function open(guards) {
      let is = true;
      for (const guard of guards) {
        const at = Math.abs(guard) - 1, holds = expression(at);
        if (holds === null) { if (undecided(at)) is = null; } else if (holds !== guard > 0) return false;
      }
      return is;
    }
    const passes = (sites, certain) => !sites.length || sites.some((guards) => { const is = open(guards); return certain ? is === true : is !== false; });
    function reach(certain) {
      const reached = new Set(), alive = new Set(), waiting = new Map(), todo = [...data.roots, ...(given.any ? data.loops : [])];
      while (todo.length) {
        const at = todo.pop(), cls = data.classes[at];
        if (reached.has(at)) continue;
        if (cls !== undefined && !alive.has(cls)) { waiting.set(cls, [...(waiting.get(cls) || []), at]); continue; }
        reached.add(at);
        for (const [callee, ...sites] of data.calls[at] || []) if (!reached.has(callee) && passes(sites, certain)) todo.push(callee);
        for (const [made, guards] of data.made[at] || []) if (!alive.has(made) && passes(guards.length ? [guards] : [], certain)) { alive.add(made); todo.push(...(waiting.get(made) || [])); waiting.delete(made); }
      }
      return reached;
    }
    const may = reach(false), must = reach(true);
    function runs([at, ...sites]) {
      if (!may.has(at)) return false;
      const opened = sites.length ? sites.map(open) : [true];
      if (opened.every((is) => is === false)) return false;
      return must.has(at) && opened.includes(true) ? true : null;
    }
    function side(places) {
      const all = new Set(places.map(runs));
      return !places.length || all.has(true) ? true : all.has(null) ? null : false;
    }
    function words(asked) {
      if (asked === true) return true;
      if (asked === null) return null;
      const all = asked.map(expression);
      return all.includes(true) ? true : all.includes(null) ? null : false;
    }
    return { side, words, holds: expression };
  };

  // The path that a server takes, by the algorithm and whether steps overlap.
  function pathOf(data, values, overlap) {
    const algorithm = values[data.algorithm];
    if (!algorithm || algorithm.length !== 1) return null;
    if (algorithm[0] === null) return "none";
    const member = String(algorithm[0]).toUpperCase();
    const fitting = data.workers.filter(([, algorithms, over]) => (!algorithms.length || algorithms.includes(member)) && (over === null || overlap === null || over === overlap));
    const paths = new Set(fitting.map(([path]) => path));
    return paths.size === 1 ? [...paths][0] || "other" : null;
  }
  // How each point and row stands to a server: always, yours, others, unknown.
  sgl.stand = function (data, given) {
    const mine = sgl.applies(data, given.values, given), general = sgl.applies(data, {}, { any: true });
    const points = {}, rows = {};
    for (const [id, point] of Object.entries(data.points)) {
      const asked = mine.words(point.words), sides = point.sides.map(mine.side);
      if (given.path === "none" || given.path === "other" || (given.path && !point.paths.includes(given.path))) points[id] = "others";
      else if (asked === false || sides.includes(false)) points[id] = "others";
      else if (asked === null || sides.includes(null)) points[id] = "unknown";
      else points[id] = point.words === true && point.sides.map(general.side).every(Boolean) ? "always" : "yours";
    }
    for (const [path, field, places] of data.rows) {
      const is = given.path && ["v1", "v2"].includes(given.path) && given.path !== path ? false : mine.side(places);
      rows[path + " " + field] = is === false ? "others" : is === null ? "unknown" : general.side(places) ? "always" : "yours";
    }
    return { points, rows };
  };

  // What a user gives: words, a launch command, or what `sgltrace explain --json` printed. Throws an Error that says why not.
  sgl.server = function (data, text) {
    text = text.trim();
    const defaults = Object.fromEntries(Object.entries(data.arguments).filter(([, value]) => value !== null));
    if (text.startsWith("{")) {
      const said = JSON.parse(text);
      const values = { ...Object.fromEntries(Object.entries(said.values || {}).map(([name, value]) => [name, [value]])) };
      for (const [name, open] of Object.entries(said.open || {})) if (open.one_of && open.one_of.length) values[name] = open.one_of;
      return { values, path: said.path || null, overlap: said.overlap ?? null };
    }
    const set = {};
    const put = (name, value) => { set[name] = [value]; };
    const literal = (word) => (/^-?\d+$/.test(word) ? parseInt(word, 10) : /^-?\d*\.\d+$/.test(word) ? parseFloat(word) : ({ true: true, false: false, none: null, yes: true, no: false })[word.toLowerCase()] ?? word);
    if (/\s--/.test(" " + text)) {
      const parts = (text.match(/"[^"]*"|'[^']*'|\S+/g) || []).map((word) => word.replace(/^(["'])(.*)\1$/, "$2"));
      for (let at = 0; at < parts.length; at += 1) {
        if (!parts[at].startsWith("--")) continue;
        const [option, ...rest] = parts[at].split("=");
        const name = option.slice(2).replaceAll("-", "_"), field = data.words[name.replaceAll("_", "-")] || name;
        if (!Object.hasOwn(data.arguments, field)) continue;
        if (rest.length) put(field, literal(rest.join("=")));
        else if (at + 1 < parts.length && !parts[at + 1].startsWith("--")) { put(field, literal(parts[at + 1])); at += 1; } else put(field, true);
      }
    } else {
      for (const word of text.split(",").map((part) => part.trim()).filter(Boolean)) {
        const negative = word.startsWith("no-"), [name, value] = word.replace(/^no-/, "").split("=");
        if (Object.hasOwn(data.algorithms, name.toUpperCase()) && value === undefined && !negative) { put(data.algorithm, name.toUpperCase()); continue; }
        const asked = data.words[name] || name.replaceAll("-", "_"), opposite = asked.startsWith("!"), field = asked.replace(/^!/, "");
        if (!Object.hasOwn(data.arguments, field)) throw new Error(`${word}: no such option in this release`);
        let is = value === undefined ? true : literal(value);
        if (negative) is = (data.words[name] || "").endsWith("_size") ? 1 : false;
        put(field, opposite && typeof is === "boolean" ? !is : is);
      }
    }
    const values = { ...defaults, ...set };
    if (!(data.algorithm in values)) values[data.algorithm] = [null];
    const asked = data.words.overlap ? data.words.overlap.replace(/^!/, "") : "";
    const overlap = values[asked] && values[asked].length === 1 ? !values[asked][0] : null;
    return { values, overlap, path: pathOf(data, values, overlap) };
  };

  const TITLES = { always: "always", yours: "for your server", unknown: "not known", others: "for others" };
  let loaded = null;
  const load = () => (loaded = loaded || sgl.record("configuration"));

  sgl.page("configuration", function (signal) {
    const form = document.querySelector("form.server"), input = form.querySelector("[name=server]"), output = form.querySelector("output");
    form.hidden = false;
    const marked = () => document.querySelectorAll("[data-point], [data-points], [data-row]");
    function mark(element, state, into) {
      element.dataset.applies = state || "";
      element.querySelectorAll(":scope .applies").forEach((tag) => { if (tag.closest("[data-applies]") === element) tag.remove(); });
      if (state) into.append(" ", sgl.element("span", { class: "tag applies a-" + state }, TITLES[state]));
    }
    function refresh() {
      const filter = document.querySelector("[data-filter] select, [data-filter] input");
      if (filter) filter.dispatchEvent(new Event("input"));
      document.dispatchEvent(new Event("sgl-configuration"));
    }
    async function show() {
      const text = sgl.state.read().server || "";
      input.value = text;
      const choice = document.querySelector("[data-filter] select[name=applies]");
      if (choice) choice.closest("label").hidden = !text;
      if (!text) {
        marked().forEach((element) => { mark(element, "", element); delete element.dataset.others; });
        output.textContent = "";
        refresh();
        return;
      }
      const data = await load();
      if (signal.aborted) return;
      let given;
      try { given = sgl.server(data, text); } catch (error) { output.textContent = error.message; return; }
      const stands = sgl.stand(data, given), counts = { always: 0, yours: 0, unknown: 0, others: 0 };
      for (const element of marked()) {
        const { point, points, row } = element.dataset;
        const states = points ? points.split(" ").map((id) => stands.points[id]) : [];
        const state = point ? stands.points[point] : row ? stands.rows[row] : !states.length ? "always" : ["always", "yours", "unknown", "others"].find((one) => states.includes(one));
        mark(element, state, element.querySelector("th, h3") || element);
        element.dataset.others = state === "others" ? "1" : "";
        if (element.closest(".supply")) element.hidden = state === "others";
      }
      for (const state of Object.values(stands.points)) counts[state] += 1;
      const said = given.path === "none" ? "no speculation" : given.path ? "path " + given.path : "path not known (what `sgltrace explain --json` prints can be pasted here: it says what the argument handling decides)";
      output.textContent = `${said}; points: ${counts.always} always, ${counts.yours} for your server, ${counts.unknown} not known, ${counts.others} for others`;
      refresh();
    }
    form.addEventListener("submit", (event) => { event.preventDefault(); sgl.state.write({ ...sgl.state.read(), server: input.value.trim() }); show(); });
    form.querySelector("[data-clear]").addEventListener("click", () => { sgl.state.write({ ...sgl.state.read(), server: "" }); show(); });
    window.addEventListener("hashchange", show, { signal });
    show();
  });
})();
