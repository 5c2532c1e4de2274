"""What a store remembers of the claims that this process made, so that a settlement reads nothing back."""

from __future__ import annotations

from semel.kernel.record import Record

# Records of claims that this process made and has not settled yet: enough for its running tools. Large
# arguments are not worth the memory: reading them back costs less than they do.
_RECORDS_MAX, _ARGUMENTS_BYTES_MAX = 1_024, 4_096


class ClaimedRecords(dict[bytes, Record]):
    """Records that this process claimed and has not settled yet, by their token: they need not be read back.

    What a settlement takes over from the record before it changes only together with token and fence.
    """

    def keep(self, record: Record) -> None:
        if len(record.request.arguments) <= _ARGUMENTS_BYTES_MAX:
            self[record.token] = record
            if len(self) > _RECORDS_MAX:
                try:
                    del self[next(iter(self))]
                except (KeyError, RuntimeError, StopIteration):
                    pass  # another thread changed it meanwhile; one too many does no harm
