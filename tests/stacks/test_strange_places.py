"""One rank stands alone in a place that no table lists by that name: what the rest of its stack says of it.

A profiler, a compiler, a lock or a tear-down of another library is the program's; a program that was begun by such a tool is not in it.
"""

from __future__ import annotations

import pytest

from minder.diagnose.stacks import Capture, Finding, Frame, Process, Thread, analyse
from minder.diagnose.stacks.records import make_frame, native_frame

WAIT = "all_reduce (torch/distributed/distributed_c10d.py:2806) / reduce_grads (trainer.py:210)"
STEP = "train_step (trainer.py:150) / main (train.py:50) / <module> (train.py:55)"
READ = "read (<frozen io>:300) / load_index (app/meta.py:31)"


def frames_of(text: str) -> tuple[Frame, ...]:
    """ "function (file:line) / ...", innermost first; a library in the place of file and line is compiled code."""
    found = []
    for part in text.split(" / "):
        function, _, place = part.strip().removesuffix(")").rpartition(" (")
        file, _, line = place.rpartition(":")
        found.append(make_frame(function, file, int(line)) if line.isdigit() else native_frame(function, place))
    return tuple(found)


def look(odd: str, usual: str = WAIT, tail: str = STEP, rank: int = 5, beside: str = "") -> Finding:
    """Eight machines: the others in `usual`. beside: the main thread of each, where another thread trains."""

    def process(at: int) -> Process:
        train = Thread((*frames_of(odd if at == rank else usual), *frames_of(tail)), "trainer", 900 + at, main=not beside)
        main = (Thread(frames_of(beside), "MainThread", 100 + at, main=True),) if beside else ()
        return Process(f"node-{at}", 100 + at, at, threads=(*main, train))

    return analyse(Capture(tuple(process(at) for at in range(8))))


TOOLS = {
    "a tracer that saves": "dump (json/__init__.py:179) / generate_report (viztracer/report_builder.py:200)",
    "a profile of another vendor": "analyse (torch_npu/profiler/analysis/_npu_profiler.py:30)",
    "a memory snapshot": "dump_snapshot (llm/memory.py:40)",
    "a handler that packs": "write (gzip.py:200) / _trace_handler (composer/profiler/torch_profiler.py:200)",
    "a compiler of kernels": "compile_kernel (newlang/lang/kernel_impl.py:700)",
    "a build by a child": "communicate (subprocess.py:1209) / _run_nvcc (mykernels/build.py:3)",
    "graphs being recorded": "capture_end (torch/cuda/graphs.py:90) / capture_model (vllm/v1/worker/gpu_model_runner.py:3300)",
    "a warm-up": "_grouped_gemm_warmup (vllm/model_executor/warmup/deep_gemm_warmup.py:200)",
    "a trace of a graph": "create_joint (torch/_functorch/_aot_autograd/traced_function_transforms.py:200)",
    "a report of an error": "dump (json/__init__.py:180) / _write_error_file"
    " (torch/distributed/elastic/multiprocessing/errors/error_handler.py:60)",
    "a traceback": "updatecache (linecache.py:140) / format_stack_entry (traceback.py:400) / print_exc (traceback.py:180)",
    "a tear-down": "cpu (lightning/fabric/utilities/device_dtype_mixin.py:90) / teardown (lightning/pytorch/strategies/strategy.py:530)",
    "an end": "destroy (deepspeed/runtime/engine.py:600)",
    "the interpreter's lock, 3.13": "__new_sem_clockwait64 (libc.so.6) / _PySemaphore_Wait (libpython3.13.so.1.0)"
    " / tstate_wait_attach (libpython3.13.so.1.0)",
    "the interpreter's lock, from Rust": "syscall (libc.so.6) / pyo3::internal::state::AttachGuard::attach (tokenizers.abi3.so)",
    "all threads stopped": "PyEvent_WaitTimed (libpython3.13t.so.1.0) / stop_the_world (libpython3.13t.so.1.0)",
    "a mutex of Abseil": "syscall (libc.so.6) / absl::lts_20230802::synchronization_internal::FutexWaiter::Wait (x.so)"
    " / AbslInternalPerThreadSemWait_lts_20230802 (x.so) / absl::lts_20230802::Mutex::LockSlow (x.so)",
    "a mutex of Rust": "syscall (libc.so.6) / std::sys::sync::mutex::futex::Mutex::lock_contended (libtok.so)",
    "a shared mutex": "folly::detail::nativeFutexWaitImpl (libf.so) / folly::SharedMutexImpl::lockExclusiveImpl (libf.so)",
    "a debugger of devices": "poll (libc.so.6) / ?? (libcudadebugger.so.1) / ?? (libcuda.so.1) / cuLaunchKernel (libcuda.so.1)",
    "memory that is given back": "madvise (libc.so.6) / mtrim (libc.so.6) / __malloc_trim (libc.so.6) / ffi_call (libffi.so.8)",
    "a lock of OpenMP": "__kmp_acquire_queuing_lock (libomp.so)",
}


@pytest.mark.parametrize("place", sorted(TOOLS))
def test_tools_locks_and_ends_of_other_libraries_evict_no_machine(place: str) -> None:
    finding = look(TOOLS[place])
    assert finding.evict == () and finding.blame in ("software", "workload")
    assert [suspect.machine for suspect in finding.suspects] == ["node-5"]


