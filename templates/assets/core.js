// On every page: the colour scheme, the keyboard, and the box that goes to a page, a point, a field, a tensor, a function or a line.
"use strict";
window.sgl = { names: null };

(function () {
  const page = document.documentElement;
  const root = page.dataset.root;
  const themes = ["system", "light", "dark"];

  function stored() {
    try { return localStorage.getItem("sgltrace-theme") || "system"; } catch { return "system"; }
  }
  function apply(theme) {
    if (theme === "system") delete page.dataset.theme; else page.dataset.theme = theme;
    document.dispatchEvent(new Event("sgl-theme"));
  }
  apply(stored());

  sgl.element = function (name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === true) made.setAttribute(key, ""); else if (value !== false && value != null) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  };
  sgl.json = (id) => JSON.parse(document.getElementById(id).textContent);

  // What the address names on the page, after the page's own name, as in #/points.html#kind=x.
  sgl.fragment = function () {
    const hash = "#" + location.hash.split("#").slice(2).join("#");
    try { return decodeURIComponent(hash.slice(1)); } catch { return hash.slice(1); }
  };
  // The script of a page runs whenever the page is shown, and the signal ends what it listens to.
  const scripts = {};
  sgl.page = (name, setup) => { scripts[name] = setup; };
  sgl.run = (name, signal) => scripts[name](signal);

  sgl.address = (file, name) => encodeURI(file) + "#" + encodeURIComponent(name);

  // The state of a page lives in the address, after the #, as key=value pairs.
  sgl.state = {
    read() {
      const text = location.hash.split("#").slice(2).join("#");
      return text.includes("=") ? Object.fromEntries(new URLSearchParams(text)) : {};
    },
    write(values) {
      const kept = Object.entries(values).filter(([, value]) => value !== "" && value != null);
      const hash = new URLSearchParams(kept).toString();
      history.replaceState(null, "", "#/" + encodeURI(sgl.current()) + (hash ? "#" + hash : ""));
    },
  };

  function themeButton() {
    const button = document.getElementById("theme");
    const show = () => { button.textContent = "Theme: " + stored(); };
    button.hidden = false;
    show();
    document.addEventListener("sgl-theme", show);
    button.addEventListener("click", () => choose(themes[(themes.indexOf(stored()) + 1) % themes.length]));
  }
  function choose(theme) {
    try { localStorage.setItem("sgltrace-theme", theme); } catch { /* a private window keeps nothing */ }
    apply(theme);
  }

  // Go to: names are loaded when first asked for.
  let dialog = null;
  // What can be gone to: its name, where it is, its address or what it does, and how far back it stands.
  let entries = null;
  const actions = [
    ...themes.map((theme) => [`Theme: ${theme}`, () => choose(theme)]),
    ["Copy the address of this page", () => navigator.clipboard.writeText(location.href)],
    ["Print this page", () => window.print()],
  ];
  function allEntries() {
    if (entries) return entries;
    const made = (rank) => ([name, where, address]) => ({ name, where, address, rank, text: (name + " " + where + ":" + name).toLowerCase() });
    const { pages, points, classes, tensors, modules } = sgl.names;
    entries = [
      ...pages.map(([title, file]) => [title, "page", file]).map(made(0)),
      ...points.map(([title, kind, file]) => [title, kind, file]).map(made(0)),
      ...classes.flatMap(([cls, file, names]) => names.map(([name, anchor]) => [`${cls}.${name}`, "field", sgl.address(file, anchor)])).map(made(3)),
      ...tensors.map((name) => [name, "tensor", `tensors.html#q=${encodeURIComponent(name)}`]).map(made(4)),
      ...modules.flatMap(([module, file, names]) => [[module, "module", encodeURI(file)], ...names.map((name) => [name, module, sgl.address(file, name)])]).map(made(5)),
      ...actions.map(([name, does]) => ({ ...made(6)([name, "command", ""]), does })),
    ];
    return entries;
  }
  // "scheduler.py:123", "managers/scheduler.py:123" and "sglang.srt.managers.scheduler:123" name a line
  function lines(query) {
    const match = /^(\S+?):L?(\d+)$/.exec(query.trim());
    if (!match) return [];
    const path = match[1].replace(/\.pyi?$/, "").replace(/\/__init__$/, "").replaceAll("/", ".").replace(/^\.+/, "").toLowerCase();
    return sgl.names.modules
      .filter(([module]) => ("." + module.toLowerCase()).endsWith("." + path))
      .sort((a, b) => a[0].length - b[0].length).slice(0, 10)
      .map(([module, file]) => ({ name: `${module}:${match[2]}`, where: "line", address: `${encodeURI(file)}#L${match[2]}` }));
  }
  function score(words, entry) {
    let total = 0;
    for (const word of words) {
      const at = entry.text.indexOf(word);
      if (at < 0) return null;
      total += at + entry.text.length / 40;
    }
    const last = entry.name.toLowerCase().split(".").pop();
    return entry.rank + (words.length === 1 && (last === words[0] || entry.name.toLowerCase() === words[0]) ? -50 : total);
  }
  function find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return sgl.names.pages.map(([name, address]) => ({ name, where: "page", address }));
    const found = [];
    for (const entry of allEntries()) {
      const value = score(words, entry);
      if (value !== null) found.push([value, entry]);
    }
    return [...lines(query), ...found.sort((a, b) => a[0] - b[0]).slice(0, 30).map((pair) => pair[1])];
  }
  function buildDialog() {
    const input = sgl.element("input", {
      type: "search", "aria-label": "Go to", role: "combobox", "aria-expanded": "true",
      "aria-controls": "jump-list", autocomplete: "off", placeholder: "page, point, field, tensor, function, file:line",
    });
    const list = sgl.element("ul", { id: "jump-list", role: "listbox", "aria-label": "Found" });
    const none = sgl.element("p", { class: "empty", role: "status", hidden: true });
    dialog = sgl.element("dialog", { id: "jump", "aria-label": "Go to" }, input, list, none);
    document.body.append(dialog);
    let chosen = 0;
    const mark = (number) => {
      const links = [...list.querySelectorAll("a")];
      if (!links.length) return;
      chosen = (number + links.length) % links.length;
      links.forEach((link, at) => link.setAttribute("aria-selected", String(at === chosen)));
      input.setAttribute("aria-activedescendant", links[chosen].id);
      links[chosen].scrollIntoView({ block: "nearest" });
    };
    let wanted = false; // Enter was pressed before the names were there
    const follow = () => {
      const link = list.querySelectorAll("a")[chosen];
      if (link) link.click();
    };
    const show = () => {
      if (!sgl.names) return;
      const found = find(input.value);
      list.replaceChildren(...found.map(({ name, where, address, does }, at) => {
        const link = sgl.element("a", { href: does ? location.hash || root : root + address, role: "option", id: "jump-" + at, tabindex: "-1" },
          sgl.element("span", { class: where === "page" || where === "command" ? "" : "fn" }, name), " ", sgl.element("span", { class: "mod" }, where));
        link.addEventListener("click", (event) => { dialog.close(); if (does) { event.preventDefault(); does(); } });
        return sgl.element("li", { role: "presentation" }, link);
      }));
      none.hidden = found.length > 0;
      none.textContent = found.length ? "" : `Nothing fits “${input.value.trim()}”.`;
      mark(0);
      if (wanted) { wanted = false; follow(); }
    };
    input.addEventListener("input", show);
    sgl.loadNames().then(show);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { mark(chosen + 1); event.preventDefault(); }
      if (event.key === "ArrowUp") { mark(chosen - 1); event.preventDefault(); }
      if (event.key === "Enter") { if (sgl.names) follow(); else wanted = true; }
    });
    return input;
  }
  function jump() { // opens at once, so that what is typed while the names load is not lost
    const input = dialog ? dialog.querySelector("input") : buildDialog();
    dialog.showModal();
    input.select();
  }

  function typing(target) {
    return target.matches("input, select, textarea, dialog *") || target.isContentEditable;
  }
  document.addEventListener("DOMContentLoaded", () => {
    themeButton();
    const button = document.getElementById("jump-open");
    button.hidden = false;
    button.addEventListener("click", jump);
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && !event.ctrlKey && !event.metaKey && !event.altKey && !typing(event.target)) {
        event.preventDefault();
        const search = document.querySelector("[data-filter] input[type=search]");
        if (search && document.activeElement !== search) search.focus(); else jump();
      }
      if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); jump(); }
    });
  });
})();
