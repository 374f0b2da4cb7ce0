"""What a run's figures and verdicts hold for: release, GPU, model and weights."""

from __future__ import annotations

from collections import Counter

from sgltrace import runtime

NOT_RECORDED = "not recorded"
DUMMY = "dummy"


def about(trace: runtime.Trace) -> dict[str, str]:
    """Release, GPU, model and weights of a run."""
    run, config = trace.run, trace.config()
    return {
        "release": (run.version if run is not None else trace.plan.version) or NOT_RECORDED,
        "GPU": _gpu(trace) or NOT_RECORDED,
        "model": str(config.get("model_path") or NOT_RECORDED),
        "weights": _weights(trace) or NOT_RECORDED,
    }


def weights_note(trace: runtime.Trace) -> list[str]:
    """What random weights do to acceptance, where the run had them."""
    if _load_format(trace) != DUMMY:
        return []
    return [
        "The weights are random (load format dummy): shapes and bookkeeping do not depend on that; how many drafts are "
        "accepted does, and says nothing of trained weights."
    ]


def _weights(trace: runtime.Trace) -> str | None:
    load_format = _load_format(trace)
    return "random (load format dummy)" if load_format == DUMMY else load_format and f"load format {load_format}"


def _load_format(trace: runtime.Trace) -> str | None:
    """As the server had it, or as its command line says in traces that do not hold it."""
    told = trace.config().get("load_format")
    if isinstance(told, str):
        return told
    words = trace.run.command if trace.run is not None else []
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == "--load-format":
            return value or next(iter(words[at + 1 : at + 2]), None)
    return None


def _gpu(trace: runtime.Trace) -> str | None:
    """The GPUs of the machine, each name once with how many there are."""
    counts = Counter(trace.run.gpus if trace.run is not None else ())
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in sorted(counts.items())) or None
