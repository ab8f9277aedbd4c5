"""What stands in the same Prometheus and is no machine of the job, and targets that give nothing."""

from __future__ import annotations

from tests.doctor.exporters import dcgm, lines, node
from tests.doctor.recorded import Target
from tests.doctor.situation import NAMES, WORK, each, full, site

# What stands in the same Prometheus and is no machine of the job.
site(
    "storage servers and login nodes beside the GPU machines",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    *each("node", node, "{m}:9100", names=("login-1", "login-2")),
    *each("node-storage", node, "{m}:9100", names=("oss-1", "oss-2", "mds-1")),
    values=WORK,
    says=("left aside",),
)
site(
    "a login node with one small GPU",
    *each("dcgm", lambda name: dcgm(name, name, range(8)), "{m}:9400"),
    Target("dcgm", dcgm("login-1", "login-1", (0,), busy=0.0), {"instance": "login-1:9400"}),
    *each("node", node, "{m}:9100", names=(*NAMES, "login-1")),
    machines=(*NAMES, "login-1"),
    says=("login-1 has 1",),
)
site(
    "switches, power strips and management boards",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("switch", lines("port_roce_bytes_total", 5e9, card="port", more='switch="leaf-1"'), {"instance": "leaf-1:9"}),
    *each("ipmi", lambda name: 'ipmi_power_watts{name="PSU"} 5200\nipmi_temperature_celsius{name="GPU1 Temp"} 60\n', "{m}-bmc:9290"),
    values=WORK,
    absent=("rdma_throughput_bytes_per_second",),
)  # fmt: skip
site(
    "a scheduler's exporter counts GPUs",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target(
        "slurm",
        "slurm_gpus_utilization 0.93\nslurm_gpu_mem_percent 80\n" + 'slurm_node_cpu_alloc{node="gpu-1"} 12\n',
        {"instance": "ctl:8080"},
    ),
    values=WORK,
)
site(
    "half of the machines without a network exporter",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100", names=NAMES[:2]),
    *each("node", lambda name: node(name, network=False), "{m}:9100", names=NAMES[2:]),
    families=None,
    says=("gpu-3 lacks network", "gpu-4 lacks network"),
    fine=False,
)
site(
    "an exporter that answers, and nothing of it is stored",
    *each("dcgm", full, "{m}:9400", names=NAMES[:3]),
    Target("dcgm", "", {"instance": "gpu-4:9400"}),
    *each("node", node, "{m}:9100"),
    machines=NAMES[:3],
    families=None,
    says=("gpu-4", "its target of dcgm answers"),
    fine=False,
)
site(
    "an exporter whose scrape fails",
    *each("dcgm", full, "{m}:9400", names=NAMES[:3]),
    Target("dcgm", "", {"instance": "gpu-4:9400"}, up=False),
    *each("node", node, "{m}:9100"),
    machines=NAMES[:3],
    families=None,
    says=("gpu-4", "its scrape by dcgm fails"),
    fine=False,
)
site(
    "a machine that left three minutes ago",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("dcgm", dcgm("gpu-9", "gpu-9"), {"instance": "gpu-9:9400"}, age_s=180.0),
    Target("node", node("gpu-9"), {"instance": "gpu-9:9100"}, age_s=180.0),
    values=WORK,
    says=("gpu-9", "no sample"),
)
site(
    "a machine renamed three minutes ago",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("dcgm", dcgm("gpu-4", "old-4"), {"instance": "gpu-4:9400"}, age_s=180.0),
    values=WORK,
)
_AMD = "".join(
    lines(name, value, card="gpu_id", more='card_model="MI300X",hostname="HOST"')
    for name, value in (("gpu_gfx_activity", 97), ("gpu_package_power", 610), ("gpu_junction_temperature", 60))
)
site(
    "two machines with NVIDIA's and two with AMD's exporter, one node_exporter for all",
    *each("dcgm", full, "10.1.0.{n}:9400", names=NAMES[:2]),
    *each("amd", lambda name: _AMD.replace("HOST", name), "10.2.0.{n}:5000", names=NAMES[2:]),
    *each("node", node, "10.3.0.{n}:9100"),
    values=WORK,
)
site(
    "one scrape job for all kinds of exporters, with applications among them",
    *each("pods", full, "{m}:9400"),
    *each("pods", node, "{m}:9100"),
    Target("pods", "http_requests_total 5\nqueue_length 7\n", {"instance": "shop-1:8080"}),
    Target("pods", "", {"instance": "shop-2:8080"}),
    values=WORK,
    says=("shop-2: its target of pods answers",),
    unsaid=("shop-1",),
    fine=False,
)
