"""The paper's claims, one file per section."""

import difflib

from theory.claims import (
    conditioning,
    convergence,
    convergence_rates,
    decay,
    distance,
    distance_rates,
    examples,
    hessian,
    maml,
    preliminaries,
    properties,
    sgd,
)
from theory.claims.claim import Claim as Claim

CLAIMS: tuple[Claim, ...] = (
    *preliminaries.CLAIMS,
    *sgd.CLAIMS,
    *maml.CLAIMS,
    *examples.CLAIMS,
    *properties.CLAIMS,
    *hessian.CLAIMS,
    *conditioning.CLAIMS,
    *distance.CLAIMS,
    *distance_rates.CLAIMS,
    *convergence.CLAIMS,
    *convergence_rates.CLAIMS,
    *decay.CLAIMS,
)


def find(id: str) -> Claim:
    """The claim with this id; an unknown one is an error that suggests the nearest."""
    ids = {claim.id.lower(): claim for claim in CLAIMS}
    if id.lower() in ids:
        return ids[id.lower()]
    near = difflib.get_close_matches(id.lower(), ids, n=3, cutoff=0.3)
    hint = f"; did you mean {', '.join(ids[n].id for n in near)}?" if near else ""
    raise ValueError(f"claim must be one of the {len(ids)} ids that `lur verify --list` shows, got {id!r}{hint}")
