"""The [engine] table of a job.toml, where Kubernetes owns the machines."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["ALIKE", "KubernetesConfig"]

# Labels in which a spare must equal the job's machines, where both have them: GPU feature discovery's device and driver.
ALIKE = ("nvidia.com/gpu.product", "nvidia.com/gpu.count", "nvidia.com/cuda.driver-version.full", "nvidia.com/cuda.driver.major")
_DNS = r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$"


class KubernetesConfig(BaseModel):
    """kind: says that this table is Kubernetes'. job: the workload's name. workload: what it is. namespace: where it runs. machines: how
    many of its pods' nodes run ranks; the others are spares. kubeconfig, context: as kubectl knows them; inside a pod, its own service
    account if no kubeconfig is given. nodes: a label selector of the nodes where the job may come to run ("pool=train"), every node if not
    given. agent, launcher: addresses of machines that no [[machines]] names, with {node}, {node_ip} or {pod_ip}. home: the namespace of
    minder's own register. hardware: the annotation or label that holds a node's serial number; else spec.providerID, else the system's
    UUID. max_held: nodes that minder may hold at once in the whole cluster. alike: labels in which a spare must equal the job's machines.
    kueue: "admission" says that Kueue is configured not to evict or requeue what it has admitted. eviction_deadline_s: how long a
    PodDisruptionBudget is waited for. release: also evict the job's pod from an evicted machine. restart: what follows a crash or a
    hang that is no machine's: a page, always. standby_deployment: a Deployment of the namespace whose pods run agent and launcher on nodes
    that stand by; minder makes it larger where standbys are missing. retest: a command that must succeed before
    `minder machine return`, "{node}" is the machine. retest_deadline_s: so long it may take. deadline_s: for each call of the API server.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["kubernetes"]
    job: str = Field(pattern=_DNS)
    workload: Literal["Job", "JobSet", "PyTorchJob"] = "Job"
    namespace: str = Field(default="default", pattern=_DNS)
    kubeconfig: str | None = None
    context: str | None = None
    home: str = Field(default="minder", pattern=_DNS)
    machines: int | None = Field(default=None, ge=1)
    nodes: str | None = None
    agent: str | None = None
    launcher: str | None = None
    hardware: str | None = None
    alike: tuple[str, ...] = ALIKE
    kueue: Literal["none", "admission"] = "none"
    deadline_s: float = Field(default=5.0, gt=0, le=60)
    eviction_deadline_s: float = Field(default=60.0, gt=0, le=600)
    max_held: int = Field(default=2, ge=1)
    release: bool = False
    restart: Literal["page"] = "page"
    standby_deployment: str | None = Field(default=None, pattern=_DNS)
    retest: tuple[str, ...] = ()
    retest_deadline_s: float = Field(default=600.0, gt=0)

    @field_validator("agent", "launcher")
    @classmethod
    def _names_the_machine(cls, url: str | None) -> str | None:
        if url is not None and not any(part in url for part in ("{node}", "{node_ip}", "{pod_ip}")):
            raise ValueError(f'"{url}" is the same for every node: write it like "http://{{node_ip}}:9401"')
        return url
