"""What exporters call their series, and in which units they count."""

from __future__ import annotations

from tests.doctor.exporters import dcgm, labelled, lines, node
from tests.doctor.recorded import Target
from tests.doctor.situation import GPU, NAMES, UTIL, WORK, bare, each, full, site

# What the series are called, and in which units.
_OTEL = "".join(
    (
        lines("hw_gpu_utilization_ratio", 0.97, card="hw_id", more='hw_gpu_task="general"'),
        lines("hw_gpu_utilization_ratio", 0.0, card="hw_id", more='hw_gpu_task="decoder"'),
        lines("hw_power_watts", 610, card="hw_id", more='hw_type="gpu"'),
        'hw_power_watts{hw_id="psu0",hw_type="power_supply"} 5200\n',
        lines("hw_temperature_celsius", 60, card="hw_id", more='hw_type="gpu"'),
        lines("hw_gpu_memory_usage_bytes", 6e10, card="hw_id"),
        lines("hw_gpu_memory_limit_bytes", 8e10, card="hw_id"),
        *(f'system_cpu_time_seconds_total{{cpu="cpu0",state="{state}"}} {value}\n' for state, value in (("idle", 5000), ("user", 3000))),
        *(f'system_cpu_utilization_ratio{{cpu="cpu0",state="{state}"}} {value}\n' for state, value in (("idle", 0.6), ("user", 0.4))),
        *(f'system_memory_usage_bytes{{state="{state}"}} {value}\n' for state, value in (("used", 6e11), ("free", 3e11), ("cached", 1e11))),
        *(f'system_network_io_bytes_total{{device="eth0",direction="{way}"}} 5e12\n' for way in ("receive", "transmit")),
    )
)
site(
    "OpenTelemetry by remote write: the host stands in target_info only",
    Target(
        "", "".join(
            labelled(_OTEL, job="hostmetrics", instance=f"0b1c-{n}")
            + f'target_info{{job="hostmetrics",instance="0b1c-{n}",host_name="{name}",os_type="linux"}} 1\n'
            for n, name in enumerate(NAMES, start=1)
        ), {}, True,
    ),
    values={**WORK, "memory_usage_ratio": (0.59, 0.61), "gpu_memory_used_ratio": (0.74, 0.76)},
)  # fmt: skip
site(
    "OpenTelemetry with host_name on every series",
    Target("otel", "".join(labelled(_OTEL, host_name=name) for name in NAMES), {"instance": "collector:8889"}),
    values={**WORK, "memory_usage_ratio": (0.59, 0.61)},
)
_TELEGRAF = "".join(
    (
        lines("nvidia_smi_utilization_gpu", 97, card="index"), lines("nvidia_smi_power_draw", 610, card="index"),
        lines("nvidia_smi_temperature_gpu", 60, card="index"), 'cpu_usage_idle{cpu="cpu-total"} 40\n', "mem_used_percent 60\n",
        'net_bytes_recv{interface="eth0"} 5e12\nnet_bytes_sent{interface="eth0"} 5e12\n',
    )
)  # fmt: skip
site(
    "Telegraf on every host, one output for all",
    Target("telegraf", "".join(labelled(_TELEGRAF, host=name) for name in NAMES), {"instance": "telegraf:9273"}),
    values={**WORK, "cpu_usage_ratio": (0.59, 0.61)},
)
_DATADOG = "".join(
    (
        lines("dcgm_gpu_utilization", 97), lines("dcgm_power_usage", 610), lines("dcgm_temperature", 60),
        lines("dcgm_sm_active", 0.8), "system_mem_pct_usable 0.4\n", 'system_cpu_idle 40\n',
    )
)  # fmt: skip
site(
    "an agent's names with dots made underscores",
    Target("openmetrics", "".join(labelled(_DATADOG, host=name) for name in NAMES), {"instance": "bridge:9000"}),
    families=None,
    values=WORK,
)
site(
    "one metric for everything, the quantity in a label",
    Target(
        "zabbix", "".join(
            f'zabbix_item_value{{host="{name}",key="{key}"}} {value}\n'
            for name in NAMES for key, value in (("nvml.gpu.utilization[0]", 97), ("nvml.gpu.power[0]", 610), ("system.cpu.util", 60))
        ), {"instance": "zbx:9224"},
    ),
    machines=(),
    families=None,
    fine=False,
    says=("no series of a machine's metrics",),
)  # fmt: skip
site(
    "gauges written as text",
    *each("smi", lambda name: 'gpu_info{gpu="0",util="97 %",power="610 W"} 1\n', "{m}:9400"),
    machines=(),
    families=None,
    fine=False,
    says=("no series of a machine's metrics",),
)
_AMD = "".join(
    (
        lines("amd_gpu_use_percent", 97, card="gpu_use_percent"),
        lines("amd_gpu_power", 610, card="gpu_power", more='productname="MI300X"'),
        lines("amd_gpu_junction_temperature", 60, card="gpu_junction_temperature"),
    )
)
_GAUDI = lines("habanalabs_utilization", 97, card="id", more='UUID="HL-{}"') + lines("habanalabs_power_mW", 610000, card="id")
site(
    "AMD's SMI exporter",
    *each("amd", lambda name: _AMD, "{m}:2021"),
    *each("node", node, "{m}:9100"),
    values=WORK,
)  # fmt: skip
site(
    "Gaudi",
    *each("gaudi", lambda name: _GAUDI.replace("HL", name), "{m}:41611"),
    *each("node", node, "{m}:9100"),
    values=WORK,
)  # fmt: skip
site(
    "Ascend in Kubernetes",
    *each("npu", lambda name: lines("npu_chip_info_utilization", 97, card="id", more='vdie_id="A-{}",pod_name="train-1",namespace="ml"')
        + lines("npu_chip_info_power", 610, card="id"), "10.244.0.{n}:8082", node="{m}", pod="npu-exporter-{n}"),
    *each("node", node, "10.0.3.{n}:9100", node="{m}"),
    values=WORK,
)  # fmt: skip
_TPU = "".join(f'kubernetes_io:node_accelerator_duty_cycle{{accelerator_id="{n}",make="cloud-tpu",model="tpu-v5p"}} 97\n' for n in range(4))
site("TPU on GKE", *each("gke", lambda name: _TPU, "gke:80", node_name="{m}"), families=GPU, values=UTIL)
_XPUM = "".join(
    (
        lines("xpum_engine_ratio", 97, card="dev_file", more='uuid="u{}",src="direct"'),
        lines("xpum_engine_group_ratio", 97, card="dev_file", more='type="compute",uuid="u{}"'),
        lines("xpum_engine_group_ratio", 0, card="dev_file", more='type="media",uuid="u{}"'),
        lines("xpum_power_watts", 610, card="dev_file", more='uuid="u{}"'),
        lines("xpum_temperature_celsius", 60, card="dev_file", more='location="gpu",uuid="u{}"'),
        lines("xpum_temperature_celsius", 70, card="dev_file", more='location="memory",uuid="u{}"'),
        lines("xpum_frequency_mhz", 1500, card="dev_file", more='location="gpu",type="actual",uuid="u{}"'),
    )
)  # fmt: skip
_XPUM = _XPUM.replace('dev_file="', 'dev_file="card')
site(
    "Intel GPUs with XPU Manager, whose ratios are percents",
    *each("xpum", lambda name: _XPUM, "{m}:29999"),
    *each("node", node, "{m}:9100"),
    values={**WORK, "gpu_temperature_celsius": (59, 61), "gpu_clock_hertz": (1.4e9, 1.6e9)},
)
site(
    "Netdata's parent for all hosts",
    Target(
        "netdata", "".join(
            f'netdata_nvidia_smi_gpu_{what}_average{{instance="{name}",uuid="{name}-{card}",dimension="gpu",chart="c{card}"}} {value}\n'
            for name in NAMES for card in (0, 1) for what, value in (("gpu_utilization_percentage", 97), ("power_draw_Watts", 610))
        ), {"instance": "parent:19999"}, True,
    ),
    families=GPU,
    values=WORK,
)  # fmt: skip
_MIG = "".join(
    f'{name}{{gpu="0",UUID="GPU-a",Hostname="H"{own}}} {value}\n'
    for name, value in (("DCGM_FI_DEV_POWER_USAGE", 512), ("DCGM_FI_DEV_GPU_TEMP", 60), ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.9))
    for own in ("", ',GPU_I_ID="1",GPU_I_PROFILE="3g.40gb"', ',GPU_I_ID="2",GPU_I_PROFILE="3g.40gb"')
)
site(
    "MIG slices",
    *each("dcgm", lambda name: _MIG.replace('"H"', f'"{name}"'), "10.1.0.{n}:9400"),
    *each("node", node, "10.1.0.{n}:9100"),
    values={"gpu_power_draw_watts": (500, 520), "gpu_graphics_activity_ratio": (0.85, 0.95)},
)
site(
    "virtual machines with vGPUs",
    *each("dcgm", lambda name: dcgm(name, name, (0,), more='vgpu="3251634191"'), "10.1.0.{n}:9400"),
    *each("node", node, "10.1.0.{n}:9100"),
    values=WORK,
)
site(
    "utilisation in percent on some machines, as a ratio on others",
    *each("rig", lambda name: lines("rig_gpu_util", 97 if name < "gpu-3" else 0.97) + lines("rig_gpu_power_watts", 610), "{m}:9400"),
    families=GPU,
    values={"gpu_power_draw_watts": (600, 620)},
    absent=("gpu_duty_cycle_ratio",),
    says=("rig_gpu_util may be gpu_duty_cycle_ratio", "not one unit"),
)
site(
    "one machine's DCGM utilisation is a hundred times smaller",
    *each("dcgm", lambda name: dcgm(name, name, busy=0.97 if name == "gpu-3" else 97.0), "{m}:9400"),
    *each("node", node, "{m}:9100"),
    values={"gpu_power_draw_watts": (500.0, 700.0)},
    says=("gpu-3", "times smaller"),
)
site(
    "temperatures in Fahrenheit",
    *each("rig", lambda name: lines("rig_gpu_temp_fahrenheit", 140) + lines("rig_gpu_power_watts", 610), "{m}:9400"),
    families=GPU,
    values={"gpu_power_draw_watts": (600, 620)},
    absent=("gpu_temperature_celsius",),
    says=("rig_gpu_temp_fahrenheit may be gpu_temperature_celsius",),
)
site(
    "temperatures in Kelvin",
    *each("rig", lambda name: lines("rig_gpu_temp_k", 333) + lines("rig_gpu_power_watts", 610), "{m}:9400"),
    families=GPU,
    absent=("gpu_temperature_celsius",),
    says=("rig_gpu_temp_k may be gpu_temperature_celsius",),
)
site(
    "power in milliwatts, named by its value only",
    *each("rig", lambda name: lines("rig_gpu_power", 610000) + lines("rig_gpu_util_pct", 97), "{m}:9400"),
    families=GPU,
    values=WORK,
)
_NO_VALUE = {"gpu-2": "NaN", "gpu-3": "+Inf", "gpu-4": "9223372036854775794"}


