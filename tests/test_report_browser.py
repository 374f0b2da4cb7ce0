"""The report in a real browser: filters, search, keyboard, deep links, formulas, the graph, dark, print, small."""

from __future__ import annotations

import re
import shutil
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect
from report_browser import READY, Visit, watch
from sample_index import DictSource, sample_files, sample_index

from sgltrace.model import CallEdge, CallSite, Function
from sgltrace.reports import ReportOptions, render

SIX = 6


def titles(visit: Visit) -> set[str]:
    return {text.split("\n")[0] for text in visit.rows()}


def test_the_first_screen_links_each_count_to_the_points_that_it_counts(visit):
    page = visit.go("index.html")
    cell = page.locator(".answer").filter(has=page.locator('a[href*="path=v2&design=A&severity=hard"]'))
    count = int(cell.locator("li a b").first.inner_text())
    cell.locator("li a").first.click()
    expect(page.locator("[data-filter] output")).to_have_text(f"{count} of {SIX} rows")
    assert len(visit.rows()) == count


@pytest.mark.parametrize(
    ("state", "count"),
    [
        ("", 6),
        ("path=v1", 5),
        ("path=v1&design=A", 4),
        ("path=v1&design=C&severity=soft", 2),
        ("severity=none", 2),
        ("kind=metrics", 1),
        ("component=scheduler", 2),
        ("binding=graph+capture", 1),
        ("observed=refuted", 1),
        ("q=stride+worker", 1),
        ("q=nothing+has+this", 0),
        ("kind=no+such+kind", 0),
    ],
)
def test_filters_come_from_the_address(visit, state, count):
    visit.go(f"points.html#{state}")
    assert len(visit.rows()) == count


def test_filters_and_search_go_into_the_address_and_come_back(visit):
    page = visit.go("points.html")
    page.get_by_label("Severity").select_option("hard")
    page.get_by_label("Design").select_option("C")
    page.get_by_label("Search").press_sequentially("stride")
    shown = titles(visit)
    assert shown == {"next_token_ids is read with a stride of num_draft_tokens"}
    assert "severity=hard" in page.url and "design=C" in page.url and "q=stride" in page.url
    page.reload()
    assert titles(visit) == shown
    page.get_by_role("button", name="Clear").click()
    assert len(visit.rows()) == SIX
    assert page.url.endswith("#/points.html")


def test_a_question_leads_to_the_points_that_answer_it_with_their_reasons(visit):
    page = visit.go("index.html")
    asked = page.locator(".questions li").filter(has_text="Which KV slot")
    counts = [int(text.split()[0]) for text in asked.locator(".sev").all_inner_texts()]
    asked.locator("a").click()
    expect(page.locator("table.points tbody tr:visible")).to_have_count(sum(counts))
    assert counts
    reasons = page.locator(".points .why:visible")
    expect(reasons.first).to_be_visible()
    page.get_by_label("with reasons").uncheck()
    expect(reasons).to_have_count(0)
    assert "why=1" not in page.url and "kind=kv_alloc" in page.url


def test_the_table_is_worked_with_the_keyboard_alone(visit):
    page = visit.go("points.html")
    page.keyboard.press("/")
    page.keyboard.type("graphs")
    page.keyboard.press("Tab")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("j")
    assert (
        page.evaluate("document.activeElement.textContent")
        == "target graphs are captured for num_draft_tokens per request"
    )
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "target graphs are captured for num_draft_tokens per request"
    )


def test_the_skip_link_is_first_and_leads_to_the_content(visit):
    page = visit.go("points.html")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_go_to_finds_functions_and_points_from_any_page(visit):
    page = visit.go("functions/sglang.srt.managers.scheduler.html")
    page.keyboard.press("/")
    page.keyboard.type("verify_v2")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sglang.srt.speculative.eagle_worker_v2.html#EAGLEWorkerV2.verify_v2")
    visit.ready()
    page.keyboard.press("Control+k")
    page.keyboard.type("slot prepare")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_url("**/points/kv-alloc-prepare-for-decode.html")


