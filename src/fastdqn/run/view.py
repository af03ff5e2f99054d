"""The live view: a panel in a terminal or a notebook, plain lines everywhere else."""

import time
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

PLAIN_SECONDS = 10.0  # between two plain lines
SPLIT = (
    ("env", "green"),
    ("act", "cyan"),
    ("store", "blue"),
    ("sample", "yellow"),
    ("learn", "magenta"),
    ("other", "white"),
)


@dataclass
class Snapshot:
    """The current state of a run."""

    title: str
    step: int
    seconds: float
    share_done: float | None  # towards the limit that will be hit first
    evaluated_share: float | None = None  # of the current evaluation
    row: dict[str, Any] = field(default_factory=dict)  # the newest metrics line
    last_score: str = ""


class View:
    """`refresh` may be called at any rate; it draws only when it is due."""

    def refresh(self, snapshot: Snapshot) -> None: ...
    def say(self, line: str) -> None: ...
    def close(self) -> None: ...


class Silent(View):
    """Shows nothing."""


class PlainView(View):
    """A line every PLAIN_SECONDS, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = time.monotonic()

    def refresh(self, snapshot: Snapshot) -> None:
        if time.monotonic() - self._last < PLAIN_SECONDS:
            return
        self._last = time.monotonic()
        row = snapshot.row
        parts = [f"step {snapshot.step:,}", time_left(snapshot)]
        if snapshot.evaluated_share is not None:
            parts = [f"evaluating, {snapshot.evaluated_share:.0%} of the games played"]
        elif row:
            parts += [
                f"{row['steps_per_second']:,.0f} steps/s",
                f"{row['updates_per_second']:,.0f} updates/s",
                f"{row['samples_per_step']:.2g} samples/step",
                f"return {number(row['return_mean'])}",
                f"epsilon {row['epsilon']:.2f}",
                row.get("bottleneck", "") or split_words(row),
            ]
        self.say(", ".join(part for part in parts if part))

    def say(self, line: str) -> None:
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)


class LiveView(View):
    """A panel redrawn four times a second."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._live.start()
        self._last = 0.0
        self._snapshot: Snapshot | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if time.monotonic() - self._last < 0.25:
            return
        self._last = time.monotonic()
        self._live.update(panel(snapshot), refresh=True)

    def say(self, line: str) -> None:
        self._live.console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        if self._snapshot is not None:
            self._live.update(panel(self._snapshot), refresh=True)
        self._live.stop()


