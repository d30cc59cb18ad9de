"""Claims as data, one package per paper. To add a paper, write its package and list it in `PAPERS`."""

import difflib

from theory.claims import outsized_importance
from theory.claims.claim import Claim as Claim
from theory.claims.claim import Paper as Paper

PAPERS: tuple[Paper, ...] = (outsized_importance.PAPER,)

CLAIMS: tuple[Claim, ...] = tuple(claim for paper in PAPERS for claim in paper.claims)
"""The claims of all papers. Their ids are unique."""


def find(id: str) -> Claim:
    """Returns the claim with this id, in any case of letters.

    Raises:
      ValueError: if there is none; the message suggests the nearest ids.
    """
    claims = {claim.id.lower(): claim for claim in CLAIMS}
    if id.lower() in claims:
        return claims[id.lower()]
    near = difflib.get_close_matches(id.lower(), claims, n=3, cutoff=0.3)
    hint = f"; did you mean {', '.join(claims[n].id for n in near)}?" if near else ""
    raise ValueError(f"claim must be one of the {len(claims)} ids that `lur verify --list` shows, got {id!r}{hint}")
