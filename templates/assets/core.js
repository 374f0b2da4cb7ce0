// On every page: the colour scheme, the keyboard, and the box that goes to a function or a coupling point.
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
    button.addEventListener("click", () => {
      const next = themes[(themes.indexOf(stored()) + 1) % themes.length];
      try { localStorage.setItem("sgltrace-theme", next); } catch { /* a private window keeps nothing */ }
      apply(next);
      show();
    });
  }

  // Go to: names are loaded when first asked for.
  let dialog = null;
  // [name, where, address, whether it is a coupling point, text to search]
  let entries = null;
  function allEntries() {
    if (entries) return entries;
    entries = sgl.names.points.map(([title, kind, file]) => [title, kind, file, true]);
    for (const [module, file, names] of sgl.names.modules) {
      for (const name of names) entries.push([name, module, sgl.address(file, name), false]);
    }
    return entries;
  }
  function score(words, entry) {
    const text = entry[4] || (entry[4] = (entry[0] + " " + entry[1] + ":" + entry[0]).toLowerCase());
    let total = 0;
    for (const word of words) {
      const at = text.indexOf(word);
      if (at < 0) return -1;
      total += at + text.length / 40;
    }
    return total + (entry[3] ? 0 : 5);
  }
  function find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const found = [];
    for (const entry of allEntries()) {
      const value = score(words, entry);
      if (value >= 0) found.push([value, entry]);
    }
    return found.sort((a, b) => a[0] - b[0]).slice(0, 30).map((pair) => pair[1]);
  }
  function buildDialog() {
    const input = sgl.element("input", {
      type: "search", "aria-label": "Go to a function or coupling point", role: "combobox", "aria-expanded": "true",
      "aria-controls": "jump-list", autocomplete: "off", placeholder: "function, module or coupling point",
    });
    const list = sgl.element("ul", { id: "jump-list", role: "listbox", "aria-label": "Found" });
    dialog = sgl.element("dialog", { id: "jump", "aria-label": "Go to" }, input, list);
    document.body.append(dialog);
    let chosen = 0;
    const choose = (number) => {
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
      if (link) { dialog.close(); link.click(); }
    };
    const show = () => {
      if (!sgl.names) return;
      list.replaceChildren(...find(input.value).map(([name, where, url, point], at) =>
        sgl.element("li", { role: "presentation" }, sgl.element("a", { href: root + url, role: "option", id: "jump-" + at, tabindex: "-1" },
          sgl.element("span", { class: point ? "" : "fn" }, name), " ", sgl.element("span", { class: "mod" }, where)))));
      choose(0);
      if (wanted) { wanted = false; follow(); }
    };
    input.addEventListener("input", show);
    sgl.loadNames().then(show);
    input.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown") { choose(chosen + 1); event.preventDefault(); }
      if (event.key === "ArrowUp") { choose(chosen - 1); event.preventDefault(); }
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
