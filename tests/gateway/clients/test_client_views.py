"""Views by principal."""

from fairlead.gateway.catalog.views import View
from fairlead.gateway.clients.client_views import ClientViews
from fairlead.protocol.identity.principal import ANONYMOUS
from tests.support.single_exchange import exchange


def test_principals_without_a_view_of_their_own_get_the_default() -> None:
    bobs, default = View(servers=("red",)), View(deny=("*_secret",))
    views = ClientViews({"bob": bobs}, default)
    assert views.view_for("bob") is bobs
    assert views.view_for("alice") is default
    assert views.view_for(ANONYMOUS) is default
    assert views.view_of(exchange(principal="bob").caller) is bobs
    assert list(views) == [default, bobs]


def test_views_can_be_replaced() -> None:
    views = ClientViews({"bob": View.nothing()}, View.everything())
    views.replace({"alice": View.nothing()}, View(hide=("x",)))
    assert views.view_for("alice") is View.nothing()
    assert views.view_for("bob") == View(hide=("x",))
