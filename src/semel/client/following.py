"""A run is followed to its end: looked at, less and less often, never by all callers at once."""

from __future__ import annotations

from dataclasses import dataclass

from semel.client.models import RunAnswer
from semel.client.problem import Problem, StillRunning
from semel.client.retrying import ClientRequest, Deciding, Patience, PauseFor
from semel.kernel.durations import words

# A quick run is seen at its end within a tenth of a second; one of minutes costs a look every two seconds.
LOOK_S, LOOK_S_MAX, SLOWER = 0.05, 2.0, 1.5


@dataclass(frozen=True, slots=True)
class Following:
    """Until the run has ended, or so many seconds have passed."""

    run_id: str
    look: ClientRequest[RunAnswer]
    within_s: float | None  # None: as everything else

    def decide(self, patience: Patience) -> Deciding[RunAnswer]:
        clock, within_s = patience.clock, patience.within_s if self.within_s is None else self.within_s
        give_up, pause_s = clock.monotonic() + within_s, LOOK_S
        run: RunAnswer | None = None
        while True:
            try:
                run = yield from self.look.decide(patience._replace(within_s=give_up - clock.monotonic()))
            except Problem as unseen:
                if run is None or not unseen.retriable:
                    raise
                raise self._still(run, within_s) from unseen
            if run.ended_at is not None:
                return run
            # From half to the whole: callers that began together drift apart.
            left_s = max(0.0, give_up - clock.monotonic())
            yield PauseFor(min(left_s, pause_s * (0.5 + 0.5 * clock.random())))
            pause_s = min(LOOK_S_MAX, pause_s * SLOWER)
            if clock.monotonic() >= give_up:
                raise self._still(run, within_s)

    def _still(self, run: RunAnswer, within_s: float) -> StillRunning:
        error = StillRunning(
            f"{self.run_id} is {run.status} after {words(round(within_s * 1_000_000))}; it goes on.",
            corrective_action="Wait again: waiting changes nothing.",
        )
        error.run = run
        return error