def test_go_to_keeps_what_is_typed_while_the_names_load(visit):
    page = visit.go("index.html")
    page.evaluate("void (window.load = sgl.loadNames)")
    page.evaluate("void (sgl.loadNames = () => new Promise((done) => { window.loaded = () => load().then(done); }))")
    page.keyboard.press("/")
    page.keyboard.type("verify_v2")
    page.keyboard.press("Enter")
    assert page.url.endswith("index.html")
    page.evaluate("void window.loaded()")
    page.wait_for_url("**/sglang.srt.speculative.eagle_worker_v2.html#EAGLEWorkerV2.verify_v2")


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ("contract", "#/contract.html"),
        ("out_cache_loc", "#/fields/ScheduleBatch.html#out_cache_loc"),
        ("scheduler.py:49", "#/functions/sglang.srt.managers.scheduler.html#L49"),
        ("managers/scheduler.py:49", "#/functions/sglang.srt.managers.scheduler.html#L49"),
        ("next_token_ids tensor", "#/tensors.html#q=next_token_ids"),
    ],
)
def test_go_to_finds_pages_fields_tensors_and_lines(visit, query, wanted):
    page = visit.go("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type(query)
    page.locator(
        "#jump-list a", has_text=query.split()[0].rpartition(".py")[0].rpartition("/")[2] or query.split()[0]
    ).first.wait_for()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: "#/index.html" not in url)
    assert page.url.partition("index.html")[2] == wanted


def test_go_to_says_when_nothing_fits_and_does_commands(visit):
    page = visit.go("index.html")
    page.keyboard.press("Control+k")
    page.keyboard.type("no such thing at all")
    expect(page.locator("#jump")).to_contain_text("Nothing fits")
    page.locator("#jump input").fill("theme dark")
    expect(page.locator("#jump-list a").first).to_contain_text("Theme: dark")
    page.keyboard.press("Enter")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


def test_next_and_previous_follow_the_filter(visit):
    page = visit.go("points.html#severity=hard&path=v1")
    names = [text.split("\n")[0] for text in visit.rows()]
    page.locator("table.points tbody tr:visible a").first.click()
    visit.ready()
    for name in names[1:]:
        page.get_by_role("link", name="Next", exact=True).click()
        visit.ready()
        expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.get_by_role("link", name="Next", exact=True)).to_have_count(0)
    page.get_by_role("link", name="Coupling points, filtered").click()
    visit.ready()
    assert page.url.endswith("#severity=hard&path=v1") or "severity=hard" in page.url
    assert [text.split("\n")[0] for text in visit.rows()] == names


def test_a_filter_that_nothing_meets_says_so_and_can_be_cleared(visit):
    page = visit.go("points.html#q=nothing+has+this")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    page.get_by_role("button", name="Clear the filter").click()
    assert len(visit.rows()) == SIX


def test_tables_sort_both_ways(visit):
    page = visit.go("points.html")
    kinds = lambda: page.locator("table.points tbody td:nth-child(2)").all_inner_texts()  # noqa: E731
    page.get_by_role("button", name="Kind").click()
    up = kinds()
    page.get_by_role("button", name="Kind").click()
    assert up == sorted(up, key=str.lower) and kinds() == sorted(up, key=str.lower, reverse=True)
    expect(page.locator("table.points th[aria-sort=descending]")).to_have_count(1)


def test_numbers_that_no_batch_has_are_refused_and_a_reset_is_there(visit):
    page = visit.go("tensors.html")
    values = lambda: page.locator("[data-formula] + output.value").all_inner_texts()  # noqa: E731
    before = values()
    page.get_by_label("bs", exact=True).fill("-3")
    expect(page.locator(".wrong")).to_contain_text("bs: a whole number of 1 or more")
    expect(page.get_by_label("bs", exact=True)).to_have_attribute("aria-invalid", "true")
    assert not any("-" in value for value in values())
    page.get_by_role("button", name="Reset").click()
    expect(page.locator(".wrong")).to_be_empty()
    assert values() == before


