"""An error in words for a model: what happened, whether to call again, what to tell the person.

No command, path or key of ours is in it: a model would repeat them to someone who cannot use them. What a
tool says about its own failure stays, without secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from semel.errors import BY_CODE

if TYPE_CHECKING:
    from semel.contract.result import ToolError

_DO_NOT = "Do not call it again."


class _Words(NamedTuple):
    happened: str
    again: str
    person: str


_WORDS: Mapping[str, _Words] = {
    "NO_STEP": _Words(
        "The tool was not set up to be called here; it did not run.",
        _DO_NOT,
        "Tell the person that the program has to be corrected by whoever runs it.",
    ),
    "INVALID_ARGUMENTS": _Words(
        "The arguments do not fit; the tool did not run.", "Correct the arguments and call it again.", ""
    ),
    "SCOPE_DENIED": _Words(
        "This conversation is not allowed to use the tool; it did not run.",
        _DO_NOT,
        "Tell the person that a permission is missing.",
    ),
    "VERSION_MISMATCH": _Words(
        "The tool has changed since this action was begun; it did not run.",
        _DO_NOT,
        "Tell the person that the action could not be continued.",
    ),
    "RETRY_IN_FLIGHT": _Words(
        "This very action is being performed already; it was not started a second time.",
        "Call it again later with the same arguments: the answer will be that of the first call.",
        "Until then tell the person that it is in progress.",
    ),
    "KEY_REUSED": _Words(
        "The key of this action was used for another one; the tool did not run.",
        _DO_NOT,
        "Tell the person that the action was not performed.",
    ),
    "STORE_UNAVAILABLE": _Words(
        "The action could not be recorded, so the tool did not run.",
        "Call it again later with the same arguments.",
        "If it stays so, tell the person that nothing was done.",
    ),
    "STORE_CORRUPT": _Words(
        "What is recorded of this action is damaged, so the tool did not run.",
        _DO_NOT,
        "Tell the person that whoever runs this service has to look into it.",
    ),
    "TOO_LARGE": _Words(
        "The arguments are too large; the tool did not run.",
        "Call it with less, or with a reference in place of the content.",
        "",
    ),
    "UPSTREAM_TIMEOUT": _Words(
        "The service behind the tool did not answer; whether it acted is not known yet.",
        "Call it again with exactly the same arguments: it goes on with the same action, not a second one.",
        "Do not tell the person that it failed.",
    ),
    "EFFECT_FAILED": _Words(
        "The tool ran and failed.",
        "The same call again gets the same answer.",
        "Tell the person what went wrong.",
    ),
    "PARTIAL_SUCCESS": _Words(
        "The tool did a part of its work.",
        "Do not repeat the call: it would do that part twice.",
        "Tell the person what was done and what remains.",
    ),
    "OUTCOME_UNKNOWN": _Words(
        "The action may or may not have taken effect, and it is not known which; it was not started again.",
        "Do not call it again, and do not try it in another way.",
        "Tell the person that somebody has to find out whether it happened.",
    ),
    "OWNERSHIP_LOST": _Words(
        "This call took so long that another one went on in its place.",
        "Call it again with the same arguments to read what was recorded.",
        "Do not tell the person that it failed.",
    ),
    "RESULT_UNAVAILABLE": _Words(
        "The action has taken effect, but its result was not kept.",
        "Do not call it again for the result.",
        "Tell the person that it was done.",
    ),
    "APPROVAL_REQUIRED": _Words(
        "A person has to approve this action first; it was not performed.",
        "Call it again with the same arguments once it is approved.",
        "Tell the person that it waits for approval.",
    ),
    "APPROVAL_REJECTED": _Words(
        "A person said no to this action; it was not performed and will not be.",
        _DO_NOT,
        "Tell the person that it was rejected.",
    ),
}

# Their message says what nobody else can: which argument, which failure.
_OWN_MESSAGE = ("INVALID_ARGUMENTS", "EFFECT_FAILED", "APPROVAL_REJECTED")


def for_model(error: ToolError) -> str:
    """One line that begins with the error's code."""
    words = _WORDS.get(error.code) or _of_the_tool(error)
    sentences = [words.happened, *_own_text(error), words.again, _when(error), words.person]
    return f"{error.code}: {' '.join(sentence for sentence in sentences if sentence)}"


def _of_the_tool(error: ToolError) -> _Words:
    """For a code that the tool's author made up."""
    again = "It may be called again." if error.retriable else "The same call again gets the same answer."
    return _Words(_sentence(error.message) or "The tool could not do it.", again, "")


def _own_text(error: ToolError) -> list[str]:
    """What the tool or its author says about this very call."""
    texts = [_sentence(error.message)] if error.code in _OWN_MESSAGE and not _is_ours(error) else []
    if error.code == "PARTIAL_SUCCESS":
        texts += [f"{name.capitalize()}: {_plain(error.details[name])}." for name in ("done", "remaining")
                  if name in error.details]  # fmt: skip
    kind = BY_CODE.get(error.code)
    if error.code == "PARTIAL_SUCCESS" and kind is not None and error.corrective_action != kind.fix:
        texts.append(_sentence(error.corrective_action))
    return texts


def _is_ours(error: ToolError) -> bool:
    """Whether the message is the one that every error of this code has."""
    return error.message == BY_CODE[error.code]().message


def _when(error: ToolError) -> str:
    if not error.retriable or not error.retry_after_s:
        return ""
    return f"Wait {max(1, round(error.retry_after_s))} s first."


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if not text or text[-1] in ".!?…" else f"{text}."


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
