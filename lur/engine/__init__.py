"""Many rounds in one compiled program."""
