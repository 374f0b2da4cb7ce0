// Tables that filter and search as one types. The choice is kept in the address; j and k go from row to row.
"use strict";
sgl.page("filter", function (signal) {
  const box = document.querySelector("[data-filter]");
  const table = document.getElementById(box.dataset.filter);
  const MOST = 400; // rows that are shown at first: more of them take a browser too long
  let rows = [...table.querySelectorAll("tbody tr:not(.stage)")], most = MOST;
  const controls = [...box.querySelectorAll("select, input:not([type=checkbox])")];
  const toggles = [...box.querySelectorAll("input[type=checkbox]")];  // each takes a class off the table while it is on
  const output = box.querySelector("output");
  const texts = new Map(rows.map((row) => [row, (row.textContent + " " + (row.dataset.words || "")).toLowerCase()]));
  const nothing = sgl.element("p", { class: "empty", role: "status", hidden: true }, "Nothing matches. ", sgl.element("button", { type: "button" }, "Clear the filter"));
  const more = sgl.element("button", { type: "button", hidden: true });
  (table.closest(".scroll") || table).after(more, nothing);

  function values() {
    const chosen = Object.fromEntries(controls.map((control) => [control.name, control.value]));
    for (const toggle of toggles) chosen[toggle.name] = toggle.checked ? toggle.value : "";
    return chosen;
  }
  // A cell may hold several values, as "a|b", and so may what is asked for. Severity asks for the path and design that are chosen beside it.
  function has(row, name, wanted, chosen) {
    if (name === "severity") return severities(row, chosen).includes(wanted);
    if (name === "path" && row.dataset.severities) return Object.keys(all(row)).some((key) => key.startsWith(wanted));
    if (name === "design" && row.dataset.severities) {
      return Boolean(chosen.severity) || severities(row, chosen).some((value) => value === "hard" || value === "soft");
    }
    const any = wanted.split("|");
    return (row.dataset[name] || "").split("|").some((value) => any.includes(value));
  }
  function all(row) {
    return Object.fromEntries(row.dataset.severities.split(" ").filter(Boolean).map((pair) => pair.split("=")));
  }
  function severities(row, chosen) {
    return Object.entries(all(row))
      .filter(([key]) => (!chosen.path || key.startsWith(chosen.path)) && (!chosen.design || key.endsWith(chosen.design)))
      .map(([, value]) => value);
  }
  function show() {
    const chosen = values();
    const words = (chosen.q || "").toLowerCase().split(/\s+/).filter(Boolean);
    const named = controls.map((control) => [control.name, control.value]).filter(([name, value]) => name !== "q" && value);
    for (const toggle of toggles) table.classList.toggle(toggle.dataset.shows, !toggle.checked);
    let count = 0;
    const kept = [];
    for (const row of rows) {
      const keep = words.every((word) => texts.get(row).includes(word)) && named.every(([name, value]) => has(row, name, value, chosen));
      count += keep;
      if (keep) kept.push(row);
      row.hidden = !keep || count > most;
    }
    nothing.hidden = count > 0;
    more.hidden = count <= most;
    more.textContent = `Show all ${count.toLocaleString("en")} rows`;
    if (table.classList.contains("points")) {
      const links = kept.map((row) => row.querySelector("th a").getAttribute("href"));
      sgl.list = { from: location.hash, rows: links, whole: count === rows.length };
    }
    for (const body of table.tBodies) {
      const head = body.querySelector(".stage");
      if (head) head.hidden = ![...body.rows].some((row) => row !== head && !row.hidden);
    }
    output.textContent = count === rows.length ? `${count.toLocaleString("en")} rows` : `${count.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  }
  function clear() {
    controls.forEach((control) => { control.value = ""; });
    toggles.forEach((toggle) => { toggle.checked = false; });
    sgl.state.write({ ...sgl.state.read(), ...values() });
    show();
  }
  function restore() {
    const state = sgl.state.read();
    for (const control of controls) {
      const value = state[control.name] || "";
      if (control.tagName === "SELECT" && value && ![...control.options].some((option) => option.value === value)) {
        control.append(sgl.element("option", { value }, value.replaceAll("_", " ").split("|").join(", ")));
      }
      control.value = value;
    }
    for (const toggle of toggles) toggle.checked = state[toggle.name] === toggle.value;
    show();
  }
  for (const control of [...controls, ...toggles]) control.addEventListener("input", () => { sgl.state.write({ ...sgl.state.read(), ...values() }); show(); });
  const reset = box.querySelector("[data-reset]");
  if (reset) reset.addEventListener("click", clear);
  nothing.querySelector("button").addEventListener("click", clear);
  more.addEventListener("click", () => { most = Infinity; show(); });
  table.addEventListener("sgl-sorted", () => { rows = [...table.querySelectorAll("tbody tr:not(.stage)")]; show(); });
  window.addEventListener("hashchange", restore, { signal });
  document.addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, dialog *") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key !== "j" && event.key !== "k") return;
    const shown = rows.filter((row) => !row.hidden);
    const at = shown.indexOf(document.activeElement.closest("tr"));
    const next = shown[event.key === "j" ? Math.min(at + 1, shown.length - 1) : Math.max(at - 1, 0)];
    const link = next && next.querySelector("a");
    if (link) { link.focus(); event.preventDefault(); }
  }, { signal });
  restore();
});
