"""Keys for tests: an access with several, and the header that shows each."""

from hashlib import sha256

from penstock.broker.access import Access, Grant, Key, Role, hash_of
from tests.api.asgi import Api, Response


def secret_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()[:43]


def id_of(name: str) -> str:
    return sha256(name.encode()).hexdigest()[-12:]


def text_of(name: str) -> str:
    """Return the whole key with this name."""
    return f"pk_{id_of(name)}_{secret_of(name)}"


def key(name: str, *grants: Grant) -> Key:
    return Key(
        id=id_of(name),
        name=name,
        secret_sha256=hash_of(secret_of(name)),
        ending=secret_of(name)[-4:],
        grants=grants,
        queues_max=None,
        created_at="2026-11-16T00:00:00Z",
    )


def access_of(**grants: tuple[Role, str] | list[tuple[Role, str]]) -> Access:
    """Return an access with a key for each name: `access_of(ops=(Role.ADMIN, "*"))`."""
    lists = {name: each if isinstance(each, list) else [each] for name, each in grants.items()}
    return Access([key(name, *(Grant(*each) for each in pairs)) for name, pairs in lists.items()])


def shown(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {text_of(name)}"}


class Holder:
    """A caller with one key, or with none."""

    def __init__(self, api: Api, name: str | None) -> None:
        self.api = api
        self.headers = {} if name is None else shown(name)

    async def get(self, path: str, **query: object) -> Response:
        return await self.api.call("GET", path, query=query, headers=self.headers)

    async def post(self, path: str, value: object = None) -> Response:
        return await self.api.call("POST", path, value, headers=self.headers)

    async def patch(self, path: str, value: object) -> Response:
        return await self.api.call("PATCH", path, value, headers=self.headers)

    async def delete(self, path: str, **query: object) -> Response:
        return await self.api.call("DELETE", path, query=query, headers=self.headers)
