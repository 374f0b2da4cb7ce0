// A coupling point: Previous and Next go through the rows of the list that one came from.
"use strict";
sgl.page("point", function () {
  const crumbs = document.querySelector("[data-crumbs]"), list = sgl.list;
  const own = "#/" + encodeURI(sgl.current());
  const at = list ? list.rows.findIndex((row) => row === own) : -1;
  if (at < 0) return;
  const link = (rel, text, number) => (list.rows[number] ? [" ", sgl.element("a", { rel, href: list.rows[number] }, text)] : []);
  crumbs.replaceChildren(
    sgl.element("a", { href: list.from }, list.whole ? "Coupling points" : "Coupling points, filtered"), " ",
    sgl.element("span", { class: "quiet" }, `${at + 1} of ${list.rows.length}`),
    ...link("prev", "Previous", at - 1), ...link("next", "Next", at + 1),
  );
});
