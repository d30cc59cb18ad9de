"""The paper's figures and tables, one file each, and the runs and verdicts they share."""
