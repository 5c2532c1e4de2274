"""The bytes of a record in Redis, by key and by field, are all of them."""

from __future__ import annotations

from click.testing import CliRunner

from bench import redis_parts
from tests.bench.test_servers import need, open_to_all

# Of a small call, with its events and its part of every list. Once it was more than 1 600.
BYTES_MAX = 1_000


def test_the_parts_of_a_record_add_up() -> None:
    need("redis")
    with open_to_all() as directory:
        result = CliRunner().invoke(redis_parts.main, ["--records", "200", "--dir", str(directory)])
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("a record has"))
    assert 500 < sum(int(line.split()[0]) for line in lines[1:at]) <= BYTES_MAX, lines[:at]
    sizes = {line.split(maxsplit=1)[1]: int(line.split()[0]) for line in lines[at + 1 : -1]}
    assert sum(sizes.values()) == int(lines[at].split()[3])
    assert sizes["fingerprint"] == sizes["token: random, and the process that holds the key"] == 32
    # Each length takes a byte or a few: what is missing in a field would show here.
    assert 12 < sizes["lengths"] < 30
    assert lines[-1].startswith("its events have ")
