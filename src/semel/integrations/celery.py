"""Celery: tool contracts in tasks, with keys that follow from the task's id.

    from semel.integrations.celery import task_class

    app = Celery("shop", task_cls=task_class(ledger))

    conversation   the task's id, which redelivery and `retry` keep
    step           the task's name

All tasks of such an app are acknowledged when they have ended (`acks_late`) and come back when their process
was lost (`reject_on_worker_lost`): without these two a task that died is gone, and nobody finishes its calls.
A task that switches one off is refused.

What is retriable is handed to Celery's own `retry`, with the task's `max_retries`. A task that waits for a
person's approval is sent again without that counting as a try.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from celery import Celery, Task
from celery.exceptions import Reject, Retry

from semel.errors import ContractError, SemelError
from semel.integrations.engines import EngineStep
from semel.ledger.ledger import Ledger

# How long a task that waits for a person rests between two looks: it takes a message each time.
_LOOK_AGAIN_S = 10.0


def task_class(
    ledger: Ledger,
    *,
    scopes: Iterable[str] = (),
    principal: str | None = None,
    look_again_s: float = _LOOK_AGAIN_S,
) -> type[Task]:
    """A class for `Celery(…, task_cls=…)`, or for the `base=` of single tasks.

    `scopes` are what its tasks grant to the tools that they call; the principal is the task's name unless
    given.
    """
    granted = frozenset((scopes,) if isinstance(scopes, str) else scopes)

    class GuardedTask(_GuardedTask):
        abstract = True

        def step(self) -> EngineStep:
            name = str(self.name)
            who = name if principal is None else principal
            return EngineStep(ledger, f"celery:{self.request.id}", (name,), granted, who)

    GuardedTask.look_again_s = look_again_s
    return GuardedTask


class _GuardedTask(Task):  # type: ignore[misc]
    abstract = True
    acks_late = True
    reject_on_worker_lost = True
    dont_autoretry_for = (SemelError,)  # this class knows better which of them another try can help
    look_again_s: float

    @classmethod
    def on_bound(cls, app: Celery) -> None:
        super().on_bound(app)
        if not (cls.acks_late and cls.reject_on_worker_lost):
            raise ContractError(
                f"The task {cls.name!r} would be lost with its worker in the middle of a call, and nobody "
                "would finish that; it was not registered.",
                corrective_action="Leave acks_late and reject_on_worker_lost on, or give it another base=….",
            )

    @abstractmethod
    def step(self) -> EngineStep:
        """That of the task which runs."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.request.id is None:  # called as a plain function, in whatever step the caller is in
            return super().__call__(*args, **kwargs)
        step = self.step()
        try:
            with step:
                return self.run(*args, **kwargs)
        except Retry:
            raise  # by the task itself
        except Exception as error:
            if not step.unfinished or step.is_parked:
                raise
            if not step.waits_for_person:
                raise self.retry(exc=error, countdown=getattr(error, "retry_after_s", None)) from error
            raise self._sent_again(error) from error

    def _sent_again(self, error: Exception) -> Exception:
        """As `retry` does it, but not counted: who waits for a person has not failed."""
        request = self.request
        if request.is_eager:
            return error  # Celery would run it again at once, and for ever
        again = self.signature_from_request(request, countdown=self.look_again_s, retries=request.retries)
        try:
            again.apply_async()
        except Exception as away:
            raise Reject(away, requeue=True) from error
        return Retry(exc=error, when=self.look_again_s, sig=again)
