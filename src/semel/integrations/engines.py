"""What the integrations of engines share: a step that knows which of its calls did not come to their end.

An engine writes down how its step ended, and does not run it again. So a call that is retriable, in doubt, or
waits for a person must not look like an end to it, whatever exception it left the step with.
"""

from __future__ import annotations

from semel.agents import Turn
from semel.errors import OutcomeUnknown


class EngineStep(Turn):
    """One step of an engine's workflow: the conversation is the workflow, the name is its author's."""

    @property
    def is_parked(self) -> bool:
        """Whether nothing helps until a person has said what happened."""
        return any(call.code == OutcomeUnknown.code for call in self.unfinished)

    @property
    def waits_for_person(self) -> bool:
        """Whether nothing helps until a person has decided, or said what happened."""
        return self.is_parked or any(call.job_id for call in self.unfinished)

    def is_undecided(self) -> bool:
        """Whether a person is still to decide about a call."""
        jobs = [call.job_id for call in self.unfinished if call.job_id]
        return any(self.ledger.approvals.get(job).status == "waiting" for job in jobs)
