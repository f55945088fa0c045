"""What Spark has added up, taken apart on the driver: by tier or tenant or queue, for each window or for the range.

One answer of Spark (`signals_facts.figures`) holds all levels; each table of the signals is made of some of its rows.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow.compute  # type: ignore[import-untyped]

from penstock.pipeline.signals import counts, spans, tables
from penstock.pipeline.signals.facts import SPANS, By, Level
from penstock.pipeline.signals.windows import Windows

if TYPE_CHECKING:
    import pyarrow

NAMES = {By.TIER: "tier", By.TENANT: "tenant_rank"}


@dataclass(frozen=True, slots=True)
class Figures:
    rows: Any
    windows: Windows

    def levels(self, by: By) -> Any:
        """What happened in each window of each tier or tenant, and what was there at its end."""
        name = NAMES[by]
        return counts.filled(counts.counts(self._of(by, Level.WINDOW), name), name, self.windows)

    def of_all(self) -> Any:
        return self._spans(By.TIER, Level.ALL, "by").drop(columns="by")

    def of_queues(self, queues: Any) -> Any:
        """One row for each queue; ``queues`` are the levels of tiers, put together."""
        return tables.of_range(queues, self._spans(By.TIER, Level.QUEUE, "queue"), ["queue"], self.windows)

    def of_queue_windows(self, queues: Any) -> Any:
        found = self._spans(By.TIER, Level.QUEUE_WINDOW, "queue", "window")
        return tables.of_windows(queues, found, ["queue"], self.windows)

    def of_parts(self, by: By, levels: Any) -> Any:
        """One row for each tier or tenant of a queue."""
        found = self._spans(by, Level.PART, "queue", "part").rename(columns={"part": NAMES[by]})
        return tables.of_range(levels, found, ["queue", NAMES[by]], self.windows)

    def of_part_windows(self, by: By, levels: Any) -> Any:
        found = self._spans(by, Level.WINDOW, "queue", "part", "window").rename(columns={"part": NAMES[by]})
        return tables.of_windows(levels, found, ["queue", NAMES[by]], self.windows)

    def _spans(self, by: By, level: Level, *keys: str) -> Any:
        return spans.percentiles(self._of(by, level), SPANS, keys)

    def _of(self, by: By, level: Level) -> Any:
        return self.rows[(self.rows["by"] == by) & (self.rows["level"] == level)]


def figures_of(table: "pyarrow.Table", windows: Windows) -> Figures:
    """Take what Spark answered; each percentile gets a column of its own."""
    for at, word in enumerate(spans.SHARES):
        table = table.append_column(word, pyarrow.compute.list_element(table["shares"], at))
    return Figures(table.drop_columns("shares").to_pandas(), windows)
