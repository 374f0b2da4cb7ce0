// A module's page: the title says which function is shown.
"use strict";
(function () {
  const whole = document.title;
  function name() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const part = target && target.closest("article");
    document.title = part ? part.querySelector("h2").textContent + " · " + whole : whole;
    if (target && target !== part) target.scrollIntoView({ block: "center" });
  }
  window.addEventListener("hashchange", name);
  name();
})();
