"""The report of a race: a table in Markdown, all figures in JSON, and plots if matplotlib is there."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from bench.peer import percentile
from bench.race.backlog import Backlog
from bench.race.sides import Side
from bench.race.workloads import Found, Workload

Done = Callable[[str], None]
Results = Mapping[tuple[str, str], list[Found]]
Backlogs = Mapping[tuple[str, int], Backlog]
_SHARES = (0.5, 0.9, 0.99, 0.999)


def write(
    out: Path,
    sides: Sequence[Side],
    workloads: Sequence[Workload],
    found: Results,
    backlogs: Backlogs,
    machine: Mapping[str, object],
) -> Path:
    """Write it all, and return where the table is."""
    out.mkdir(parents=True, exist_ok=True)
    table = out / "race.md"
    text = [*_rows(sides, workloads, found), *_backlog_rows(sides, backlogs), *_told(sides, found, machine)]
    table.write_text("\n".join(text) + "\n")
    figures = {
        "machine": machine,
        "sides": [
            {"name": side.name, "version": side.version(), "settings": side.settings, "ack": side.means}
            for side in sides
        ],
        "measured": [
            {"workload": name, "side": side, "rounds": [_figures(each) for each in rounds]}
            for (name, side), rounds in found.items()
        ],
        "backlogs": [{"side": side, "messages": size, **asdict(each)} for (side, size), each in backlogs.items()],
    }
    (out / "race.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    if find_spec("matplotlib") is not None:
        _plot(out, sides, workloads, found, backlogs)
    return table


def _figures(found: Found) -> dict[str, Any]:
    waits = {f"p{share * 100:g}_ms": percentile(found.waits_ms, share) for share in _SHARES} if found.waits_ms else {}
    figures = {name: getattr(found, name) for name in ("rate", "server_cpu_us", "client_cpu_us", "others")}
    return {name: round(value, 3) for name, value in {**figures, **waits}.items()}


def _rows(sides: Sequence[Side], workloads: Sequence[Workload], found: Results) -> list[str]:
    lines = ["| workload | " + " | ".join(side.name for side in sides) + " |", "|---" * (len(sides) + 1) + "|"]
    for workload in workloads:
        cells = [_cell(workload, found.get((workload.name, side.name), ())) for side in sides]
        if any(cell != "–" for cell in cells):
            lines.append(f"| {workload.name} | " + " | ".join(cells) + " |")
    return lines


def _cell(workload: Workload, rounds: Sequence[Found]) -> str:
    if not rounds:
        return "–"
    if workload.is_latency:
        p50, p99 = ([percentile(each.waits_ms, share) for each in rounds if each.waits_ms] for share in (0.5, 0.99))
        return f"{median(p50):.2f} / {median(p99):.2f} ms" if p50 else "–"
    rates = [each.rate for each in rounds]
    return f"{_short(median(rates))} ({_short(min(rates))}–{_short(max(rates))})"


def _short(rate: float) -> str:
    """
    >>> _short(61.3), _short(4127), _short(418_400)
    ('61', '4,130', '418,000')
    """
    digits = 10 ** max(0, len(str(int(rate))) - 3)
    return f"{round(rate / digits) * digits:,}"


def _backlog_rows(sides: Sequence[Side], backlogs: Backlogs) -> list[str]:
    if not backlogs:
        return []
    lines = ["", "| backlog | side | fill /s | batch 100 /s | memory MB | disk MB | restart s |", "|---" * 7 + "|"]
    for size in sorted({size for _, size in backlogs}):
        for side in sides:
            each = backlogs.get((side.name, size))
            if each is not None:
                restart = "–" if each.restart_s is None else f"{each.restart_s:.2f}"
                figures = (f"{_short(value)}" for value in (each.fill_rate, each.rate, each.memory_mb, each.disk_mb))
                lines.append(f"| {size:,} | {side.name} | {' | '.join(figures)} | {restart} |")
    return lines


def _told(sides: Sequence[Side], found: Results, machine: Mapping[str, object]) -> list[str]:
    others = [each.others for rounds in found.values() for each in rounds]
    lines = ["", "| side | version | settings | an acknowledged message is |", "|---|---|---|---|"]
    lines += [f"| {side.name} | {side.version()} | {side.settings} | {side.means} |" for side in sides]
    lines += ["", ", ".join(f"{name} {value}" for name, value in machine.items()) + "."]
    if others:
        lines.append(
            f"Other processes took {median(others):.2f} cores in the median measurement, {max(others):.2f} at most."
        )
    return lines


def _plot(out: Path, sides: Sequence[Side], workloads: Sequence[Workload], found: Results, backlogs: Backlogs) -> None:
    import matplotlib  # noqa: PLC0415 - not needed for the figures.

    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    names = [side.name for side in sides]
    for workload in workloads:
        results = [(name, found[workload.name, name]) for name in names if (workload.name, name) in found]
        if not results:
            continue
        figure, axes = pyplot.subplots(figsize=(8, 3.5), layout="constrained")
        if workload.is_latency:
            for name, rounds in results:
                waits = sorted(wait for each in rounds for wait in each.waits_ms)
                axes.plot(waits, [(number + 1) / len(waits) for number in range(len(waits))], label=name)
            axes.set(xscale="log", xlabel="ms from publish to received", ylabel="share of messages")
            axes.legend(fontsize="small")
        else:
            rates = [[each.rate for each in rounds] for _, rounds in results]
            middle = [median(each) for each in rates]
            spread = [
                [value - min(each) for value, each in zip(middle, rates, strict=True)],
                [max(each) - value for value, each in zip(middle, rates, strict=True)],
            ]
            axes.barh([name for name, _ in results], middle, xerr=spread, capsize=3)
            axes.invert_yaxis()
            axes.set(xlabel="messages a second")
        axes.set_title(workload.name)
        figure.savefig(out / f"{_file_name(workload.name)}.svg")
        pyplot.close(figure)
    if backlogs:
        _plot_backlogs(out, names, backlogs, pyplot)


def _plot_backlogs(out: Path, names: Sequence[str], backlogs: Backlogs, pyplot: Any) -> None:
    costs = ("rate", "memory_mb", "disk_mb", "restart_s")
    figure, all_axes = pyplot.subplots(1, len(costs), figsize=(14, 3.5), layout="constrained")
    for axes, cost in zip(all_axes, costs, strict=True):
        for name in names:
            points = sorted((size, getattr(each, cost)) for (side, size), each in backlogs.items() if side == name)
            points = [point for point in points if point[1] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set(xscale="log", xlabel="messages in the backlog", title=cost)
    all_axes[0].legend(fontsize="small")
    figure.savefig(out / "backlog.svg")
    pyplot.close(figure)


def _file_name(name: str) -> str:
    """
    >>> _file_name("both at once, batch 10")
    'both-at-once-batch-10'
    """
    return "-".join("".join(each if each.isalnum() else " " for each in name).split())
