"""Claims as data, one package per paper. To add a paper, write its package and list it in `PAPERS`."""

import difflib
import runpy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from theory.claims import outsized_importance
from theory.claims.claim import Claim as Claim
from theory.claims.claim import Paper as Paper
from theory.claims.claim import Trial

PAPERS: tuple[Paper, ...] = (outsized_importance.PAPER,)

CLAIMS: tuple[Claim, ...] = tuple(claim for paper in PAPERS for claim in paper.claims)
"""The claims of all papers. Their ids are unique."""


def find(id: str, claims: Sequence[Claim] = CLAIMS) -> Claim:
    """Returns the claim with this id, in any case of letters.

    Raises:
      ValueError: if there is none; the message suggests the nearest ids.
    """
    by_id = {claim.id.lower(): claim for claim in claims}
    if id.lower() in by_id:
        return by_id[id.lower()]
    near = difflib.get_close_matches(id.lower(), by_id, n=3, cutoff=0.3)
    hint = f"; did you mean {', '.join(by_id[n].id for n in near)}?" if near else ""
    raise ValueError(f"claim must be one of the {len(by_id)} ids that `lur verify --list` shows, got {id!r}{hint}")


def claims_of_paper(name: str) -> tuple[Claim, ...]:
    """Returns the claims of one paper by its name.

    Raises:
      ValueError: if there is no such paper.
    """
    papers = {paper.name: paper for paper in PAPERS}
    if name not in papers:
        raise ValueError(f"paper must be one of {', '.join(papers)}, got {name!r}")
    return papers[name].claims


def claims_of_file(path: Path) -> tuple[Claim, ...]:
    """Returns the claims that a Python file defines as `CLAIMS`.

    `CLAIMS` is a sequence of `Claim`, or a dict from a name to ``(left, right, relation, space)``, the arguments of
    `theory.trial`, for a statement that is claimed to hold.

    Raises:
      ValueError: if the file is missing, or defines something else.
    """
    if not path.is_file():
        raise ValueError(f"file must be a Python file that defines CLAIMS, got {path}, which is no file")
    found: Any = runpy.run_path(str(path)).get("CLAIMS")
    claims: list[Claim] = []
    if isinstance(found, Mapping):
        for name, parts in found.items():
            if len(parts) != 4 or parts[2] not in ("<=", "=="):
                raise ValueError(f"CLAIMS[{name!r}] must be (left, right, '<=' or '==', space), got {parts!r}")
            left, right, relation, space = parts
            claims.append(Claim(str(name), path.name, 0, str(name), (Trial(space, left, right, relation),), "HOLDS"))
    elif isinstance(found, Sequence) and all(isinstance(claim, Claim) for claim in found):
        claims = list(found)
    if not claims:
        raise ValueError(f"{path} must define CLAIMS, a dict of statements or a sequence of Claim, got {found!r}")
    ids = [claim.id.lower() for claim in claims]
    if len(ids) != len(set(ids)):
        raise ValueError(f"the ids of CLAIMS in {path} must differ, got {', '.join(ids)}")
    return tuple(claims)
