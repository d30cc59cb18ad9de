"""One sentence where a package of the extra `exact` is missing; the counterpart of `lur._extras`."""

from collections.abc import Iterator
from contextlib import contextmanager

PACKAGES = {"flint": "python-flint", "latex2mathml": "latex2mathml", "rich": "rich"}
"""The modules that theory imports from the extra `exact`, and the packages to which they belong."""


@contextmanager
def exact_extra(user: str) -> Iterator[None]:
    """Turn the failed import of a package of the extra `exact` into one sentence.

    Args:
      user: the module that needs the package; the sentence starts with it.

    Raises:
      ModuleNotFoundError: the sentence, or unchanged the error of any other missing module.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in PACKAGES:
            raise
        raise ModuleNotFoundError(
            f'{user} needs {PACKAGES[module]}: pip install "lur-jax[exact]"', name=module
        ) from None