class NotebookView(View):
    """The same panel in a notebook cell, replaced in place."""

    def __init__(self) -> None:
        from IPython.display import display

        self._handle: Any = display(Text(""), display_id=True)
        self._last = 0.0
        self._snapshot: Snapshot | None = None

    def refresh(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if time.monotonic() - self._last >= 0.5:
            self._last = time.monotonic()
            self._handle.update(panel(snapshot))

    def say(self, line: str) -> None:
        print(line)

    def close(self) -> None:
        if self._snapshot is not None:
            self._handle.update(panel(self._snapshot))


def make_view(quiet: bool = False) -> View:
    if quiet:
        return Silent()
    console = Console()
    if console.is_jupyter:
        return NotebookView()
    return LiveView(console) if console.is_terminal else PlainView(console)


class ShareLine:
    """Progress and remaining time of a piece of work, on stderr: a changing line in a terminal, else one line every ten
    seconds."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._console = Console(stderr=True)
        self._began = self._last = time.monotonic()

    def show(self, share: float, doing: str = "") -> None:
        now = time.monotonic()
        interval = 0.5 if self._console.is_terminal else PLAIN_SECONDS
        if now - self._last < interval:
            return
        self._last = now
        left = f", {clock((now - self._began) * (1 - share) / share)} left" if share else ""
        end = "\r" if self._console.is_terminal else "\n"
        doing = f", {doing}" if doing else ""
        line = f"{self._what}: {share:.0%}{left}{doing}"
        self._console.print(
            line[: self._console.width - 1].ljust(min(79, self._console.width - 1)), end=end, highlight=False
        )

    def say(self, line: str) -> None:
        """A line that stays, above the changing one."""
        self.close()
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        if self._console.is_terminal:
            self._console.print(" " * (self._console.width - 1), end="\r")


def panel(snapshot: Snapshot) -> Panel:
    row = snapshot.row
    facts = Table.grid(padding=(0, 2))
    for _ in range(4):
        facts.add_column(justify="left")
    facts.add_row(*_pair("step", f"{snapshot.step:,}"), *_pair("episodes", f"{row.get('episode', 0):,}"))
    facts.add_row(*_pair("steps/s", _rate(row, "steps_per_second")), *_pair("return", number(row.get("return_mean"))))
    facts.add_row(*_pair("updates/s", _rate(row, "updates_per_second")), *_pair("score", number(row.get("score_mean"))))
    spi = f"{row['samples_per_step']:.2f}" if row else "-"
    facts.add_row(*_pair("samples/step", spi), *_pair("epsilon", number(row.get("epsilon"))))
    facts.add_row(*_pair("loss", number(row.get("loss"), 4)), *_pair("mean value", number(row.get("q_mean"))))
    share = snapshot.share_done
    bar = ProgressBar(total=1.0, completed=share or 0.0, pulse=share is None, width=44)
    head = Table.grid(padding=(0, 2))
    head.add_row(bar, Text(time_left(snapshot) or clock(snapshot.seconds), style="bold"))
    lines: list[Any] = [head, facts, split_bar(row)]
    if "bottleneck" in row:
        lines.append(roles_table(row))
    if snapshot.evaluated_share is not None:
        share_text = f"evaluating: whole games without exploring, {snapshot.evaluated_share:.0%} of them played"
        lines.append(Text(share_text, style="italic"))
    elif snapshot.last_score:
        lines.append(Text(snapshot.last_score, style="bold"))
    title = Text(snapshot.title)  # a Text, because brackets in a run's name are not markup
    return Panel(Group(*lines), title=title, title_align="left", border_style="blue", width=76)


ACTOR_SHARES = [
    ("env", "actors_env_percent"),
    ("act", "actors_act_percent"),
    ("store", "actors_store_percent"),
    ("weights", "actors_weights_percent"),
    ("waiting", "actors_wait_percent"),
]


def roles_table(row: dict[str, Any]) -> Group:
    """For a run in processes: the speed, CPU and memory of each role, and which role waits for which."""
    table = Table.grid(padding=(0, 2))
    for name in [key.removesuffix("_uss_mb") for key in row if key.endswith("_uss_mb")]:
        rate = row.get(f"{name}_steps_per_second")
        speed = f"{rate:,.0f} steps/s" if rate is not None else ""
        speed = f"{row['updates_per_second']:,.0f} batches/s" if name == "learner" else speed
        cpu, memory = f"{row[f'{name}_cpu_percent']:.0f} % CPU", f"{row[f'{name}_uss_mb']:,.0f} MB"
        table.add_row(Text(name, style="dim"), Text(speed, style="bold"), Text(cpu), Text(memory))
    weights = f"weights {row['weights_age_steps']:,.0f} steps old, {row['slots_waiting']} slots waiting, "
    machine = f"{row['replay_rows']:,} rows, load {row['load_average']:.1f}, shared {row['shared_mb']:,.0f} MB"
    again = f", {row['restarts']} replaced" if row.get("restarts") else ""
    shares = [f"{name} {row[key]:.0f} %" for name, key in ACTOR_SHARES if row.get(key) is not None]
    actors = [Text("an actor's time: " + ", ".join(shares), style="dim")] if shares else []
    return Group(table, *actors, Text(weights + machine + again, style="dim"), Text(row["bottleneck"], style="italic"))


def split_words(row: dict[str, Any]) -> str:
    """Where the time goes, for a plain line: env, act and learn only."""
    total = sum(row.get(f"{name}_seconds", 0.0) for name, _ in SPLIT)
    shares = [f"{name} {row[f'{name}_seconds'] / total:.0%}" for name in ("env", "act", "learn")] if total else []
    return "time " + " ".join(shares) if shares else ""


def split_bar(row: dict[str, Any]) -> Text:
    """Where the time goes, as a bar of 50 cells and the shares in words."""
    total = sum(row.get(f"{name}_seconds", 0.0) for name, _ in SPLIT)
    text = Text()
    if not total:
        return text
    shares = [(name, colour, row[f"{name}_seconds"] / total) for name, colour in SPLIT]
    for _, colour, share in shares:
        text.append("━" * round(share * 50), style=colour)
    text.append("\n")
    for name, colour, share in shares:
        text.append(f"{name} {share:.0%}  ", style=colour)
    return text


def time_left(snapshot: Snapshot) -> str:
    share = snapshot.share_done
    if not share or snapshot.seconds < 1:
        return ""
    if share >= 1:
        return f"100 %, took {clock(snapshot.seconds)}"
    return f"{share:.0%}, {clock(snapshot.seconds * (1 - share) / share)} left"


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _pair(name: str, value: str) -> tuple[Text, Text]:
    return Text(name, style="dim"), Text(value, style="bold")


def _rate(row: dict[str, Any], name: str) -> str:
    return f"{row[name]:,.0f}" if row else "-"
