"""From a run folder to one's own code: the task, the trained model, the state and the configuration."""

from pathlib import Path
from typing import NamedTuple

from jaxtyping import PyTree

from lur.methods.method import ServerState
from lur.runs import checkpoint, folder
from lur.runs.errors import RunError
from lur.runs.train_run import read_run_config
from lur.tasks.task import Task
from lur.training.configuration import ResolvedRun
from lur.training.experiment import initial_state, load_task, resolve


class LoadedRun(NamedTuple):
    """A run of `lur train`, as it stands.

    Attributes:
      task: the task, with the data of the run.
      params: the trained model.
      state: the state after the last rounds, from which `lur.run` can go on.
      config: the resolved configuration.
    """

    task: Task
    params: PyTree
    state: ServerState
    config: ResolvedRun


def load_run(path: str | Path) -> LoadedRun:
    """Return the task, the model, the state and the configuration of a run folder, at its last intact checkpoint.

    The folder is only read, also while the run goes on.
    """
    path = Path(path)
    if not folder.has_run(path):
        raise RunError(f"{path}: expected the folder of a run of `lur train`, found none")
    config = read_run_config(path)
    experiment = resolve(config, load_task(config))
    folder.check_data(path, folder.data_digest(experiment.task))
    like = initial_state(experiment)
    for saved in reversed(checkpoint.checkpoint_folders(path / "checkpoints")):
        try:
            state = checkpoint.load(saved, path, like).state
        except checkpoint.Damaged:
            continue
        return LoadedRun(experiment.task, experiment.method.model(state), state, experiment.config)
    raise RunError(f"{path}: expected an intact checkpoint, found none")
