"""What an experiment found; the JSON of ``sgltrace whatif --json`` and of a kept experiment (``sgltrace.whatif/1``)."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sgltrace.errors import InputError

SCHEMA = "sgltrace.whatif/1"

CRASH_NOW = "crashes now"
CRASH_LATER = "crashes a step later"
WRONG = "silently wrong"
LEAKS = "leaks"
HANGS = "hangs"
ACCEPTANCE = "loses acceptance"
SLOWER = "slower"
RACE = "race"
NO_EFFECT = "no effect"
SHADOWED = "shadowed"
NOT_EXERCISED = "not exercised here"

SEVERITY = {
    CRASH_NOW: "hard", CRASH_LATER: "hard", WRONG: "hard", LEAKS: "hard", HANGS: "hard", RACE: "hard",
    ACCEPTANCE: "soft", SLOWER: "soft", NO_EFFECT: "none",
}  # fmt: skip
"""What an outcome would be as a severity; none for what an experiment does not tell."""

CONFIRMED = "confirmed by experiment"
NO_BLOCKER = "not a blocker here"
WORSE = "worse than said"
MILDER = "milder than said"


class StrikeAt(msgspec.Struct, kw_only=True):
    """What struck. ``cls`` is the exception's class, or ``wrong tokens``, ``hang``, ``lost acceptance`` ..."""

    cls: str = msgspec.field(name="class")
    message: str
    function: str | None
    """The id of the function of the release that was reached last, where the index knows it."""
    file: str | None
    line: int | None
    step: int | None
    when: str
    frames: list[str] = []
    point: str | None
    bridge: str | None
    """The bridge that was added for it."""


class Rung(msgspec.Struct, kw_only=True):
    """One rung of the ladder: with these bridges, this struck."""

    bridges: list[str]
    strike: StrikeAt | None


class BridgeLine(msgspec.Struct, kw_only=True):
    """A bridge, for the skeleton of a patch."""

    id: str
    kind: str
    says: str
    points: list[str]
    used: bool
    """Whether on and off steps do not mix without it."""
    listed: bool
    """Whether the contract has it."""


class Missing(msgspec.Struct, kw_only=True):
    """A row of the contract for which no bridge was built."""

    field: str
    why: str
    points: list[str] = []


class Tried(msgspec.Struct, kw_only=True):
    """What one bridge was for: the run with all others."""

    bridge: str
    outcome: str
    detail: str
    strike: StrikeAt | None = None


class PointVerdict(msgspec.Struct, kw_only=True):
    """What the experiment says of a point, by one bridge."""

    point: str
    bridge: str | None
    outcome: str
    detail: str
    said: str
    """The severity that the analysis gives."""
    standing: str = ""
    """``confirmed by experiment``, ``not a blocker here``, ``worse than said`` or ``milder than said``; of the point as
    a whole: its worst bridge decides."""


class PatternRun(msgspec.Struct, kw_only=True):
    """All bridges under one pattern of off steps."""

    pattern: str
    outcome: str
    detail: str
    steps: int
    off: int
    worst_gap: float | None
    """How far a token's logit was below the best on a plain server, at most; None where tokens were the same."""
    accept_on: float | None = None
    accept_after: float | None = None


class Miss(msgspec.Struct, kw_only=True):
    """What struck and no point explains, or what an off step needed and the contract does not list."""

    what: str
    bridge: str | None = None
    strike: StrikeAt | None = None


class Experiment(msgspec.Struct, kw_only=True):
    """An off step, forced."""

    schema: str = SCHEMA
    tool: str = ""
    release: str | None
    path: str
    design: str
    command: list[str]
    machine: str = ""
    pattern: str
    bridges: list[BridgeLine] = []
    not_built: list[Missing] = []
    rungs: list[Rung] = []
    ends_clean: bool = False
    """Whether on and off steps mix with all bridges."""
    tried: list[Tried] = []
    verdicts: list[PointVerdict] = []
    patterns: list[PatternRun] = []
    unexplained: list[Miss] = []
    speed: dict[str, float | None] = {}
    """Median step in ms at the batch size seen most: ``on``, ``off``, ``plain``."""
    acceptance: dict[str, float | None] = {}
    """Tokens a step: ``on`` without off steps, ``after`` off steps with all bridges."""
    noise: float = 0.0
    """The worst gap of tokens of steps with speculation alone."""
    notes: list[str] = []


def read(path: Path) -> Experiment:
    """A kept experiment. Raises InputError."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Experiment)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; name a file that `sgltrace whatif -o` wrote") from error
    except msgspec.MsgspecError as error:
        raise InputError(f"{path} is no experiment of sgltrace whatif ({error})") from error
    if found.schema != SCHEMA:
        raise InputError(f"{path} has the schema {found.schema}, and this sgltrace reads {SCHEMA}")
    return found


def encode(found: Experiment) -> bytes:
    """The bytes of a kept experiment."""
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"
