"""The ladder of rungs, each with the bridge more that the last strike asks for; and ablation, all bridges but one."""

from __future__ import annotations

from collections.abc import Sequence

from sgltrace.whatif import model as m
from sgltrace.whatif.bridges import Bridge
from sgltrace.whatif.judge import same, verdict_of
from sgltrace.whatif.lab import Case, Lab
from sgltrace.whatif.rung import Strike

LITTLE = 1.1
"""With fewer tokens a step the draft is of no use, and nothing can be lost."""
PATTERNS = ("alternate", "off after 10", "off 10 then on", "random 50", "batch >= 4")


class Ladder:
    """Climbs as far as what is known goes, and says what has to be run to go on."""

    def __init__(self, lab: Lab) -> None:
        self.lab, self.pattern = lab, lab.options.pattern
        self.rungs: list[m.Rung] = []
        self.held: list[Bridge] = []
        self.added: list[tuple[str, int]] = []
        """Bridges in the order in which they were added, with the rung that asked for each."""
        self.misses: list[m.Miss] = []
        self.over = self.clean = False
        self._before: Strike | None = None

    def case(self, held: Sequence[Bridge]) -> Case:
        """The run with these bridges."""
        return tuple(sorted(x.id for x in held)), self.pattern

    def climb(self) -> None:
        """Add bridges until nothing strikes, none is left that could help, or a run is missing."""
        lab = self.lab
        while not self.over and lab.known(self.case(self.held)):
            strike = lab.strike(self.case(self.held))
            ids = [x.id for x in self.held]
            if self._before is not None and same(self._before, strike):
                last = self.rungs[-1].strike
                assert last is not None
                last.point = None  # the bridge that was added was not what it asked for
            if strike is None:
                self.rungs.append(m.Rung(bridges=ids, strike=None))
                lab.say(f"rung {len(self.rungs) - 1}: {len(ids)} bridges, on and off steps mix")
                self.over = self.clean = True
                return
            rest = [x for x in lab.program.bridges if x not in self.held]
            chosen = self._climbed(rest) or lab.places.blame(strike, rest)
            point = lab.places.point(strike, chosen) if chosen is not None else None
            shown = lab.places.strike(strike, point, chosen.id if chosen else None)
            said = strike.message.strip().splitlines()[0][:100] if strike.message.strip() else ""
            lab.say(f"rung {len(self.rungs)}: {strike.exception} {strike.when}: {said}")
            self.rungs.append(m.Rung(bridges=ids, strike=shown))
            if chosen is None:
                self.misses.append(m.Miss(what="no bridge is left that could help", strike=shown))
                self.over = True
                return
            self._before = strike
            self.added.append((chosen.id, len(self.rungs) - 1))
            self.held = [x for x in lab.program.bridges if x in self.held or x is chosen]

    def _climbed(self, rest: Sequence[Bridge]) -> Bridge | None:
        """The bridge that an earlier sitting added here, whatever points say by now: no rung is climbed twice."""
        found = [x for x in rest if self.case([*self.held, x]) in self.lab.earlier]
        return found[0] if len(found) == 1 else None

    def next(self) -> list[Case]:
        """What to run now: the rung that is missing, and those that come next if each strike asks for what its function
        reads next, else for the next of a step."""
        if self.over:
            return []
        lab, held, out = self.lab, list(self.held), [self.case(self.held)]
        rest = [x for x in lab.program.bridges if x not in held and x.wanted]
        if self._before is not None:
            rest.sort(key=lambda x: lab.places.distance(self._before, x))
        for bridge in rest:
            held = [x for x in lab.program.bridges if x in held or x is bridge]
            out.append(self.case(held))
        return out


class Ablation:
    """All bridges that the contract asks for, and all but one."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.all = [x for x in lab.program.bridges if x.wanted]

    def case(self, without: Bridge | None = None, pattern: str | None = None) -> Case:
        """The run without a bridge."""
        return tuple(sorted(x.id for x in self.all if x is not without)), pattern or self.lab.options.pattern

    def cases(self) -> list[Case]:
        """Everything to run: with all bridges first, then without what would be missed in silence; what crashes without
        shows on the ladder, too."""
        options = self.lab.options
        out = [self.case()]
        if options.ablate:
            out += [self.case(x) for x in reversed(self.all)]
        return out + [self.case(pattern=pattern) for pattern in options.patterns]

    def tried(self, ladder: Ladder) -> list[m.Tried]:
        """What each bridge was for."""
        lab, out = self.lab, list[m.Tried]()
        for bridge in self.all if lab.options.ablate else ():
            case = self.case(bridge)
            if not lab.known(case):
                detail = "the time was over before it was taken away"
                out.append(m.Tried(bridge=bridge.id, outcome=m.NOT_EXERCISED, detail=detail))
                continue
            strike = lab.strike(case)
            what, detail = verdict_of(strike)
            if strike is None:
                what, detail = self._covered(bridge, ladder) or self._blind(bridge) or (what, detail)
            point = lab.places.point(strike, bridge) if strike is not None else None
            shown = None if strike is None else lab.places.strike(strike, point, None)
            out.append(m.Tried(bridge=bridge.id, outcome=what, detail=detail, strike=shown))
        return out

    def _covered(self, bridge: Bridge, ladder: Ladder) -> tuple[str, str] | None:
        """A bridge without effect, though the ladder asked for it, where the draft's own writer sets what it sets."""
        cover = next((x for x in self.all if x.kind == "extend"), None)
        asked = dict(ladder.added).get(bridge.id)
        if cover is None or asked is None or bridge.kind != "state carried":
            return None
        after = ladder.rungs[asked + 1].strike if asked + 1 < len(ladder.rungs) else None
        strike = ladder.rungs[asked].strike
        if strike is None or (after is not None and (after.cls, after.line) == (strike.cls, strike.line)):
            return None
        said = strike.message.splitlines()[0] if strike.message else ""
        return m.SHADOWED, f"by {cover.id}; without either, rung {asked}: {strike.cls} {strike.when}: {said}"

    def _blind(self, bridge: Bridge) -> tuple[str, str] | None:
        """Why a run without a bridge could not show what it is for."""
        if bridge.kind == "event":
            return (
                m.NOT_EXERCISED,
                "nothing struck, but the writes that it guards were not delayed: a race shows by chance",
            )
        accepted = self.lab.accepted
        if bridge.kind in ("extend", "state carried") and accepted is not None and accepted < LITTLE:
            detail = f"on steps accept {accepted:.2f} tokens with this draft: there is no acceptance to lose"
            return m.NOT_EXERCISED, detail
        return None

    def patterns(self) -> list[m.PatternRun]:
        """All bridges under every pattern."""
        lab, out = self.lab, list[m.PatternRun]()
        for pattern in (lab.options.pattern, *lab.options.patterns):
            case = self.case(pattern=pattern)
            if not lab.known(case):
                continue
            strike, outcome = lab.strike(case), lab.outcomes[case]
            what, detail = ("clean", "nothing struck") if strike is None else verdict_of(strike)
            if outcome.offs == 0 and strike is None:
                what, detail = m.NOT_EXERCISED, "no step of this load was off"
            out.append(
                m.PatternRun(
                    pattern=pattern, outcome=what, detail=detail, steps=outcome.steps, off=outcome.offs,
                    worst_gap=outcome.worst_gap or None, accept_on=outcome.accept.get("on"),
                    accept_after=outcome.accept.get("after"),
                )
            )  # fmt: skip
        return out
