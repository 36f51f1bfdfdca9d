"""What an interceptor says of itself, and what it only inherits."""

from fairlead.interceptor.interceptor_flags import declares


class Says:
    pure = True

    async def __call__(self) -> None: ...

    def act(self) -> None: ...


class Inherits(Says):
    pass


class CallsAnew(Says):
    async def __call__(self) -> None: ...


class ActsAnew(Says):
    def act(self) -> None: ...


def test_a_flag_is_about_the_way_it_is_called() -> None:
    assert declares(Says(), "pure")
    assert declares(Inherits(), "pure")
    assert not declares(CallsAnew(), "pure")
    assert not declares(Says(), "other")


def test_other_acts_count_where_they_are_named() -> None:
    assert declares(ActsAnew(), "pure")
    assert declares(ActsAnew(), "pure", "another")
    assert not declares(ActsAnew(), "pure", "another", "act")
    assert declares(Inherits(), "pure", "act")


def test_an_object_may_say_it_for_itself() -> None:
    one = CallsAnew()
    one.pure = True
    assert declares(one, "pure")
    assert not declares(object(), "pure")
