"""The few words of this report that SGLang does not use itself, each defined once."""

from __future__ import annotations

from sgltrace.reports.severities import DESIGN_TEXT


def glossary() -> list[tuple[str, str, str]]:
    """Each word: its anchor, as it is written, and what it means."""
    return [
        (_anchor(word), word, text) for word, text in sorted([*TERMS, *_designs()], key=lambda pair: pair[0].lower())
    ]


def _anchor(word: str) -> str:
    return word.lower().replace("(", "").replace(")", "").replace(" ", "-")


def _designs() -> list[tuple[str, str]]:
    return [(f"design {name}", f"{text[0].upper()}{text[1:]}.") for name, text in DESIGN_TEXT.items()]


TERMS = [
    ("on step", "A decode step with speculative decoding: the draft model proposes tokens, the target model verifies."),
    ("off step", "A decode step that a server with speculative decoding runs without it: one token for each request."),
    ("path", "The way a decode step takes through the speculative workers: v1 or v2."),
    ("v1", "The path through `EAGLEWorker`, without overlap scheduling."),
    (
        "v2",
        "The path through `EAGLEWorkerV2`, with overlap scheduling: a step is launched before the last one's result "
        "is read.",
    ),
    ("design", "Where an off step would be taken: A in the scheduler, B and C in the speculative worker."),
    (
        "coupling point",
        "A place where something that speculative decoding fixes (a value, a flag, a shape, a forward mode, a draft's "
        "state) is relied on by code that a plain decode step needs otherwise.",
    ),
    ("hard", "An off step crashes, corrupts data, hangs, or leaves the next on step without valid state."),
    ("soft", "An off step works, but is slower, or a secondary feature gives something wrong."),
    ("none", "It looks coupled, and does not block an off step."),
    (
        "fixed at",
        "When a value is bound: at process start, at graph capture, when a request is admitted, or in every step.",
    ),
    ("contract", "What an off step must leave behind: each field that is read after a step, with its shape and dtype."),
    (
        "relay",
        "What carries a step's results to the next launch under overlap scheduling, before the CPU has seen them "
        "(`FutureMap`).",
    ),
    (
        "bonus token",
        "The token that the target model adds after the last draft token it accepts: every verify gives one.",
    ),
    ("accept length", "The tokens that a request keeps of one verify, the bonus token included."),
    (
        "draft-extend",
        "The draft model's pass over the tokens just accepted, which fills its KV cache for the next draft.",
    ),
    ("some()", "In a shape: a length that depends on values of the step, of which only the meaning is known."),
    ("gate", "A condition under which a release refuses its own off step."),
    (
        "shape agrees",
        "Every shape that a run recorded is what the formula says. It shows that the formula holds, not that "
        "the point blocks.",
    ),
    ("shape differs", "A run recorded a shape that the formula does not give."),
    ("not exercised", "No run recorded a tensor at an end of the point."),
    ("overlap", "Overlap scheduling: the scheduler prepares the next step while the GPU runs this one."),
]
