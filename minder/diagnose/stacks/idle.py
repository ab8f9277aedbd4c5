"""Processes that are asked for nothing, and programs beside the job's own: what they are evidence of, and what they are not."""

from __future__ import annotations

from dataclasses import replace

from minder.diagnose.stacks.finding import Finding, accuse
from minder.diagnose.stacks.scene import Scene

__all__ = ["beside", "judge_idle", "spare_where_most_idle"]

_BESIDE = 0.5  # the most that another program's finding is worth where the job's own program is at work


def judge_idle(scene: Scene, finding: Finding) -> Finding:
    """All that work wait in a collective, and some have nothing to do: they will not come, as their function has ended or was never
    called. Where more idle than work, nothing says that they were to come."""
    if not scene.idle or len(scene.passive) < scene.size or scene.size < 2 or len(scene.idle) >= scene.size:
        return finding
    accused = tuple(accuse(member, 0.5, "idle while its peers wait: its training has ended, or was never called") for member in scene.idle)
    return Finding(accused, blame="software", because="some processes have nothing to do, the others wait in a collective for them")


def spare_where_most_idle(scene: Scene, finding: Finding) -> Finding:
    """Where no more work than idle, nothing shows that the job waits for those that work."""
    if not finding.evict or len(scene.idle) < scene.size:
        return finding
    because = f"{finding.because}; but {len(scene.idle)} processes are idle, and nothing shows that they wait for it"
    return replace(finding, evict=(), group=None, blame="unknown", because=because)


def beside(own: Finding, other: Finding, is_idle: bool) -> Finding:
    """The finding of the job's own program with that of another one on its machines. The other's says all where the own one idles."""
    if not other.suspects:
        return own
    if is_idle:
        return other
    added = tuple(replace(suspect, confidence=min(suspect.confidence, _BESIDE)) for suspect in other.suspects)
    because = "; ".join(words for words in (own.because, f"in another program on these machines: {other.because}") if words)
    return replace(own, suspects=(*own.suspects, *added), because=because)
