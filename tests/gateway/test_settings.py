"""Flags, then the environment, then defaults."""

from __future__ import annotations

import pytest

from semel.gateway.settings import GatewaySettings, read


def test_nothing_said_is_the_default() -> None:
    assert read({}, {}) == GatewaySettings()
    assert (GatewaySettings().host, GatewaySettings().port, GatewaySettings().admission) == (
        "127.0.0.1",
        8765,
        "atomic",
    )
    assert (GatewaySettings().lock_wait_us, GatewaySettings().lock_ttl_us) == (2_000_000, 10_000_000)
    assert GatewaySettings().run_key_window_us == 90 * 86_400_000_000


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("url", "memory://", "url", "memory://"),
        ("bus", "nats://127.0.0.1:4222", "bus", "nats://127.0.0.1:4222"),
        ("host", "0.0.0.0", "host", "0.0.0.0"),
        ("port", "0", "port", 0),
        ("admission", "lock", "admission", "lock"),
        ("lock_retry", "fixed", "lock_retry", "fixed"),
        ("lock_wait", "500ms", "lock_wait_us", 500_000),
        ("lock_ttl", "1m", "lock_ttl_us", 60_000_000),
        ("run_key_window", "forever", "run_key_window_us", None),
        ("run_key_window", "7d", "run_key_window_us", 7 * 86_400_000_000),
        ("dev", "true", "dev", True),
        ("dev", "0", "dev", False),
        ("log", "problems", "log", "problems"),
        ("tenant_rate", "0", "tenant_rate_per_s", 0.0),
        ("tenant_bytes", "512MiB", "tenant_bytes", 512 << 20),
        ("tenant_bytes", "1000", "tenant_bytes", 1_000),
        ("tenant_bytes", "0", "tenant_bytes", None),
    ],
)
def test_each_setting_is_read_from_flag_and_environment(
    name: str, text: str, field: str, value: object
) -> None:
    assert getattr(read({name: text}, {}), field) == value
    assert getattr(read({}, {f"SEMEL_{name.upper()}": text}), field) == value


def test_a_flag_outdoes_the_environment() -> None:
    assert read({"port": "1"}, {"SEMEL_PORT": "2"}).port == 1
    assert read({"port": None}, {"SEMEL_PORT": "2"}).port == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bus", "redis://x"),
        ("port", "many"),
        ("port", "65536"),
        ("port", "-1"),
        ("admission", "luck"),
        ("lock_retry", "soon"),
        ("tenant_bytes", "1GB"),
        ("tenant_bytes", "much"),
        ("lock_wait", "2"),
        ("lock_wait", "forever"),
        ("lock_ttl", "0s"),
        ("run_key_window", "always"),
        ("dev", "perhaps"),
        ("log", "some"),
        ("host", ""),
        ("tenant_rate", "-5"),
    ],
)
def test_what_cannot_be_meant_is_named(name: str, text: str) -> None:
    with pytest.raises(ValueError, match=f"--{name.replace('_', '-')} "):
        read({name: text}, {})


def test_a_wrong_bus_is_not_repeated_with_its_password() -> None:
    with pytest.raises(ValueError, match="nats") as wrong:
        read({"bus": "amqp://me:canary@host"}, {})
    assert "canary" not in str(wrong.value)
