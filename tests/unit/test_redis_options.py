"""What a redis:// URL may say, and what is answered to one that makes no sense."""

from __future__ import annotations

import pytest

from semel.audit import events
from semel.errors import OpenError, StoreCorrupt
from semel.kernel.record import CallRequest, State, apply
from semel.stores.urls import StoreUrl, open_store
from tests.commands import A, claim, park, settle
from tests.missing import library

library("hiredis")

from semel.stores.redis import scripts, trouble  # noqa: E402
from semel.stores.redis.first_form import event_body  # noqa: E402
from semel.stores.redis.options import Node, RedisOptions, read  # noqa: E402
from semel.stores.redis.packed_events import event_of, seal_of  # noqa: E402
from semel.stores.redis.packed_records import body_of  # noqa: E402
from semel.stores.redis.packing import digest_of  # noqa: E402


def said(url: str) -> RedisOptions:
    return read(StoreUrl(url))


def test_a_bare_host_has_the_usual_port_database_and_prefix():
    options = said("redis://db.example.org")
    assert options.nodes == (Node("db.example.org", 6379),)
    assert (options.database, options.prefix, options.lanes, options.timeout_s) == (0, "semel", 1, 5.0)
    assert options.greeting() == []
    assert options.tls is None


def test_login_database_and_options_are_read():
    options = said("redis://bot:p%40ss@[::1]:7000/3?prefix=orders&timeout=500ms&audit=off&eviction=allow")
    assert options.nodes == (Node("::1", 7000),)
    assert options.greeting() == [(b"AUTH", b"bot", b"p@ss"), (b"SELECT", b"3")]
    assert (options.prefix, options.timeout_s, options.connect_s) == ("orders", 0.5, 0.5)
    assert (options.audit, options.evicting) == (False, True)


def test_a_password_without_a_user_is_the_default_users():
    assert said("redis://:secret@localhost").greeting() == [(b"AUTH", b"secret")]


def test_a_cluster_has_several_servers_and_many_lanes():
    options = said("redis+cluster://a:7000,b:7001")
    assert options.nodes == (Node("a", 7000), Node("b", 7001))
    assert (options.cluster, options.lanes, options.tls) == (True, 64, None)
    assert said("redis+cluster://a?lanes=8").lanes == 8


def test_sentinels_are_asked_for_the_server_that_has_the_name():
    options = said("redis+sentinel://bot:p%40ss@a:7000,b,[::1]:7001/orders/3?prefix=x")
    assert options.sentinels == (Node("a", 7000), Node("b", 26379), Node("::1", 7001))
    assert options.nodes == (Node("orders", way="sentinel"),)
    assert options.greeting() == [(b"AUTH", b"bot", b"p@ss"), (b"SELECT", b"3")]
    assert (options.cluster, options.lanes, options.tls) == (False, 1, None)
    assert said("redis+sentinel://a/orders").database == 0


def test_a_socket_of_this_machine_is_a_path():
    options = said("redis+unix:///run/my%20redis.sock?db=2&prefix=x")
    assert options.nodes == (Node("/run/my redis.sock", way="unix"),)
    assert (options.database, options.prefix, options.tls) == (2, "x", None)
    assert said("redis+unix://:secret@/run/redis.sock").greeting() == [(b"AUTH", b"secret")]


@pytest.mark.parametrize("scheme", ["redis+tls", "rediss+unix", "redis+sentinels", "unix"])
def test_a_scheme_that_does_not_exist_is_an_open_error_that_names_those_that_do(scheme):
    with pytest.raises(OpenError, match="redis://host"):
        open_store(f"{scheme}://a/b")


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster"])
def test_a_second_s_means_tls_with_a_checked_certificate(scheme):
    tls = said(f"{scheme}://a").tls
    assert tls is not None
    assert tls.check_hostname


def test_sentinels_are_reached_by_tls_too():
    tls = said("rediss+sentinel://a/orders").tls
    assert tls is not None
    assert tls.check_hostname