def _with_blanks(name: str) -> str:
    power = lines("rig_gpu_power_watts", _NO_VALUE.get(name, 610), (0,)) + lines("rig_gpu_power_watts", 610, (1,))
    return power + lines("rig_gpu_util_pct", 97)


site(
    "NaN, infinities and blanks among the values of a name that no mapping knows",
    *each("rig", _with_blanks, "{m}:9400"),
    families=GPU,
    values=WORK,
)  # fmt: skip
site(
    "profiling fields that read 0 on every machine at work",
    *each(
        "dcgm", lambda name: dcgm(name, name) + lines("DCGM_FI_PROF_SM_ACTIVE", 0) + lines("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0), "{m}:9400"
    ),
    *each("node", node, "{m}:9100"),
    values=WORK,
    says=("gpu_sm_activity_ratio, gpu_tensor_activity_ratio", "0 on every machine"),
)
site(
    "a metric with hundreds of series of processes",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    *each("procs", lambda name: "".join(f'gpu_process_util_percent{{pid="{pid}",gpu="0"}} 1\n' for pid in range(200)), "{m}:9256"),
    values=WORK,
)
site(
    "an exporter's own name for the machine, and its address in the label of all exporters",
    *each("dcgm", bare, "10.1.0.{n}:9400", asset="A-00{n}", rack="r1"),
    *each("node", node, "10.1.0.{n}:9100", asset="A-00{n}", rack="r1"),
    values=WORK,
)


def _of_kind(device: str) -> str:
    words = ("UTILIZATION", "CARD_POWER", "TEMPERATURE") if device.isupper() else ("_utilization", "_power_watts", "_temperature")
    return "".join(lines(device + word, value, card="card") for word, value in zip(words, (97, 610, 60), strict=True))


for _device in ("dcu", "mlu", "gcu", "ppu", "mthreads_gpu", "mx_gpu", "RBLN_DEVICE_STATUS:"):
    site(
        f"an accelerator's own exporter: {_device}",
        *each("accel", lambda name, device=_device: _of_kind(device), "{m}:9400"),
        *each("node", node, "{m}:9100"),
        values=WORK,
    )
_NEURON = "".join(
    (
        *(f'neuroncore_utilization_ratio{{neuroncore="{core}",runtime_tag="1"}} 0.97\n' for core in range(4)),
        "system_memory_used_bytes 6e11\nsystem_memory_total_bytes 1e12\n",
        *(f'system_vcpu_usage_ratio{{usage_type="{kind}"}} {value}\n' for kind, value in (("user", 0.4), ("system", 0.2), ("idle", 0.4))),
    )
)
site(
    "Trainium with neuron-monitor",
    *each("neuron", lambda name: _NEURON, "{m}:8000"),
    families=frozenset({"gpu", "host"}),
    values={**UTIL, "memory_usage_ratio": (0.59, 0.61), "cpu_usage_ratio": (0.59, 0.61)},
)
site(
    "GPU metrics out of node_exporter's text files",
    *each(
        "node",
        lambda name: (
            node(name)
            + lines("nvidia_smi_utilization_gpu_ratio", 0.97, card="uuid")
            + lines("nvidia_smi_power_draw_watts", 610, card="uuid")
        ),
        "{m}:9100",
    ),
    values=WORK,
)
site(
    "node_exporter of 2017, whose names have no units",
    *each("dcgm", full, "{m}:9400"),
    *each(
        "node",
        lambda name: (
            "node_memory_MemAvailable 4e11\nnode_memory_MemTotal 1e12\n"
            'node_network_receive_bytes{device="eth0"} 5e12\nnode_network_transmit_bytes{device="eth0"} 5e12\n'
        ),
        "{m}:9100",
    ),
    values={**WORK, "memory_usage_ratio": (0.59, 0.61)},
)
site(
    "a GPU without power reading on one machine",
    *each(
        "dcgm",
        lambda name: full(name) if name != "gpu-2" else "".join(line + "\n" for line in full(name).splitlines() if "POWER" not in line),
        "{m}:9400",
    ),
    *each("node", node, "{m}:9100"),
    values=UTIL,
)
site(
    "utilisation in percent of an idle cluster, with a day of work behind it unknown",
    *each("rig", lambda name: lines("rig_gpu_util", 0) + lines("rig_gpu_power_watts", 70), "{m}:9400"),
    families=GPU,
    absent=("gpu_duty_cycle_ratio",),
    says=("read while idle",),
)
site(
    "a fraction that is called percent",
    *each("rig", lambda name: lines("rig_gpu_util_percent", 0.97) + lines("rig_gpu_power_watts", 610), "{m}:9400"),
    families=GPU,
    absent=("gpu_duty_cycle_ratio",),
    says=("rig_gpu_util_percent may be gpu_duty_cycle_ratio",),
)
site(
    "limits, averages and peaks beside the reading",
    *each(
        "rig",
        lambda name: "".join(
            lines(f"rig_gpu_{word}", value)
            for word, value in (
                ("power_watts_max", 700),
                ("power_limit_watts", 700),
                ("power_watts", 610),
                ("temp_shutdown", 95),
                ("util_pct", 97),
            )
        ),
        "{m}:9400",
    ),
    families=GPU,
    values={"gpu_power_draw_watts": (600, 620), **UTIL},
    absent=("gpu_temperature_celsius",),
)
site(
    "names in camel case",
    *each("rig", lambda name: lines("rigGpuUtilizationPercent", 97) + lines("rigGpuPowerWatts", 610), "{m}:9400"),
    families=GPU,
    values=WORK,
)
site(
    "an exporter of the chassis gives all machines' power by slot",
    *each("dcgm", full, "{m}:9400"),
    *each("node", node, "{m}:9100"),
    Target("redfish", "".join(f'redfish_gpu_power_watts{{slot="{n}"}} 4000\n' for n in range(4)), {"instance": "chassis-1:9610"}),
    values=WORK,
)
