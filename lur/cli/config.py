"""`lur config TASK`: the configuration of a run as TOML."""

from pathlib import Path

from lur.cli.arguments import RunFlags, RunFlagsArg, TaskName, requested_config
from lur.cli.output import Json, write_json

NO_FLAGS = RunFlags()


def config(
    task: TaskName = "",
    config: Path | None = None,
    run_dir: Path | None = None,
    json: Json = None,
    configuration: RunFlagsArg = NO_FLAGS,
) -> int:
    """Print the configuration of a run as TOML, including the task's settings: lur config digits

    Args:
        task: femnist, cifar100, shakespeare, stackoverflow_nwp, stackoverflow_tp, quadratic, digits, or your own as
            my_module:task.
        config: A TOML file to start from.
        run_dir: A run folder to start from.
    """
    from lur.training.configuration import resolve_config, to_toml
    from lur.training.experiment import load_task

    requested = requested_config(task, config, run_dir, configuration)
    loaded = load_task(requested)
    resolved = resolve_config(requested, loaded.settings, loaded.store.clients)
    write_json(json, resolved)
    if json is None:
        print(to_toml(resolved), end="")
    return 0