def test_file_and_line_are_copied_with_one_click(browser, report):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    visit = watch(context.new_page(), report)
    page = visit.go("points/result-stride.html")
    page.locator(".end [data-copy]").first.click()
    expect(page.locator(".end [data-copy]").first).to_have_text("copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert re.fullmatch(r"sglang/srt/\S+\.py:\d+", copied)
    context.close()


def test_chips_lead_to_the_points_like_it(visit):
    page = visit.go("points/result-stride.html")
    page.locator("a.comp").first.click()
    visit.ready()
    assert "component=" in page.url and visit.rows()


def test_the_lanes_show_one_path_or_both(visit):
    page = visit.go("lanes.html")
    expect(page.locator(".lanes [data-path=v1]").first).to_be_visible()
    page.get_by_label("Path").select_option("v2")
    expect(page.locator(".lanes [data-path=v1]:visible")).to_have_count(0)
    assert "path=v2" in page.url


def test_the_graph_opens_on_the_worker(visit):
    page = visit.go("graph.html")
    assert page.evaluate("sglGraph.focus.name") == "EAGLEWorkerV2.forward_batch_generation"
    page.get_by_role("button", name="Whole graph").click()
    assert page.evaluate("sglGraph.focus") is None


def test_the_graph_folds_overrides_until_they_are_asked_for(browser, tmp_path):
    index = sample_index()
    entry = index.entry_points["v2"]
    for number in range(9):
        name = f"sglang.srt.layers.backend_{number}:Backend{number}.forward"
        index.functions.append(
            Function(
                id=name,
                file="sglang/srt/layers/b.py",
                line=1,
                end_line=1,
                phase=[],
                paths=["v2"],
                component="attention",
            )
        )
        site = CallSite(line=1, guards=[])
        index.calls.append(
            CallEdge(caller=entry, callee=name, kind="attr_method", confidence=0.5, virtual=True, sites=[site])
        )
    render(index, DictSource(sample_files()), tmp_path, ReportOptions())
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = watch(context.new_page(), tmp_path)
    page = visit.go("graph.html")
    drawn = "[...sglGraph.near.keys()].filter(id => sglGraph.functions[id].name.startsWith('Backend')).length"
    assert page.evaluate(drawn) == 1
    assert page.locator("#g-side a, #g-side li", has_text="Backend").count() >= 9
    page.get_by_label("every override").check()
    assert page.evaluate(drawn) == 9
    context.close()
    assert visit.errors == []


def test_a_word_of_ours_leads_to_what_it_means(visit):
    page = visit.go("index.html")
    page.get_by_role("link", name="off step", exact=True).first.click()
    visit.ready()
    expect(page.locator("dt.target")).to_have_text("off step")


def test_a_point_shows_both_ends_with_the_line_marked_and_the_way_there(visit):
    page = visit.go("points/result-stride.html")
    marked = page.locator(".end li.hit").all_inner_texts()
    assert len(marked) == 2
    assert "return predict, accept_lens" in marked[0] or "accept_tokens" in marked[0]
    assert "result.next_token_ids[" in marked[1] or "stride" in marked[1]
    assert page.locator(".end .way").first.inner_text().startswith("v2 Scheduler.event_loop_overlap")
    expect(page.locator("svg.crossing a")).to_have_count(2)


def test_a_function_is_shown_alone_when_it_is_addressed(visit):
    page = visit.go("functions/sglang.srt.managers.scheduler.html#Scheduler.run_batch")
    expect(page.locator("article:visible")).to_have_count(1)
    assert "Scheduler.run_batch" in page.title()
    page.locator("[data-whole] summary").click()
    names = page.locator("[data-whole] a.fn")
    assert names.count() > 5
    wanted = names.nth(2).inner_text()
    names.nth(2).click()
    expect(page.locator("article h2")).to_have_text(wanted)


def test_a_line_link_shows_its_function_and_marks_the_line(visit):
    page = visit.go("functions/sglang.srt.managers.scheduler.html#Scheduler.run_batch")
    page.locator("article:visible .links a.at").first.click()
    expect(page.locator("article:visible")).to_have_count(1)
    assert page.locator("li.target .no").inner_text() == page.url.rpartition("#L")[2]
    assert page.locator("li.target").evaluate("e => getComputedStyle(e).backgroundColor") != "rgba(0, 0, 0, 0)"


def test_formulas_are_evaluated_in_place_and_kept_in_the_address(visit):
    page = visit.go("tensors.html")
    values = lambda: dict(  # noqa: E731
        page.eval_on_selector_all(
            "[data-formula] + output", "all => all.map(o => [o.previousElementSibling.dataset.formula, o.textContent])"
        )
    )
    page.get_by_label("bs", exact=True).fill("5")
    page.get_by_label("topk").fill("4")
    page.get_by_label("num_steps").fill("3")
    page.get_by_label("num_draft_tokens").fill("7")
    found = values()
    assert found["(bs*topk*num_steps,)"] == "= (60,)"
    assert found["(bs, num_draft_tokens - 1)"] == "= (5, 6)"
    assert found["(Max(num_draft_tokens, num_steps*topk)*bs,)"] == "= (60,)"
    assert found["(bs*num_draft_tokens, vocab_size)"] == "= (35, vocab_size)"
    assert "bs=5" in page.url
    page.goto(page.url.replace("contract", "tensors"))
    assert values() == found


FORMULAS = [
    ("2*bs + 1", "17"),
    ("(bs, 2)", "(8, 2)"),
    ("(bs,)", "(8,)"),
    ("[bs, bs]", "(8, 8)"),
    ("ceiling(bs/3)*3", "9"),
    ("bs//3 - bs % 3", "0"),
    ("-bs**2", "-64"),
    ("Min(bs, 3)", "3"),
    ("Mod(-1, bs)", "7"),
    ("bs*unknown + 1", ""),
    ("unknown", "unknown"),
]
NOT_FORMULAS = [
    "bs bs",
    "bs +",
    "f(bs)",
    "alert(1)",
    "bs == 3",
    "sum_i x_i, x = 2",
    "",
    "[D]*B",
    "a[0]",
    "constructor(1)",
]


def test_the_grammar_of_formulas(visit):
    page = visit.go("tensors.html")
    for text, wanted in FORMULAS:
        got = page.evaluate("text => sgl.formula.evaluate(sgl.formula.parse(text), { bs: 8 })", text)
        assert got == wanted, text
    for text in NOT_FORMULAS:
        assert (
            page.evaluate("text => { try { sgl.formula.parse(text); return true; } catch { return false; } }", text)
            is False
        ), text


def test_the_graph_focuses_filters_and_says_the_same_in_words(visit):
    page = visit.go("graph.html")
    page.get_by_label("Function", exact=True).fill("run_batch")
    page.keyboard.press("Enter")
    side = page.locator("#g-side")
    expect(side).to_contain_text("Scheduler.run_batch")
    expect(side.get_by_role("link", name="EAGLEWorkerV2.forward_batch_generation")).to_be_visible()
    assert "focus=" in page.url
    page.get_by_label("Path").select_option("v1")
    expect(side.get_by_role("link", name="EAGLEWorkerV2.forward_batch_generation")).to_have_count(0)
    near = page.evaluate("sglGraph.near.size")
    page.get_by_label("Distance").select_option("3")
    assert page.evaluate("sglGraph.near.size") > near
    page.reload()
    assert page.evaluate("sglGraph.focus.name") == "Scheduler.run_batch"
    side.get_by_role("link", name="Open its page").click()
    page.wait_for_url("**/sglang.srt.managers.scheduler.html#Scheduler.run_batch")


def test_the_graph_marks_calls_that_ran_and_switches_components_off(visit):
    page = visit.go("graph.html")
    whole = page.evaluate("sglGraph.edges.length")
    page.get_by_label("only calls that ran").check()
    assert page.evaluate("sglGraph.edges.length") == 2
    page.get_by_label("only calls that ran").uncheck()
    page.locator("#g-legend").get_by_role("button", name="scheduler").click()
    assert page.evaluate("sglGraph.edges.length") < whole


def test_the_graph_moves_by_pointer_and_by_keyboard(visit):
    page = visit.go("graph.html")
    canvas = page.locator("#g-canvas")
    before = page.evaluate("({...sglGraph.view})")
    canvas.hover()
    page.mouse.wheel(0, -400)
    page.wait_for_function("scale => sglGraph.view.scale > scale", arg=before["scale"])
    canvas.focus()
    x = page.evaluate("sglGraph.view.x")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("sglGraph.view.x") > x
    page.keyboard.press("0")
    assert page.evaluate("sglGraph.view.scale") == pytest.approx(before["scale"])
    assert (
        page.evaluate("""() => { const c = document.getElementById("g-canvas");
        return new Set(c.getContext("2d").getImageData(0, 0, c.width, c.height).data).size }""")
        > 8
    )


def test_the_graph_is_quick_with_thousands_of_functions(browser, tmp_path):
    index = sample_index(modules=60, functions=50)
    for function in index.functions:
        function.paths = function.paths or ["v1"]
    assert len(index.functions) > 3000
    render(index, DictSource(sample_files(60, 50)), tmp_path, ReportOptions())
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    visit = watch(context.new_page(), tmp_path)
    page = visit.go("graph.html")
    page.get_by_role("button", name="Whole graph").click()
    page.get_by_label("Show").select_option("functions")
    # A frame takes a bounded number of paints, whatever the clock says: nothing out of view is drawn.
    drawn = page.evaluate("""async () => {
        const c = document.getElementById("g-canvas"), ink = c.getContext("2d");
        let count = 0; const fill = ink.fillText.bind(ink);
        ink.fillText = (...a) => { count++; fill(...a); };
        for (let i = 0; i < 8; i++) c.dispatchEvent(new KeyboardEvent("keydown", { key: "+" }));
        await new Promise(done => setTimeout(done, 200)); return count; }""")
    assert 0 < drawn < 3000
    context.close()
    assert visit.errors == []


def test_the_step_opens_to_what_the_address_names(visit):
    page = visit.go("step-v2.html")
    expect(page.locator("li.entry").first).to_be_visible()
    page.get_by_role("button", name="Open all").click()
    assert page.locator(".chain details:not([open])").count() == 0
    page.get_by_role("button", name="Only the way to the worker").click()
    expect(page.locator("li.entry").first).to_be_visible()
    page.get_by_label("Conditions").uncheck()
    expect(page.locator(".chain .guards:visible")).to_have_count(0)


def test_the_refactor_plan_keeps_ticks_and_is_saved_as_markdown(visit):
    page = visit.go("refactor.html#path=v2&design=C")
    expect(page.locator(".plan:visible h2")).to_contain_text("v2, design C")
    tasks = page.locator(".plan:visible .task:visible")
    assert tasks.count() == 4
    page.get_by_label("soft ones too").uncheck()
    assert tasks.count() == 2
    tasks.first.locator("input").check()
    page.reload()
    assert page.locator(".plan:visible .task:visible input:checked").count() == 1
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as Markdown").click()
    text = download.value.path().read_text()
    assert download.value.suggested_filename == "refactor-v2-C.md"
    assert text.count("- [x] ") == 1 and text.count("- [ ] ") == 1
    assert re.search(r"^- \[ \] \d+: \*\*.+\*\* \(hard\)$", text, re.MULTILINE)
    assert re.search(r"^  - in [\w.\\]+: \d+", text, re.MULTILINE)


def test_the_plan_keeps_ticks_for_every_design_and_is_saved_as_markdown(visit):
    page = visit.go("plan.html#path=v2&design=B")
    expect(page.locator(".edits:visible h2")).to_contain_text("v2, design B")
    tasks = page.locator(".edits:visible .task:visible")
    every = tasks.count()
    assert every >= 2
    tasks.first.locator("input").check()
    expect(page.locator("#plan-tools output")).to_have_text(f"1 of {every} done")
    expect(page.locator("#plan-remains")).to_contain_text(f"v2 B: {every - 1} left")
    assert "done=v2.decide" in page.url
    page.get_by_label("Design").select_option("A")
    assert page.locator(".edits:visible .task:visible input:checked").count() == 1
    page.evaluate("localStorage.clear()")
    page.reload()
    assert page.locator(".edits:visible .task:visible input:checked").count() == 1
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as Markdown").click()
    assert download.value.suggested_filename == "plan-v2-A.md"
    assert download.value.path().read_text().count("- [x] ") == 1


def test_a_server_cuts_points_and_contract_down_and_stays_in_the_address(visit):
    page = visit.go("points.html")
    every = page.locator("#points tbody tr:visible").count()
    page.get_by_role("textbox", name="Your server").fill('{"values": {"speculative_algorithm": "EAGLE"}, "path": "v1"}')
    page.get_by_role("button", name="Cut down").click()
    expect(page.locator("form.server output")).to_contain_text("path v1; points:")
    assert page.locator("#points tr[data-applies=others]").count() >= 1
    page.get_by_label("Applies").select_option("always|yours|unknown")
    assert page.locator("#points tbody tr:visible").count() < every
    assert "server=" in page.url
    page.reload()
    expect(page.locator("form.server output")).to_contain_text("path v1; points:")
    page.get_by_role("button", name="All servers").click()
    expect(page.locator("#points .applies")).to_have_count(0)
    page = visit.go("contract.html#" + urlencode({"server": '{"values":{},"path":"v1"}'}))
    expect(page.locator("#contract tr[data-path=v2][data-applies=others]").first).to_be_visible()


def test_the_lanes_evaluate_shapes_and_follow_the_numbers(visit):
    page = visit.go("lanes.html#bs=3&num_draft_tokens=5")
    assert "= (15,)" in page.locator(".lanes output").all_inner_texts()
    expect(page.locator(".overlap")).to_have_count(1)


def test_a_run_shows_its_steps_its_crash_and_what_was_refuted(visit):
    page = visit.go("runs.html")
    page.get_by_role("link", name="h200-eagle3").click()
    expect(page.locator("svg[role=img]")).to_have_count(4)
    expect(page.locator(".crash")).to_contain_text("killed by signal 9")
    assert page.locator(".ev-refuted").count() >= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scheme_follows_the_system_and_can_be_chosen(browser, report, scheme):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto((report / "index.html").as_uri())
    lightness = "getComputedStyle(document.documentElement).backgroundColor.match(/\\d+/g).map(Number)[0]"
    dark = page.evaluate(lightness) < 128
    assert dark == (scheme == "dark")
    button = page.locator("#theme")
    while (other := "light" if dark else "dark") not in button.inner_text():
        button.click()
    assert (page.evaluate(lightness) < 128) == (other == "dark")
    page.goto((report / "index.html").as_uri() + "#/points.html")
    assert (page.evaluate(lightness) < 128) == (other == "dark")
    context.close()


PAGES = [
    "index.html", "points.html", "points/result-stride.html", "refactor.html", "plan.html", "matrix.html",
    "compare.html", "lanes.html", "step-v1.html", "step-v2.html", "contract.html", "tensors.html", "fields.html",
    "fields/ScheduleBatch.html", "graph.html#focus=sglang.srt.managers.scheduler:Scheduler.run_batch",
    "functions.html", "functions/sglang.srt.managers.scheduler.html",
    "functions/sglang.srt.managers.scheduler.html#Scheduler.run_batch", "runs.html", "runs/h200-eagle3.html",
    "unknowns.html", "glossary.html",
]  # fmt: skip


@pytest.mark.parametrize("address", PAGES)
def test_nothing_is_cut_off_on_a_small_screen(visit, address):
    visit.page.set_viewport_size({"width": 360, "height": 740})
    page = visit.go(address)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("address", PAGES)
def test_no_serious_violation_of_accessibility(browser, report, axe, address):
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900}, bypass_csp=True)
        page = context.new_page()
        page.goto((report / "index.html").as_uri() + "#/" + address)
        page.wait_for_function(READY)
        page.evaluate(axe)
        found = page.evaluate(
            "axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] })"
        )
        serious = [
            (violation["id"], node["html"][:200], node.get("failureSummary", "")[:300])
            for violation in found["violations"]
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"][:3]
        ]
        context.close()
        assert serious == [], scheme


