"""A user's own method, task or optimiser, named as ``module:attribute`` on the command line or in a configuration.

The module is found among the installed packages, on PYTHONPATH or in the current folder, which is importable for the
moment of the import only and never hides an installed package.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from typing import Any

from lur.training.configuration import did_you_mean


def load_attribute(reference: str) -> Any:
    """The object that ``module:attribute`` names. Every failure is a ValueError of one sentence that names both."""
    module_name, _, attribute = reference.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), *attribute.split("."))):
        raise ValueError(f"{reference}: expected my_module:attribute, the name of a module and of an object in it")
    with _current_folder_importable(reference, module_name):
        try:
            found = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            if error.name and f"{module_name}.".startswith(f"{error.name}."):
                raise ValueError(
                    f"{reference}: expected a module {module_name} in the current folder, on PYTHONPATH or installed, "
                    f"found none"
                ) from None
            raise ValueError(f"{reference}: {raised(f'importing {module_name}', error)}") from error
        except (Exception, SystemExit) as error:
            raise ValueError(f"{reference}: {raised(f'importing {module_name}', error)}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            names = [other for other in dir(found) if not other.startswith("_")]
            raise ValueError(f"{reference}: {module_name} has no attribute {name}{did_you_mean(name, names)}")
        found = getattr(found, name)
    return found


def call(reference: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """The result of a user's function. An exception inside it becomes a ValueError of one sentence."""
    try:
        return function(*args, **options)
    except Exception as error:
        raise ValueError(f"{reference}: {raised('calling it', error)}") from error


def raised(doing: str, error: BaseException) -> str:
    """What raised an exception, and the first line of its message."""
    message = (str(error).strip().splitlines() or [""])[0]
    return f"{doing} raised {type(error).__name__}{f': {message}' if message else ''}"


@contextmanager
def _current_folder_importable(reference: str, module_name: str) -> Iterator[None]:
    """Look for modules in the current folder too, after all other places; refuse a name that is found in both."""
    folder, package = os.getcwd(), module_name.partition(".")[0]
    importlib.invalidate_caches()  # the file may be new
    own, other = PathFinder.find_spec(package, [folder]), importlib.util.find_spec(package)
    origins = [None if spec is None else spec.origin for spec in (own, other)]
    if None not in origins and len({os.path.realpath(str(origin)) for origin in origins}) > 1:
        raise ValueError(
            f"{reference}: expected one module {package}, found {origins[0]} and {origins[1]}; rename the first"
        )
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder) if sys.path[-1] != folder else sys.path.pop()
