"""The log of a run as TensorBoard events. Needs the optional package tensorboardX."""

from collections.abc import Iterator
from pathlib import Path

from lur._extras import optional_imports
from lur.training.loop import Progress

SCALARS = ("loss", "update_norm", "client_lr", "server_lr")


def log_to_tensorboard(path: Path, progress: Iterator[Progress]) -> Iterator[Progress]:
    """Write the progress of a run into ``path/tensorboard`` as it passes through."""
    with optional_imports("--tensorboard"):
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
    writer = None
    try:
        for at in progress:
            first = at.rounds - len(at.infos.loss) + 1
            if writer is None:  # events that a killed process wrote after its last checkpoint are purged
                writer = SummaryWriter(str(path / "tensorboard"), purge_step=first)
            for name in SCALARS:
                for k, value in enumerate(getattr(at.infos, name)):
                    writer.add_scalar(name, value, first + k)
            if at.evaluation is not None:
                writer.add_scalar("f", at.evaluation.loss, at.rounds)
                writer.add_scalar("accuracy", at.evaluation.accuracy, at.rounds)
            for name, one in at.held_out.items():
                writer.add_scalar(f"{name}/f", one.loss, at.rounds)
                writer.add_scalar(f"{name}/accuracy", one.accuracy, at.rounds)
            yield at
    finally:
        if writer is not None:
            writer.close()
