"""What is wrong with a run folder."""


class RunError(ValueError):
    """A run folder that is not what it should be: names the file, what was expected and what was found."""


class Damaged(RunError):
    """Something in it is not as it was written; an older copy may be good."""
