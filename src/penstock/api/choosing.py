"""One port, several protocols: each request goes to the front end it is for.

Front ends are strangers to each other; here they are only applications.
"""

from collections.abc import Callable

from penstock.api.asgi import ASGIApplication, Receive, Scope, Send


class ByProtocol:
    """An ASGI application before two others: ``special`` gets what is for it, ``usual`` the rest."""

    def __init__(
        self, *, usual: ASGIApplication, special: ASGIApplication, is_for_special: Callable[[Scope], bool]
    ) -> None:
        self._usual = usual
        self._special = special
        self._is_for_special = is_for_special

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self._special if self._is_for_special(scope) else self._usual
        await chosen(scope, receive, send)
