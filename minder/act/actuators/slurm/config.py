"""The [engine] table of a job.toml, where Slurm owns the machines."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["SlurmConfig"]


class SlurmConfig(BaseModel):
    """kind: says that this table is Slurm's. job: the Slurm job's id; $SLURM_JOB_ID if not given. machines: how many of the allocation run
    ranks; the others are spares. nodes: with `minder watch`, where the job may come to run, as Slurm writes it ("n[1-64]"). agent,
    launcher: addresses of machines that no [[machines]] names, "http://{node}:9401". max_drained: nodes that minder may hold drained at
    once in the whole cluster. release: give an evicted node back out of the running allocation (needs `srun --no-kill`). restart:
    with `minder watch --act`, what follows a crash or a hang that is no machine's: a page, or a requeue of the job. retest: a command
    that must succeed before `minder machine return`, "{node}" in it is the machine. retest_deadline_s: so long it may take. standby_script:
    the batch script that starts agent and launcher on nodes that stand by; minder submits it where standbys are missing. deadline_s:
    for each call of a Slurm command. conf: a slurm.conf other than Slurm's own choice.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["slurm"]
    job: int | None = Field(default=None, ge=1)
    machines: int | None = Field(default=None, ge=1)
    nodes: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.,\[\]-]+$")
    agent: str | None = None
    launcher: str | None = None
    deadline_s: float = Field(default=5.0, gt=0, le=60)
    max_drained: int = Field(default=2, ge=1)
    release: bool = False
    restart: Literal["page", "requeue"] = "page"
    standby_script: str | None = None
    retest: tuple[str, ...] = ()
    retest_deadline_s: float = Field(default=600.0, gt=0)
    conf: str | None = None

    @field_validator("agent", "launcher")
    @classmethod
    def _names_the_node(cls, url: str | None) -> str | None:
        if url is not None and "{node}" not in url:
            raise ValueError(f'"{url}" is the same for every node: write it like "http://{{node}}:9401"')
        return url
