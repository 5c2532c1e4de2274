"""Settled records in the process."""

from semel.call.cache import SettledCache
from semel.kernel.record import Record, apply
from semel.ledger.ledger import Ledger
from tests.commands import A, asked, claim, settle
from tests.tools import a_step, declared


def settled(size: int = 10) -> Record:
    pending = apply(None, claim(A), 0)
    done = apply(pending, settle(A, outcome=b"x" * size), 0)
    assert done is not None
    return done


def test_a_kept_record_is_found_until_its_window_closes():
    cache, record = SettledCache(), settled()
    cache.put("k", record, until_us=100)
    assert cache.get("k", 99) is record
    assert cache.get("k", 100) is None
    assert cache.get("other", 0) is None


def test_a_record_kept_for_ever_is_found_for_ever():
    cache, record = SettledCache(), settled()
    cache.put("k", record, until_us=None)
    assert cache.get("k", 1 << 60) is record


def test_it_never_holds_more_records_than_it_may():
    cache = SettledCache(records_max=10)
    for number in range(1_000):
        cache.put(str(number), settled(), None)
        assert len(cache) <= 10
    assert cache.get("999", 0) is not None
    assert cache.get("0", 0) is None


def test_it_never_holds_more_bytes_than_it_may():
    cache = SettledCache(bytes_max=100_000)
    size = len(asked().arguments) + 500
    for number in range(1_000):
        cache.put(str(number), settled(500), None)
        assert len(cache) * size <= 100_000


def test_one_giant_is_not_kept():
    cache = SettledCache(bytes_max=100_000)
    cache.put("small", settled(10), None)
    cache.put("giant", settled(90_000), None)
    assert cache.get("giant", 0) is None
    assert cache.get("small", 0) is not None


def test_what_is_asked_for_stays():
    cache = SettledCache(records_max=10)
    cache.put("asked for", settled(), None)
    for number in range(100):
        cache.put(str(number), settled(), None)
        assert cache.get("asked for", 0) is not None


def test_putting_the_same_record_again_takes_no_more_room():
    cache = SettledCache(records_max=10)
    cache.put("first", settled(), None)
    for _ in range(100):
        cache.put("again", settled(), None)
    assert len(cache) == 2


# --- in a ledger ----------------------------------------------------------------------------------


def test_a_replay_from_the_cache_asks_the_store_for_nothing(shaky, flaky, way):
    @way.tool()
    def pay(to: str) -> int:
        return 1

    with a_step(shaky):
        way.call(pay, "a")
        flaky.down = True
        assert way.call(pay, "a") == 1


def test_a_replay_read_from_the_store_is_kept_too(flaky, way):
    @way.tool()
    def pay(to: str) -> int:
        return 1

    with a_step(Ledger(flaky)):
        way.call(pay, "a")
    with a_step(Ledger(flaky)):
        way.call(pay, "a")
        flaky.down = True
        assert way.call(pay, "a") == 1


def test_ledgers_and_tenants_do_not_share_what_is_kept(flaky):
    ran = []

    @declared()
    def pay(to: str) -> None:
        ran.append(to)

    for tenant in ("acme", "globex"):
        with a_step(Ledger(flaky, tenant=tenant)):
            pay("a")
    assert ran == ["a", "a"]


def test_a_window_that_closed_in_the_cache_is_asked_of_the_store(shaky, clock):
    ran = []

    @declared(window="1h")
    def pay(to: str) -> int:
        ran.append(to)
        return len(ran)

    with a_step(shaky):
        pay("a")
        clock.advance("1h")
        assert pay("a") == 2
        assert pay("a") == 2
