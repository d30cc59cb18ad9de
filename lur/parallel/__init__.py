"""The clients axis on devices and processes."""
