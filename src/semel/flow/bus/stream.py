"""The stream as it should be: made if missing, changed if it differs, refused if it cannot be changed."""

from __future__ import annotations

import logging
from typing import Any

from nats.js import JetStreamContext
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig, StreamInfo
from nats.js.errors import BadRequestError, NotFoundError

from semel.errors import OpenError
from semel.flow.bus.settings import NatsSettings
from semel.flow.bus.subjects import all_subjects

log = logging.getLogger("semel.flow.bus")

# Longer than a weekend: a consumer that was down since Friday evening catches up on Monday.
_KEPT_S = 7 * 86_400.0

# About half a gigabyte of messages; the oldest go first, and whoever needs them finds the facts in the store.
_MESSAGES_MAX = 1_000_000

# What JetStream never changes of a stream that exists.
_FIXED = ("storage", "retention")


def config_of(settings: NatsSettings) -> dict[str, Any]:
    return {
        "subjects": [all_subjects(settings.stream)],
        "retention": RetentionPolicy.LIMITS,
        "storage": StorageType.FILE,
        "discard": DiscardPolicy.OLD,
        "max_age": max(_KEPT_S, settings.duplicates_s),
        "max_msgs": _MESSAGES_MAX,
        "duplicate_window": settings.duplicates_s,
        "num_replicas": settings.replicas,
    }


async def agree(stream: JetStreamContext, settings: NatsSettings) -> None:
    """The stream is as the settings say; OpenError, with what stands against it, if it cannot be."""
    config = config_of(settings)
    try:
        present = await _present(stream, settings.stream)
        if present is None:
            await stream.add_stream(StreamConfig(name=settings.stream, **config))
            log.info("stream %s was made", settings.stream)
            return
        differing = [name for name, value in config.items() if getattr(present.config, name) != value]
        _refuse_fixed(settings, differing)
        if differing:
            await stream.update_stream(present.config.evolve(**config))
            log.warning("stream %s was changed: %s", settings.stream, _changes(present, config, differing))
    except BadRequestError as refused:
        raise OpenError(
            f"{settings.shown} refuses the stream {settings.stream}: {refused.description}.",
            corrective_action="Name another stream with ?stream=NAME, or set the old one right.",
        ) from None


async def _present(stream: JetStreamContext, name: str) -> StreamInfo | None:
    try:
        return await stream.stream_info(name)
    except NotFoundError:
        return None


def _refuse_fixed(settings: NatsSettings, differing: list[str]) -> None:
    fixed = [name for name in differing if name in _FIXED]
    if fixed:
        raise OpenError(
            f"The stream {settings.stream} at {settings.shown} has another {' and '.join(fixed)}, which"
            " cannot be changed.",
            corrective_action="Name another stream with ?stream=NAME, or remove that one.",
        )


def _changes(present: StreamInfo, config: dict[str, Any], differing: list[str]) -> str:
    changes = (f"{name} from {getattr(present.config, name)} to {config[name]}" for name in differing)
    return ", ".join(changes)
