"""What runs on machines and is none: a service that reports its own CPU and memory in words that sound like a machine's."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from minder.doctor.series import Found, Server

__all__ = ["Applications"]

# Names by which a runtime or a framework shows itself. A Go or Python exporter of hardware has go_ or python_ of its own: no sign.
_SIGNS = (
    r"jvm_.*|hikaricp_.*|tomcat_.*|jetty_.*|http_server_requests_.*|process_cpu_usage|system_load_average_1m|nodejs_.*|dotnet_.*|aspnetcore_.*"
    r"|kestrel_.*|puma_.*|rails_.*|gunicorn_.*|uwsgi_.*|django_.*|flask_.*|vllm:.*|sglang:.*|tgi_.*|nv_inference_.*|triton_.*|ray_.*"
)
_LABELS = ("application", "app_name")
_STEMS = ("jvm_", "process_", "container_", "vllm:", "sglang:", "nv_inference_", "ray_", "kube_", "kubelet_", "namespace_", "pod_", "go_")
# Recorded series of a whole, as the convention level:metric:operations says: a cluster, a job, a rack.
_WHOLES = "cluster|job|namespace|region|zone|site|dc|datacenter|rack|row|pool|partition|queue|user|team|tenant|global|fleet|total|all|org"
_SUM = rf"({_WHOLES})(_\w+)?:.*"
_OF_ONE = ("instance", "node", "host", "machine", "server")


@dataclass(frozen=True, slots=True)
class Applications:
    """jobs: scrape jobs that are applications."""

    jobs: frozenset[str]

    @classmethod
    def of(cls, server: Server, exporters: Collection[str]) -> Applications:
        """exporters: scrape jobs of which a mapping knows metrics. Raises SourceError."""
        return cls(frozenset(server.jobs(_SIGNS) - set(exporters) - {""}))

    def owns(self, item: Found) -> bool:
        """Whether a series is of an application, and not of the machine that it runs on."""
        return item.labels.get("job", "") in self.jobs or any(label in item.labels for label in _LABELS)

    def without(self, names: Sequence[str]) -> list[str]:
        """Names that are no runtime's, no container's, no sum over machines and none of ours."""
        return [name for name in names if not name.startswith((*_STEMS, "minder")) and not _is_sum(name)]

    def reader(self, read: Callable[[str], Sequence[Found]]) -> Callable[[str], list[Found]]:
        """`read` without series of applications."""
        return lambda pattern: [item for item in read(pattern) if not self.owns(item)]


def _is_sum(name: str) -> bool:
    return re.fullmatch(_SUM, name) is not None and not any(word in name.partition(":")[0] for word in _OF_ONE)