SERVICES = {
    "an answer over HTTP": "readinto (socket.py:718) / _read_status (http/client.py:292) / begin (http/client.py:331)",
    "its body": "read (http/client.py:479) / _fp_read (urllib3/response.py:880) / stream (urllib3/response.py:1000)",
    "an answer over TLS": "readinto (ssl.py:1167) / _read_status (http/client.py:292)",
    "a cache": "_read_from_socket (redis/_parsers/socket.py:60) / readline (redis/_parsers/socket.py:130) / get_features (feats.py:9)",
    "a data base": "receive_message (pymongo/network.py:200) / command (pymongo/network.py:190)",
    "a queue": "_read_response (kafka/conn.py:80) / poll (kafka/client_async.py:600)",
    "a shell elsewhere": "read_all (paramiko/packet.py:300) / read_message (paramiko/packet.py:450)",
    "a stream": "readexactly (asyncio/streams.py:740) / fetch (svc.py:8)",
    "a client of another protocol": "readline (imaplib.py:300)",
    "a connection of a library that no table has": "read_frame (bunnyline/connection.py:300) / next_event (bunnyline/loop.py:500)",
    "a message, by its name": "receive_frame (app/feed.py:40)",
    "a socket of its own": "write (socket.py:740) / send_state (app/tracker.py:80)",
    "a wait that says not for what": "wait (libs/coord.py:20) / step_end (libs/coord.py:250)",
    "a wait by its name": "wait_for_tokens (app/feed.py:88)",
    "uneven inputs": "_notify_procs_to_sync (torch/distributed/algorithms/join.py:270)",
}


@pytest.mark.parametrize("place", sorted(SERVICES))
def test_what_is_read_from_a_service_is_no_file_and_a_wait_is_no_work(place: str) -> None:
    finding = look(SERVICES[place])
    assert finding.evict == () and finding.blame != "machine"
    assert not any("a file" in suspect.reason for suspect in finding.suspects)


def test_a_debugger_on_one_machine_and_a_read_on_another_evict_neither() -> None:
    def process(at: int) -> Process:
        place = {2: "set_trace (pdb.py:1900)", 5: READ}.get(at, WAIT)
        return Process(f"node-{at}", 100 + at, at, threads=(Thread((*frames_of(place), *frames_of(STEP)), "t", 100 + at, main=True),))

    finding = analyse(Capture(tuple(process(at) for at in range(8))))
    assert (finding.evict, finding.blame) == ((), "unknown")
    assert {suspect.machine for suspect in finding.suspects} == {"node-2", "node-5"}


BEGUN = {
    "a debugger": "run_file (debugpy/server/cli.py:284) / main (debugpy/server/cli.py:430) / <module> (debugpy/__main__.py:39)",
    "pdb": "run (bdb.py:600) / _run (pdb.py:1700) / main (pdb.py:1730) / <module> (pdb.py:1800)",
    "cProfile": "runctx (cProfile.py:100) / main (cProfile.py:190) / <module> (cProfile.py:200)",
    "a tracer": "run_code (viztracer/main.py:330) / main (viztracer/main.py:500) / <module> (viztracer:8)",
    "a decorator of a profiler": "wrapper (verl/utils/profiler/profile.py:260) / <module> (x.py:3)",
    "a decorator of a logger": "catch_wrapper (loguru/_logger.py:1280) / <module> (x.py:3)",
    "a decorator of errors": "wrapper (torch/distributed/elastic/multiprocessing/errors/__init__.py:355) / <module> (x.py:3)",
}


@pytest.mark.parametrize("tool", sorted(BEGUN))
def test_a_program_that_a_tool_began_is_not_in_the_tool(tool: str) -> None:
    finding = look(READ, tail=f"{STEP} / {BEGUN[tool]}")
    assert (finding.evict, finding.blame) == (("node-5",), "machine")


RUNS = {
    "compiled code": "call (/tmp/torchinductor_root/ab/cabc.py:300) / __call__ (torch/_inductor/codecache.py:1131)"
    " / runtime_wrapper (torch/_functorch/_aot_autograd/runtime_wrappers.py:250)",
    "a stage that was exported": "forward (torch/export/unflatten.py:300)",
    "a kernel behind its decorator": "wrapper (aiter/jit/core.py:900) / fused_moe (aiter/fused_moe.py:200)",
    "a kernel of Triton past tuning": "run (triton/runtime/jit.py:700) / run (triton/runtime/autotuner.py:240)",
    "a file of profiles": "read (<frozen io>:3) / fetch (features/user_profile.py:9)",
    "own code": "gather_rows (app/rows.py:4)",
    "the driver": "ioctl (libc.so.6) / ?? (libcuda.so.1) / cuLaunchKernel (libcuda.so.1)",
}


@pytest.mark.parametrize("place", sorted(RUNS))
def test_what_only_sounds_like_a_tool_is_judged_as_ever(place: str) -> None:
    finding = look(RUNS[place])
    assert (finding.evict, finding.blame) == (("node-5",), "machine")


@pytest.mark.parametrize(
    "main",
    [
        "poll (zmq/sugar/poll.py:106) / recv (zmq/sugar/socket.py:800) / loop (ctl.py:9) / <module> (ctl.py:30)",
        "wait (threading.py:331) / _wait_once (grpc/_common.py:100) / wait_for_termination (grpc/_server.py:1400) / <module> (ctl.py:120)",
        "recv_into (socket.py:706) / read_int (pyspark/serializers.py:590) / main (pyspark/worker.py:1250) / <module> (daemon.py:200)",
        "mainloop (tkinter/__init__.py:1500) / <module> (gui.py:9)",
    ],
)
def test_the_thread_that_trains_decides_whatever_the_main_thread_listens_to(main: str) -> None:
    tail = "train_step (trainer.py:150) / run (threading.py:917) / _bootstrap_inner (threading.py:980) / _bootstrap (threading.py:937)"
    assert look(READ, tail=tail, beside=main).evict == ("node-5",)