WRONG = {
    "a database that is no number": "redis://a/one",
    "a database of a cluster": "redis+cluster://a/1",
    "a cluster's server without a name": "redis+cluster://a,,b",
    "a Sentinel without a name": "redis+sentinel://a,/orders",
    "no service": "redis+sentinel://a",
    "an empty service": "redis+sentinel://a/",
    "a service that no Sentinel takes": "redis+sentinel://a/or%20ders",
    "a service's database that is no number": "redis+sentinel://a/orders/one",
    "a socket at a host": "redis+unix://a/run/redis.sock",
    "no socket": "redis+unix://",
    "a folder as a socket": "redis+unix:///run/",
    "a socket's path that is too long": "redis+unix:///" + 107 * "x",
    "a socket's database that is no number": "redis+unix:///run/redis.sock?db=one",
    "a host's database as an option": "redis://a?db=1",
    "a port that is none": "redis://a:port",
    "a port out of range": "redis://a:70000",
    "a prefix with braces": "redis://a?prefix={x}",
    "an empty prefix": "redis://a?prefix=",
    "no lanes": "redis://a?lanes=0",
    "too many lanes": "redis://a?lanes=257",
    "a time-out without a unit": "redis://a?timeout=5",
    "an unknown option": "redis://a?retries=3",
    "an unknown choice": "redis://a?eviction=maybe",
    "an option twice": "redis://a?prefix=a&prefix=b",
}


@pytest.mark.parametrize("url", WRONG.values(), ids=WRONG)
def test_a_url_that_makes_no_sense_is_an_open_error_without_the_password(url):
    with pytest.raises(OpenError) as told:
        said(url.replace("://", "://bot:hunter2@"))
    assert "hunter2" not in str(told.value)
    assert "Nothing was opened" in str(told.value)


def test_options_are_shown_without_the_password():
    assert "hunter2" not in repr(said("redis://bot:hunter2@a"))


def test_what_was_said_to_the_server_is_not_repeated_in_errors():
    told = trouble.refused("ERR unknown command 'AUTH', with args beginning with: 'hunter2' ")
    assert "hunter2" not in str(told)
    assert "unknown command" in str(told)


@pytest.mark.parametrize(
    "word", ["OOM", "READONLY", "LOADING", "BUSY", "MASTERDOWN", "CLUSTERDOWN", "MISCONF"]
)
def test_every_refusal_of_a_server_says_what_was_therefore_not_done(word):
    assert "the tool did not run" in str(trouble.refused(f"{word} whatever it says", claim(A)))
    assert "the outcome was not recorded" in str(trouble.refused(f"{word} whatever it says", settle(A)))
    assert "the doubt was not recorded" in str(trouble.refused(f"{word} whatever it says", park(A)))


def test_an_address_is_not_its_joined_parts():
    at = claim(A).request.at
    assert digest_of(at) != digest_of(at._replace(tenant=at.tenant + at.scope, scope=""))


def test_the_checksum_covers_everything_that_never_changes():
    asked = claim(A).request
    checks = {
        checksum(changed)
        for changed in (
            asked,
            asked._replace(tool="other"),
            asked._replace(step="[]"),
            asked._replace(arguments=b"{}"),
            asked._replace(terms="{}"),
            asked._replace(fingerprint=b"g" * 32),
        )
    }
    assert len(checks) == 6


def checksum(request: CallRequest) -> bytes:
    """It stands behind fingerprint and identity, whose length in three bytes comes first."""
    body, _ = body_of(request)
    return body[3 + int.from_bytes(body[:3], "big") :][:4]


def test_a_counted_event_reads_back_as_it_was():
    record = apply(None, claim(A), 5)
    assert record is not None
    event = events.new_event("dedup_hit", record, 7)._replace(times=3, note="ü\x00", expires_at=9)
    link = (41).to_bytes(8, "big")
    assert event_of(12, link + event_body(event)) == (event._replace(seq=12), 41)


def test_every_state_has_a_code_of_its_own():
    assert sorted(scripts.STATES.values()) == sorted(State)
    assert len(scripts.CODES) == len(State)


def test_a_seal_of_the_wrong_length_is_damage():
    with pytest.raises(StoreCorrupt):
        seal_of(b"short")
