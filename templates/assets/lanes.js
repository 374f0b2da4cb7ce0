// Swim lanes: one path at a time, or all of them side by side.
"use strict";
sgl.page("lanes", function (signal) {
  const control = document.querySelector("[data-lanes] select");
  if (!control) return;
  const lanes = document.querySelector(".lanes");
  function show() {
    const path = control.value;
    for (const part of lanes.querySelectorAll("[data-path]")) part.hidden = path !== "" && part.dataset.path !== path;
    lanes.classList.toggle("n2", path === "");
    lanes.classList.toggle("n1", path !== "");
  }
  function restore() {
    const wanted = sgl.state.read().path;
    if ([...control.options].some((option) => option.value === wanted)) control.value = wanted;
    show();
  }
  control.addEventListener("change", () => { sgl.state.write({ ...sgl.state.read(), path: control.value }); show(); });
  window.addEventListener("hashchange", restore, { signal });
  restore();
});
