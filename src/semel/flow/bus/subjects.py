"""Messages as subjects of NATS: `<stream>.<tenant>.<type>.<topic>`, where a type is two words.

What would split a word or select many (`.`, `*`, `>`, blanks) is written as `%2E` and the like, so that no
name of a tenant or topic can reach another's subject.
"""

from __future__ import annotations

from urllib.parse import quote

import orjson

from semel.questions.job import Message, message_of

# Names begin with a letter or digit, so none is taken for this.
_NO_TOPIC = "_"


def word(name: str) -> str:
    """A name as one word of a subject; different names give different words."""
    return quote(name, safe=":").replace(".", "%2E")


def subject_of(prefix: str, message: Message) -> str:
    topic = _NO_TOPIC if message.topic is None else word(message.topic)
    return f"{prefix}.{word(message.tenant)}.{message.type}.{topic}"


def all_subjects(prefix: str) -> str:
    return f"{prefix}.>"


def subjects_about(prefix: str, about: str) -> str:
    """The subjects of one type, of types that begin so, or of all messages."""
    return f"{prefix}.*.{about}.>" if about else all_subjects(prefix)


def message_in(prefix: str, subject: str, data: bytes) -> Message | None:
    """The message, if these bytes are one and stand under their own subject; anybody may publish there."""
    try:
        message = message_of(data)
        fits = subject_of(prefix, message) == subject
        whole = isinstance(message.id, str) and isinstance(message.at_us, int)
    except (orjson.JSONDecodeError, TypeError, AttributeError):
        return None
    return message if fits and whole else None
