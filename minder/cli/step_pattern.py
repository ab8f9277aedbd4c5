"""`--step-pattern`: one option and one meaning in run, watch, agent and launch."""

from __future__ import annotations

from typing import Annotated

import typer

from minder.model.log import say

__all__ = ["OldStepPattern", "StepPattern", "chosen_pattern"]

StepPattern = Annotated[
    str | None,
    typer.Option(help="Regular expression with a group `step`, such as 'update=(?P<step>\\d+)', for the lines of the job's log."),
]
OldStepPattern = Annotated[str | None, typer.Option("--log-pattern", hidden=True)]


def chosen_pattern(pattern: str | None, old: str | None) -> str | None:
    """The pattern, checked. old: what `--log-pattern` said, the option's name until 0.8. Raises BadInputError."""
    from minder.edge.signals.steps import check_step_pattern
    from minder.model.errors import BadInputError

    if old is not None and pattern is not None:
        raise BadInputError("--step-pattern and --log-pattern are the same option: give the first")
    found = pattern if pattern is not None else old
    if found is not None:
        check_step_pattern(found)
    if old is not None:
        say("minder: --log-pattern is called --step-pattern now; the old name goes with the next version")
    return found
