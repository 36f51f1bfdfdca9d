"""Requests that share a renewal or a login, and the cancellation of some of them."""

import asyncio

import pytest

from fairlead.auth.client.shared_attempt import SharedAttempt

LIMIT = 10.0


class Login:
    """A login that waits for the user, and whose cleanup ends when the test allows it."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.may_end = asyncio.Event()
        self.ended = asyncio.Event()
        self.attempt = SharedAttempt(self._work, self.ended.set)

    async def _work(self, attempt: SharedAttempt) -> bool:
        await asyncio.sleep(0)  # the requests of the test join first
        try:
            with attempt.waiting_for_person():
                self.asked.set()
                await asyncio.Event().wait()
        finally:
            self.cancelled.set()
            await self.may_end.wait()
        return True


async def test_a_request_that_joins_a_cancelled_login_is_not_cancelled() -> None:
    async with asyncio.timeout(LIMIT):
        login = Login()
        first = asyncio.create_task(login.attempt.join())
        await login.asked.wait()
        first.cancel()
        await login.cancelled.wait()
        second = asyncio.create_task(login.attempt.join())
        await asyncio.sleep(0)
        login.may_end.set()
        assert await second is False
        assert login.ended.is_set()
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_cancelling_one_of_two_requests_does_not_cancel_the_login() -> None:
    async with asyncio.timeout(LIMIT):
        login = Login()
        first, second = (asyncio.create_task(login.attempt.join()) for _ in range(2))
        await login.asked.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not login.cancelled.is_set()
        second.cancel()
        await login.cancelled.wait()
        login.may_end.set()
        await login.ended.wait()
