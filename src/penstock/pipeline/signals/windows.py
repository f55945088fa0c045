"""The windows that time is cut into, for Spark's columns and for the tables that are made of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one size, by number: window n begins n · size after 1970. Both ends are meant."""

    size_ms: int
    first: int
    last: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def number(self, at_ms: "Column") -> "Column":
        """In which window a moment is; one before the first stands for all before."""
        return f.greatest(f.floor(at_ms / self.size_ms), f.lit(self.first - 1))

    def left_ms(self, at_ms: "Column") -> "Column":
        return self.size_ms - f.pmod(at_ms, f.lit(self.size_ms))
