"""Optional packages: the extra of the distribution that installs each, and one sentence where one is missing."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "cli": {"rich": "rich", "tyro": "tyro"},
    "models": {"flax": "flax"},
    "data": {"h5py": "h5py", "sklearn": "scikit-learn", "tensorflow_datasets": "tensorflow-datasets"},
    "plots": {"cycler": "matplotlib", "matplotlib": "matplotlib"},
    "runs": {"orbax": "orbax-checkpoint"},
    "analysis": {"matfree": "matfree"},
    "exact": {"flint": "python-flint", "latex2mathml": "latex2mathml"},
    "privacy": {"dp_accounting": "dp-accounting"},
    "tensorboard": {"tensorboardX": "tensorboardX"},
}
"""By extra, the top-level modules that it installs, each with the package to which it belongs."""


class MissingExtraError(ModuleNotFoundError):
    """An optional package is not installed. The message names the extra that installs it."""


@contextmanager
def optional_imports(user: str) -> Iterator[None]:
    """Turn the failed import of an optional package into one sentence that names its extra.

    Any other error passes unchanged, in particular that of an installed package which lacks a dependency of its own.

    Args:
      user: what needs the package; the sentence starts with it.

    Raises:
      MissingExtraError: an import in the body failed because a package listed in `EXTRAS` is not installed.
    """
    try:
        yield
    except MissingExtraError:
        raise
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if not any(module in packages for packages in EXTRAS.values()):
            raise
        raise missing_extra(module, user) from None


def missing_extra(module: str, user: str) -> MissingExtraError:
    """Return the error that says which extra installs a module.

    Args:
      module: a top-level module listed in `EXTRAS`.
      user: what needs the module; the sentence starts with it.
    """
    extra = next(extra for extra, packages in EXTRAS.items() if module in packages)
    return MissingExtraError(f'{user} needs {EXTRAS[extra][module]}: pip install "lur-jax[{extra}]"', name=module)
