"""The public step-trace schema of the straggler study (arXiv 2505.05713, repository ByteDance-Seed/StragglerAnalysis): names and kinds."""

from __future__ import annotations

__all__ = [
    "ALIASES",
    "COLUMNS",
    "COMPUTE",
    "DATA_PARALLEL",
    "KINDS",
    "P2P",
    "PEER_OF",
    "is_communication",
    "reported_kind",
]

COLUMNS = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration", "seq_id", "mc", "mb_id", "gmc")

COMPUTE = ("forward-compute", "backward-compute", "gc", "optimizer")
PEER_OF = {"forward-send": "forward-recv", "backward-send": "backward-recv"}
P2P = ("forward-send", "forward-recv", "backward-send", "backward-recv")
# Collectives that every data-parallel rank enters. The gradient clip also spans all stages, embeddings the first and the last stage.
DATA_PARALLEL = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce", "optimizer-clip-main-grad")
KINDS = (*COMPUTE, *P2P, *DATA_PARALLEL, "layernorm-grads-all-reduce", "embedding-grads-all-reduce")
ALIASES = {"params-sync": "params-all-gather", "grads-sync": "grads-reduce-scatter"}  # the paper's own words


def is_communication(kind: str) -> bool:
    """Whether waiting for peers is part of the recorded duration."""
    return kind not in COMPUTE


def reported_kind(kind: str) -> str:
    """The name under which a slowdown is reported: both ends of a transfer are one cost."""
    return kind.split("-")[0] + "-pp-comm" if kind in P2P else kind
