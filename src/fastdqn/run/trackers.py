"""Further sinks for the metrics, besides metrics.jsonl."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from fastdqn.errors import UserError, missing_package, nearest
from fastdqn.metrics import Tracker


class TensorboardSink:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(self, row: dict[str, Any]) -> None:
        for name, value in row.items():
            if isinstance(value, (int, float)) and name != "step":
                self._writer.add_scalar(name, value, row["step"], walltime=None)

    def close(self) -> None:
        self._writer.close()


def make_sinks(names: Iterable[str]) -> list[Callable[[Path], Tracker]]:
    """A factory for each name; a missing package is refused here, before a folder exists."""
    makers: list[Callable[[Path], Tracker]] = []
    for name in names:
        if name != "tensorboard":
            raise UserError(f"Unknown log '{name}'.{nearest(name, ['tensorboard'])} There is: tensorboard.")
        try:
            import tensorboard  # noqa: F401
        except ImportError:
            raise missing_package("--log tensorboard", "tensorboard", "tb") from None
        makers.append(TensorboardSink)
    return makers
