"""What an engineer asks first, and the kinds of coupling points that answer it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from urllib.parse import quote

from markupsafe import Markup

from sgltrace.reports.context import Context
from sgltrace.reports.links import page_link
from sgltrace.reports.severities import worst

QUESTIONS = (
    ("What must an off step return, in which shape?", ("result_format",)),
    ("Which KV slot does its token get, and who frees it?", ("kv_alloc", "kv_bookkeeping")),
    ("Which CUDA graphs would have to be captured in addition?", ("cuda_graph",)),
    ("What does the draft lose over off steps?", ("draft_state", "draft_kv", "hidden_capture")),
    ("What do lengths and the next input token mean?", ("seq_lens_semantics", "input_ids")),
    (
        "What does a plain step prepare and keep up that an off step does not?",
        ("step_preparation", "step_state", "request_state"),
    ),
    ("How do requests come and go, and batches mix?", ("batch_filter_merge", "prefix_cache", "disaggregation")),
    ("What does overlap scheduling add?", ("future_map", "stream_order", "scheduler_flags")),
    ("What do attention and models take for granted?", ("attn_metadata", "forward_mode", "mamba_state")),
    ("What must ranks agree on?", ("dp_attention", "tp_agreement", "comm", "tbo")),
    (
        "What is fixed when the process starts?",
        ("worker_dispatch", "config_gate", "mem_pool_sizing", "control_surface"),
    ),
    ("Which features of a request depend on it?", ("sampling", "grammar", "logprob", "metrics", "scheduler_policy")),
)
REST = "What else?"


@dataclass(frozen=True)
class Question:
    """A question with a link to the points that answer it, and how many these are by their worst severity."""

    text: str
    url: Markup
    hard: int
    soft: int
    none: int


def questions(context: Context) -> list[Question]:
    """The questions that some point answers; every point answers one."""
    points = context.index.coupling_points
    asked = {kind for _, kinds in QUESTIONS for kind in kinds}
    rest = tuple(sorted({point.kind for point in points} - asked))
    found = []
    for text, kinds in (*QUESTIONS, (REST, rest)):
        count = Counter(worst(point) for point in points if point.kind in kinds)
        if count:
            state = f"kind={quote('|'.join(kinds))}&why=1"
            url = Markup(f"{page_link('points.html')}#") + state
            found.append(Question(text, url, count["hard"], count["soft"], count["none"]))
    return found
