"""Ids of the DPoP proofs that a server has accepted, so that each proof is accepted once."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable
from hashlib import sha256

from ...errors import AuthorizationError

__all__ = ["ProofMemory"]

MAX_IDS = 300_000  # maximum number of proof ids that are remembered, about 100 bytes each
STEP = 10  # seconds; ids of proofs that were created in the same step are forgotten together


class ProofMemory:
    """Ids of accepted proofs, until the proofs are too old to be accepted again.

    An id is never forgotten early, because its proof could then be repeated. Instead, a key whose
    proofs fill the memory gets no new proofs accepted until old ones have expired. A key may use
    as many ids as are free, so some always remain for other keys, however many keys are greedy.
    """

    def __init__(self, window: float, clock: Callable[[], float] = time.time) -> None:
        """A proof can be accepted until `window` seconds after the time that it contains."""
        self._window = window
        self._clock = clock
        # Ids by the time step of the `iat` claim of their proof, and then by the key of the proof.
        self._steps: dict[int, dict[str, set[bytes]]] = {}
        self._held: Counter[str] = Counter()  # number of ids per key
        self._total = 0
        self._next = 0.0  # time at which ids may be forgotten again

    def add(self, key: str, proof_id: str, issued: float) -> bool:
        """Remember a proof; return False if it was added before.

        Raises:
            AuthorizationError: Too many proofs of this key are remembered.
        """
        now = self._clock()
        if now >= self._next:
            self._forget(now)
        found = sha256(proof_id.encode()).digest()[:16]
        # A repeated proof has the same time, so only one step can contain it.
        ids = self._steps.setdefault(int(issued // STEP), defaultdict(set))[key]
        if found in ids:
            return False
        if self._held[key] >= MAX_IDS - self._total:
            raise AuthorizationError(
                "a client sends more proofs than can be remembered", step="token", temporary=True
            )
        ids.add(found)
        self._held[key] += 1
        self._total += 1
        return True

    def _forget(self, now: float) -> None:
        """Forget the ids of all proofs that are too old to be accepted."""
        self._next = now + STEP
        # One step more than necessary, because the clock may be set back a little.
        old = [step for step in self._steps if (step + 2) * STEP + self._window < now]
        for step in old:
            for key, ids in self._steps.pop(step).items():
                self._held[key] -= len(ids)
                self._total -= len(ids)
                if self._held[key] <= 0:
                    del self._held[key]
