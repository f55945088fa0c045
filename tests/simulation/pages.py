"""The bytes of one file: what the cache shows, and what the platter holds.

    write ──▶ cache, pages dirty ──sync──▶ platter
                                 ──power cut──▶ any subset of the dirty pages, whole or torn

Laws of this file
-----------------
1. A page that is not dirty comes back from the platter, whatever the cache shows.
   After a failed sync no page is dirty: Linux forgets what it could not write.
2. Of a file that grew, any size between the durable and the current one survives;
   what never reached the platter reads as zeros.
3. Cutting a file is one step of the file system's journal: it survived or it did
   not. If it did not, neither did anything written at or beyond the cut.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

PAGE = 4096
SECTOR = 512

# What `Choose` is asked about besides pages.
NAME = -1
CUT = -2
SIZE = -3

# Told a path and a page number, `NAME`, `CUT` or `SIZE`: does this unsynced change survive?
Choose = Callable[[str, int], bool]


@dataclass(slots=True)
class Pages:
    cache: bytearray = field(default_factory=bytearray)
    platter: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    # The smallest size since the last sync: below it the platter's bytes were never cut off.
    floor: int = 0
    allocated: int = 0
    allocated_durable: int = 0

    def used_bytes(self) -> int:
        return round_up(max(len(self.cache), self.allocated))

    def write(self, data: bytes | memoryview, position: int) -> None:
        if not data:
            return
        end = position + len(data)
        changed_from = min(position, len(self.cache))
        _grow(self.cache, end)
        self.cache[position:end] = data
        self.dirty.update(range(changed_from // PAGE, (end - 1) // PAGE + 1))

    def forget_clean(self) -> None:
        """Show again what is on the platter, wherever nothing waits to be written."""
        for page in range(round_up(len(self.cache)) // PAGE):
            if page not in self.dirty:
                size = len(self._page(page))
                old = bytes(self.platter[page * PAGE : page * PAGE + size])
                self.cache[page * PAGE : page * PAGE + size] = old.ljust(size, b"\0")

    def truncate(self, size: int) -> None:
        if size > len(self.cache):
            self.dirty.update(range(len(self.cache) // PAGE, (size - 1) // PAGE + 1))
            _grow(self.cache, size)
        del self.cache[size:]
        self.floor = min(self.floor, size)
        self.allocated = min(self.allocated, size)
        self.dirty = {page for page in self.dirty if page * PAGE < size}

    def sync(self) -> None:
        self.sync_some(self.dirty.copy())
        _grow(self.platter, len(self.cache))
        self.floor = len(self.platter)
        self.allocated_durable = self.allocated

    def sync_some(self, pages: Iterable[int]) -> None:
        """Bring some dirty pages to the platter, as a sync cut short does."""
        del self.platter[self.floor :]
        for page in sorted(pages):
            _put(self.platter, page, self._page(page))
            self.dirty.discard(page)
        self.floor = len(self.platter)

    def forget_dirty(self) -> None:
        self.dirty.clear()

    def make_durable(self) -> None:
        self.dirty.update(range(round_up(len(self.cache)) // PAGE))
        self.sync()

    def cut_power(self, path: str, choose: Choose) -> None:
        """Keep exactly the dirty pages that ``choose`` names, and the size they need or, if it says so, all of it."""
        is_cut = self.floor == len(self.platter) or choose(path, CUT)
        kept = [page for page in sorted(self.dirty) if choose(path, page)]
        end = min(len(self.cache), (max(kept, default=-1) + 1) * PAGE)
        if len(self.cache) > max(end, self.floor) and choose(path, SIZE):
            end = len(self.cache)
        self._survive({page: self._page(page) for page in kept}, is_cut=is_cut, size=end)

    def cut_power_by_dice(self, dice: random.Random) -> None:
        """Keep, lose or tear each dirty page, and choose a size."""
        is_cut = self.floor == len(self.platter) or dice.random() < 0.5
        # With one chance for all pages, only some is nearly certain: all and none must happen too.
        keep = dice.choice((0.0, 0.5, 0.9, 1.0))
        pages = {page: self._page(page) for page in sorted(self.dirty)}
        survivors = {page: data for page, data in pages.items() if dice.random() < keep}
        for page in sorted(pages.keys() - survivors.keys()):
            if dice.random() < 0.5:
                survivors[page] = self._tear(page, pages[page], dice)
        size = dice.choice((0, len(self.cache), dice.randint(0, len(self.cache))))
        self._survive(survivors, is_cut=is_cut, size=size)

    def _survive(self, survivors: dict[int, bytes], *, is_cut: bool, size: int) -> None:
        durable = len(self.platter)
        limit = self.floor
        if is_cut:
            del self.platter[self.floor :]
            limit = durable = max(len(self.platter), size)
        for page, data in sorted(survivors.items()):
            _put(self.platter, page, data[: max(0, limit - page * PAGE)])
        _grow(self.platter, durable)
        self._restart_from_platter()

    def _restart_from_platter(self) -> None:
        self.cache = bytearray(self.platter)
        self.dirty.clear()
        self.floor = len(self.platter)
        self.allocated = self.allocated_durable

    def _tear(self, page: int, new: bytes, dice: random.Random) -> bytes:
        """Return a page of which only the first, or only the last sectors were written."""
        old = bytes(self.platter[page * PAGE : min((page + 1) * PAGE, self.floor)]).ljust(len(new), b"\0")
        at = SECTOR * dice.randrange(1, PAGE // SECTOR)
        return new[:at] + old[at:] if dice.random() < 0.5 else old[:at] + new[at:]

    def _page(self, page: int) -> bytes:
        return bytes(self.cache[page * PAGE : (page + 1) * PAGE])


def round_up(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _grow(content: bytearray, size: int) -> None:
    content.extend(bytes(max(0, size - len(content))))


def _put(content: bytearray, page: int, data: bytes) -> None:
    if data:
        _grow(content, page * PAGE)
        content[page * PAGE : page * PAGE + len(data)] = data
