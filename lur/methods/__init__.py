"""Local update methods as pure functions: the contract, and one method per file."""
