"""The same job, made by hand, as for the rules."""

from __future__ import annotations

from tests.verdicts.conftest import make_scene, scene, start_s

__all__ = ["make_scene", "scene", "start_s"]
