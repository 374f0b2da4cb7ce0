// A module's page: the title says which function is shown.
"use strict";
sgl.page("module", function (signal) {
  const whole = document.title;
  function name() {
    const target = document.getElementById(sgl.fragment());
    const part = target && target.closest("article");
    document.title = part ? part.querySelector("h2").textContent + " · " + whole : whole;
    if (target && target !== part) target.scrollIntoView({ block: "center" });
  }
  window.addEventListener("hashchange", name, { signal });
  name();
});
