"""Reports on the trials: errata, tightness atlas, Figure 1 and tables, and how mathematics is typeset in them."""
