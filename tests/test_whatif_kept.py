"""The experiment that was recorded on an H200: what it says, and where it is shown."""

import json
from pathlib import Path

import pytest
from sample_index import sample_index
from typer.testing import CliRunner

from sgltrace.cli import _app
from sgltrace.errors import InputError
from sgltrace.reports.context import Context
from sgltrace.reports.exports import export
from sgltrace.reports.options import ReportOptions
from sgltrace.reports.views.experiments import experiments, forced
from sgltrace.whatif import model as m

KEPT = Path(__file__).parents[1] / "fixtures" / "whatif" / "eagle3_v2_b_0.5.12.post1.json"


@pytest.fixture(scope="module")
def kept() -> m.Experiment:
    return m.read(KEPT)


def test_on_and_off_steps_mixed_on_the_gpu(kept: m.Experiment):
    assert kept.ends_clean
    assert kept.rungs[-1].strike is None
    assert kept.noise < 0.2
    assert all(run.outcome == "clean" and (run.worst_gap or 0) < 0.2 for run in kept.patterns)
    assert not kept.unexplained


def test_every_bridge_was_taken_away(kept: m.Experiment):
    seen = {t.bridge.partition(":")[2] or t.bridge: t.outcome for t in kept.tried}
    assert seen["seq_lens"] == "silently wrong"
    assert seen["next_token_ids"] == "leaks"
    assert seen["seq_lens_sum"] == "crashes now"
    assert seen["seq_lens_cpu"] == "no effect"
    assert seen["spec_info"] == "crashes now"
    assert len(seen) == len(kept.bridges) == 18


def test_a_strike_names_a_place_of_the_release(kept: m.Experiment):
    struck = [rung.strike for rung in kept.rungs if rung.strike]
    assert all(s.function and s.line and s.file and s.file.startswith("sglang/") for s in struck)


def test_the_page_and_the_points_show_it(kept: m.Experiment):
    index = sample_index(modules=2, functions=4)
    point = index.coupling_points[0]
    row = m.PointVerdict(
        point=point.id,
        bridge="newest:input_ids",
        outcome=m.WRONG,
        detail="3 of 9 tokens",
        said="soft",
        standing=m.WORSE,
    )
    miss = m.Miss(what="nothing names it", strike=kept.rungs[0].strike)
    kept = m.Experiment(**{f: getattr(kept, f) for f in m.Experiment.__struct_fields__})
    kept.verdicts, kept.unexplained = [row], [miss]
    context = Context(index, None, ReportOptions(experiments=[kept]))
    (view,) = experiments(context)
    assert view.points[0].title == point.title
    assert view.standings == {"worse than said": 1}
    assert view.misses[0][0].what == "nothing names it"
    assert view.rungs[-1].strike is None
    (shown,) = forced(context, point.id)
    assert (shown.standing, shown.rows[0].outcome) == ("worse than said", "silently wrong")
    results = json.loads(export("sarif", index, [], [kept]))["runs"][0]["results"]
    told = next(r for r in results if r["partialFingerprints"]["couplingPoint/v1"] == point.id)
    assert told["properties"]["experiments"][0]["outcomes"][0]["outcome"] == "silently wrong"


def test_what_is_no_experiment_is_refused(tmp_path: Path):
    wrong = tmp_path / "x.json"
    for text in ("{", '{"schema": "sgltrace.whatif/9", "release": null}', "[]"):
        wrong.write_text(text)
        with pytest.raises(InputError):
            m.read(wrong)
    with pytest.raises(InputError, match="No such file"):
        m.read(tmp_path / "none.json")


def test_the_command_says_what_it_takes():
    told = CliRunner().invoke(_app(), ["whatif", "--help"])
    assert told.exit_code == 0
    assert "--throw-away" in told.output
