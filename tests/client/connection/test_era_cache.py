"""Tests of remembered server eras in memory and in a store."""

from fairlead.client.connection.era_cache import EraCache, fingerprint


class Store:
    """A store that records calls."""

    def __init__(self, **kept: bool) -> None:
        self.kept = kept
        self.loads = 0
        self.saved: list[tuple[str, bool | None]] = []

    def load(self) -> dict[str, bool]:
        self.loads += 1
        return dict(self.kept)

    def save(self, server: str, stateless: bool | None) -> None:
        self.saved.append((server, stateless))


def test_the_era_of_a_server_is_remembered_until_it_is_forgotten() -> None:
    cache = EraCache()
    assert cache.stateless("a") is None
    cache.remember("a", stateless=True)
    cache.remember("b", stateless=False)
    assert (cache.stateless("a"), cache.stateless("b")) == (True, False)
    cache.forget("a")
    cache.forget("a")
    assert (cache.stateless("a"), cache.stateless("b")) == (None, False)
    cache.clear()
    assert cache.stateless("b") is None


def test_the_oldest_remembered_era_is_dropped_at_the_limit() -> None:
    cache = EraCache(limit=2)
    for name in "abc":
        cache.remember(name, stateless=True)
    assert [cache.stateless(name) for name in "abc"] == [None, True, True]


def test_the_era_store_is_loaded_once_and_new_eras_are_saved() -> None:
    key = fingerprint("a")
    store, cache = Store(**{key: True}), EraCache()
    cache.keep(store)
    assert store.loads == 0
    assert cache.stateless("a") is True
    assert cache.stateless("b") is None
    assert cache.stateless(None) is None
    cache.remember("a", stateless=True)
    assert store.saved == []
    cache.remember("a", stateless=False)
    cache.remember("b", stateless=False)
    assert store.saved == [(key, False), (fingerprint("b"), False)]
    assert store.loads == 1
    cache.keep(store)
    assert cache.stateless("c") is None
    assert store.loads == 2


def test_a_forgotten_era_is_deleted_from_the_store() -> None:
    key = fingerprint("a")
    store, cache = Store(**{key: True}), EraCache()
    cache.keep(store)
    cache.forget("b")
    cache.forget(None)
    assert store.saved == []
    cache.forget("a")
    cache.forget("a")
    assert store.saved == [(key, None)]
    assert cache.stateless("a") is None
    cache.clear()
    cache.remember("a", stateless=True)
    assert store.saved == [(key, None)]


def test_a_fingerprint_identifies_a_server_without_revealing_its_command_or_url() -> None:
    assert fingerprint(("a", "b")) != fingerprint(("a", "c"))
    assert fingerprint("secret") == fingerprint("secret")
    assert len(fingerprint("\ud800")) == 32
