"""Ids of DPoP proofs: none is forgotten while its proof could be accepted again."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlead.auth.server import proof_memory
from fairlead.auth.server.proof_check import WINDOW
from fairlead.auth.server.proof_memory import STEP, ProofMemory
from fairlead.errors import AuthorizationError


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.mark.covers("AUT-06")
def test_many_proofs_of_one_key_do_not_displace_the_proofs_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proof_memory, "MAX_IDS", 100)
    memory, now = ProofMemory(WINDOW), time.time()
    assert memory.add("victim", "v", now)
    accepted = 0
    with pytest.raises(AuthorizationError):
        for number in range(1000):
            assert memory.add("attacker", str(number), now)
            accepted += 1
    assert accepted == 50  # as many as are free
    assert not memory.add("victim", "v", now)
    assert not memory.add("attacker", "0", now)
    assert memory.add("victim", "w", now)


def test_each_key_may_use_half_of_the_free_proof_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_memory, "MAX_IDS", 100)
    memory, now = ProofMemory(WINDOW), time.time()
    held = []
    for key in ("a", "b", "c"):
        count = 0
        with pytest.raises(AuthorizationError):
            while memory.add(key, str(count), now):
                count += 1
        held.append(count)
    assert held == [50, 25, 13]
    assert memory.add("d", "0", now)


def test_proof_ids_are_forgotten_once_their_proofs_are_too_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proof_memory, "MAX_IDS", 10)
    clock = Clock()
    memory, start = ProofMemory(WINDOW, clock), clock()
    for number in range(5):
        memory.add("a", str(number), start)
    with pytest.raises(AuthorizationError):
        memory.add("a", "more", start)
    clock.now = start + WINDOW
    assert not memory.add("a", "0", start)
    clock.now = start + WINDOW + 3 * STEP
    assert memory.add("a", "0", clock())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 30),  # time since the last proof
            st.floats(-WINDOW, WINDOW),  # time in the proof, relative to the clock
            st.sampled_from("ab"),
        ),
        max_size=80,
    )
)
def test_no_proof_is_accepted_twice_while_it_is_valid(
    proofs: list[tuple[float, float, str]],
) -> None:
    clock = Clock()
    memory = ProofMemory(WINDOW, clock)
    sent: list[tuple[str, str, float]] = []
    for number, (wait, offset, key) in enumerate(proofs):
        clock.now += wait
        sent.append((key, str(number), clock.now + offset))
        assert memory.add(*sent[-1])
        for one in sent:
            if abs(clock.now - one[2]) <= WINDOW:
                assert not memory.add(*one)
