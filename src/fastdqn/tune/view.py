"""The search as it goes: a panel with a bar per point in a terminal, a line per race everywhere else."""

import time

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from fastdqn.run.view import clock
from fastdqn.tune.race import Runner
from fastdqn.tune.space import Point

SIGNS = {"switches.on": "+", "switches.off": "-"}
BAR = 28  # cells of the fastest point's bar


class TuneView:
    """Silent by itself. A race begins, takes its turns and ends; `begin` gives the points their names."""

    def begin(self, what: str, points: list[Point]) -> list[str]:
        return names_of(points)

    def turn(self, runners: list[Runner], share: float) -> None: ...
    def end(self, rates: list[float], taken: int) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


class PlainTuneView(TuneView):
    """One line per race."""

    def __init__(self, console: Console) -> None:
        self._console, self._began = console, time.monotonic()
        self._what, self._names = "", list[str]()

    def begin(self, what: str, points: list[Point]) -> list[str]:
        self._what, self._names = what, names_of(points)
        return self._names

    def end(self, rates: list[float], taken: int) -> None:
        self.say(f"{clock(time.monotonic() - self._began)}  {result_line(self._what, self._names, rates, taken)}")

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveTuneView(PlainTuneView):
    """What was decided stays above as lines; the race that goes on is drawn below, at most four times a second."""

    def __init__(self, console: Console, title: str, minutes: float) -> None:
        super().__init__(console)
        self._title, self._seconds, self._last = title, 60 * minutes, 0.0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._live.start()

    def turn(self, runners: list[Runner], share: float) -> None:
        if time.monotonic() - self._last > 0.25:
            self._last = time.monotonic()
            self._live.update(self._panel(runners, share), refresh=True)

    def close(self) -> None:
        self._live.stop()

    def _panel(self, runners: list[Runner], share: float) -> Panel:
        elapsed = time.monotonic() - self._began
        times = f"{clock(elapsed)} so far, no new race after {clock(self._seconds)}"
        head = Text(f"{self._what}: {share:.0%} done; {times}", "bold")
        bars = Table.grid(padding=(0, 2))
        best = max((runner.rate for runner in runners), default=0.0) or 1.0
        done = {runner.name: runner for runner in runners}
        for name in self._names:
            bars.add_row(Text(name), *_bar(done.get(name), best))
        return Panel(Group(head, bars), title=Text(self._title), title_align="left", border_style="blue", width=76)


def make_tune_view(quiet: bool, title: str, minutes: float) -> TuneView:
    if quiet:
        return TuneView()
    console = Console(stderr=True)
    return LiveTuneView(console, title, minutes) if console.is_terminal else PlainTuneView(console)


def names_of(points: list[Point]) -> list[str]:
    """Each point by what sets it apart from the first: its own values, and the switches it turns on (+) or off (-)."""
    first = points[0]
    differing = [key for key in first if any(point[key] != first[key] for point in points)]
    return [_name(point, first, differing) for point in points]


def _name(point: Point, first: Point, differing: list[str]) -> str:
    words = []
    for key in differing:
        if isinstance(first[key], list):
            words += [f"{SIGNS[key]}{name}" for name in point[key] if name not in first[key]]
        else:
            words.append(f"{key.rsplit('.', 1)[-1]} {point[key] or 'as many as cores'}")
    return ", ".join(words) or "as it is"


def result_line(what: str, names: list[str], rates: list[float], taken: int) -> str:
    """`actor.lanes  64 (41,200) · 128 (44,900) · [256 (47,300)]`: steps/s of each, the taken one in brackets."""
    words = [f"{name} ({rate:,.0f})" if rate else f"{name} (cannot be had)" for name, rate in zip(names, rates, strict=True)]
    words[taken] = f"[{words[taken]}]"
    return f"{what}: {' · '.join(words)} steps/s"


def _bar(runner: Runner | None, best: float) -> tuple[Text, Text]:
    if runner is None:
        return Text("waits", "dim"), Text("")
    if runner.run is None:
        return Text("cannot be had", "dim"), Text("")
    style = "dim" if runner.out else "green" if runner.rate == best else "cyan"
    return Text("━" * round(BAR * runner.rate / best), style), Text(f"{runner.rate:,.0f} steps/s", style)
