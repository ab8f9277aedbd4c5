"""What-if analysis of step traces: what slows a training step down, and by how much (arXiv 2505.05713; docs/step-traces.md)."""

from __future__ import annotations

from minder.diagnose.step_traces.analysis import Analysis, analyse
from minder.diagnose.step_traces.meta import JobLayout, read_layout
from minder.diagnose.step_traces.trace import StepTrace, build_trace, read_trace

__all__ = ["Analysis", "JobLayout", "StepTrace", "analyse", "build_trace", "read_layout", "read_trace"]
