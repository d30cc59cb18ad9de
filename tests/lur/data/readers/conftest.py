"""Fixtures of the readers' tests."""

import os

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_fsync():
    """Skip fsync: these tests write thousands of small stores, and durability is not what they test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield
