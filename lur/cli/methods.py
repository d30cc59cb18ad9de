"""`lur methods`: the methods that `--method` takes."""

from lur.cli.output import Json, check_json, printer, write_json


def methods(quiet: bool = False, json: Json = None) -> int:
    """List the methods that --method takes, each in one line: lur methods

    A method of your own is --method my_module:factory: factory(loss_fn, local_steps, **options) in my_module.py returns
    a lur.Method.

    Args:
        quiet: Print nothing.
    """
    from lur.methods.registry import METHODS
    from lur.training.method_choice import method_named

    check_json(json)
    say = printer(quiet, json)
    width = max(map(len, METHODS)) + 2
    for name, entry in METHODS.items():
        say(f"{name:{width}}{entry.summary} ({entry.paper})")
    if json is not None:
        rows = {
            name: {"summary": entry.summary, "paper": entry.paper, "options": method_named(name).options}
            for name, entry in METHODS.items()
        }
        write_json(json, rows)
    return 0
