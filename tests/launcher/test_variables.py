"""What a request may set in a worker's environment."""

from __future__ import annotations

import pytest

from minder.act.recovery.generation_plan import GenerationPlan
from minder.edge.launcher.requests import parse_request
from minder.edge.launcher.variables import check_patterns, refused_variable
from minder.model.errors import BadInputError, WireError


def test_what_a_controller_sends_is_allowed() -> None:
    own = {"MINDER_CHECKPOINT_DIR": "/c", "MINDER_STEP_PATTERN": "x", "NCCL_DEBUG": "INFO", "GLOO_SOCKET_IFNAME": "eth0", "TORCH_LOGS": "x"}
    own |= {"TORCH_NCCL_TRACE_BUFFER_SIZE": "2000", "NCCL_IB_HCA": "mlx5", "TORCHELASTIC_ERROR_FILE": "/tmp/e.json"}
    plan = GenerationPlan("j", 1, {0: "m0", 1: "m1"}, "10.0.0.5", 29500, "op", own)
    assert parse_request(plan.request_for("m1", 5.0), 1).assignments[0].env["RANK"] == "1"


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONHOME", "PATH"]
)  # fmt: skip
def test_what_runs_other_code_is_refused_whatever_the_launcher_permits(name: str) -> None:
    for permitted in ((), ("*",), (name,)):
        assert refused_variable({"RANK": "0", name: "/tmp/x"}, permitted).startswith(f"{name} is refused")
    with pytest.raises(WireError, match=f"slot 0: {name}"):
        request = {"operation_id": "o", "generation": 1, "desired": "run", "assignments": [{"slot": 0, "env": {name: "x"}}]}
        parse_request(request, 1, ("*",))


LOADS_CODE = [
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_CUDA_PATH", "NCCL_CONF_FILE", "TORCH_EXTENSIONS_DIR",
    "TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_CUTLASS_DIR", "TORCHINDUCTOR_CK_DIR", "TORCHINDUCTOR_CXX", "TORCHINDUCTOR_REDIS_URL",
    "TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE", "TORCHINDUCTOR_RUN_JIT_POST_COMPILE_HOOK", "TORCH_CUPTI_MONITOR_LIBCUPTI_PATH", "TORCH_HOME",
    "TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_PYTHON_NATIVE_USER_GRAPH_ORDER_FN", "TORCHINDUCTOR_CPP_MARCH",
    "TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "MINDER_PRELOAD", "MINDER_CODE_DIR",
]  # fmt: skip


@pytest.mark.parametrize("name", ["HOME", "BASH_ENV", "CUDA_VISIBLE_DEVICES", *LOADS_CODE])
def test_what_the_launcher_permits_is_allowed_and_nothing_else(name: str) -> None:
    why = refused_variable({name: "x"})
    assert name in why and f"--allow-env {name}" in why
    assert refused_variable({name: "x"}, (f"{name[:4]}*",)) == ""
    assert refused_variable({name: "x"}, ("HF_*",)) == why


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"A\nB": "x"}, {"RANK": "0\0"}, {"NCCL_Ä": "x"}])
def test_what_is_no_variable_is_refused(env: dict[str, str]) -> None:
    assert "is no variable" in refused_variable(env, ("*",))


@pytest.mark.parametrize("pattern", ["", "A=B", "LD_PRELOAD", "LD_*", "PYTHON*", "PATH", "[A-Z]*"])
def test_a_pattern_that_permits_nothing_is_bad_input(pattern: str) -> None:
    with pytest.raises(BadInputError, match="--allow-env"):
        check_patterns([pattern])
