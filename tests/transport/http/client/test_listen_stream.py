from hypothesis import given
from hypothesis import strategies as st

from fairlead.transport.http.client.listen_stream import LEAST, LONGEST, SHORTEST, backoff


@given(st.integers(0, 2000), st.none() | st.integers(0, 10_000))
def test_waits_respect_the_server_and_grow_with_failures(failures: int, retry: int | None) -> None:
    waited = backoff(failures, retry)
    asked = SHORTEST if retry is None else max(retry / 1000, LEAST)
    assert waited >= asked
    assert waited <= max(asked, LONGEST) * 1.25
    if failures > 10:
        assert waited >= LONGEST
