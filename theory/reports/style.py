"""What reports need of a drawing style. `lur.plots` is one; the caller passes it in."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol


class DrawingStyle(Protocol):
    """How figures look and where they are written. A module with these names will do."""

    @property
    def COLOURS(self) -> Sequence[str]:
        """At least seven colours that can be told apart."""
        ...

    def panels(self, columns: int, **options: Any) -> tuple[Any, Any]:
        """Returns a matplotlib figure with a row of axes."""
        ...

    def save(self, figure: Any, folder: Path, name: str) -> tuple[Path, Path]:
        """Writes NAME.svg and NAME.png into a folder."""
        ...
