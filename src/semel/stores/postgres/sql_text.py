"""Which statements a text holds, as far as that takes to tell those that would end a transaction."""

from __future__ import annotations

import re
from collections.abc import Iterator

# What is neither a word nor the end of a statement is passed over whole, whatever words it holds. A comment
# may hold others; `_outside` counts them.
_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<quoted>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$)
    |(?P<word>\w[\w$]*)
    |(?P<end>;)
    |(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_TEMPORARY = re.compile(r"\b(temp|temporary|pg_temp)\b")  # of SELECT … INTO
_COMMENT_MARK = re.compile(r"/\*|\*/")

_ENDING = frozenset(("ABORT", "BEGIN", "COMMIT", "END", "START"))

# Statements after which the connection is as it was: another has left something behind, perhaps.
_PLAIN = frozenset(
    ("COPY", "DELETE", "FETCH", "INSERT", "LOCK", "MERGE", "MOVE", "RELEASE", "ROLLBACK", "SAVEPOINT",
     "SELECT", "TABLE", "UPDATE", "VALUES", "WITH")
)  # fmt: skip


def statements(text: str) -> Iterator[list[str]]:
    """The first words of each statement, at most three, in capitals."""
    words: list[str] = []
    begins = True  # nothing but words so far
    for kind, token in _outside(f"{text};"):
        begins = begins and kind == "word" and len(words) < 3
        if begins:
            words.append(token.upper())
        elif kind == "end":
            if words:
                yield words
            words, begins = [], True


def _outside(text: str) -> Iterator[tuple[str, str]]:
    """What is left of a text without its comments."""
    at = 0
    while (token := _TOKEN.match(text, at)) is not None:
        kind, at = str(token.lastgroup), token.end()
        if kind == "comment":
            at = _end_of_comment(text, at)
        elif kind != "space":
            yield kind, token[0]


def _end_of_comment(text: str, at: int) -> int:
    depth = 1
    while depth and (mark := _COMMENT_MARK.search(text, at)) is not None:
        depth, at = depth + (1 if mark[0] == "/*" else -1), mark.end()
    return len(text) if depth else at


def ending(text: str) -> str:
    """The words that would end the transaction, or begin one; nothing, if there are none."""
    for words in statements(text):
        first, *rest = words
        if first == "ROLLBACK" and "TO" not in rest:
            return "ROLLBACK"
        if first in _ENDING:
            return first
        if words[:2] == ["PREPARE", "TRANSACTION"]:
            return "PREPARE TRANSACTION"
        # What would take the connection's settings from it, and with them the mark of this transaction.
        if first == "DISCARD" or words[:2] == ["RESET", "ALL"]:
            return " ".join(words[:2])
    return ""


def leaves_nothing(text: str) -> bool:
    """Whether the connection is as before, once the transaction is over."""
    lowered = text.lower()
    return (
        "set_config" not in lowered
        and "advisory" not in lowered
        and _TEMPORARY.search(lowered) is None
        and all(words[0] in _PLAIN for words in statements(text))
    )