def test_print_leaves_out_what_paper_cannot_do(visit):
    page = visit.go("points/result-stride.html")
    page.emulate_media(media="print")
    expect(page.locator("nav")).to_be_hidden()
    expect(page.locator(".tools")).to_be_hidden()
    expect(page.locator(".code").first).to_be_visible()
    assert page.locator(".code").first.evaluate("e => getComputedStyle(e).overflow") == "visible"
    assert len(page.pdf()) > 10_000


def test_motion_is_only_for_who_wants_it(browser, report):
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto((report / "index.html").as_uri())
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    context.close()


def test_the_first_screen_can_be_read_without_scripts(browser, report):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((report / "index.html").as_uri())
    expect(page.locator(".answer").first).to_be_visible()
    context.close()


def test_the_first_screen_is_drawn_at_once(visit):
    """Not a time, which depends on the machine: nothing is unpacked for it, and little is loaded."""
    page = visit.page
    page.goto((visit.folder / "index.html").as_uri())
    loaded = page.eval_on_selector_all("script[src], link[rel=stylesheet]", "all => all.map(e => e.src || e.href)")
    assert [address.rsplit("/", 1)[1] for address in loaded] == ["report.css", "report.js"]
    expect(page.locator(".answer").first).to_be_visible()
    assert (visit.folder / "index.html").stat().st_size < 200_000


def test_an_address_that_no_page_has_is_said_to_be_one(visit):
    page = visit.go("points/gone.html")
    expect(page.get_by_role("heading", level=1)).to_have_text("There is no such page")


def test_a_report_whose_folder_is_incomplete_says_so(browser, report, tmp_path):
    shutil.copytree(report, tmp_path / "cut")
    for path in (tmp_path / "cut/data").iterdir():
        path.unlink()
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "cut/index.html").as_uri() + "#/points.html")
    expect(page.locator("main")).to_contain_text("folder is incomplete")
    context.close()
