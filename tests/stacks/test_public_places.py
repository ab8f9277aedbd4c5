"""Where one rank of eight stands in hangs that people reported, and in like ones: by the number of the thread, or in words.

Locks, tools and ends of the program, and collectives of another group, evict no machine; work of the rank's own does.
"""

from __future__ import annotations

import pytest
from test_strange_places import WAIT, look

# where the rank stands, where the others do, whether its machine goes
PLACES = {
    "deepspeedai/DeepSpeed#6524": (
        "partition_grads (deepspeed/runtime/zero/stage3.py:1500) / wrapped_fn (deepspeed/utils/nvtx.py:18)"
        " / __reduce_and_partition_ipg_grads (deepspeed/runtime/zero/stage3.py:1309)",
        WAIT,
        False,
    ),
    "NVIDIA/nccl#829": (
        "?? (libcuda.so.1) / ?? (libcuda.so.1) / cudaStreamSynchronize (libcudart.so.11.0)"
        " / ncclStrongStreamSynchronize (libnccl.so.2) / commDestroySync (libnccl.so.2)"
        " / commReclaim (libnccl.so.2) / ncclCommAbort (libnccl.so.2)",
        WAIT,
        False,
    ),
    "NVIDIA/nccl#1013": (
        "__GI___lll_lock_wait (libc.so.6) / lll_mutex_lock_optimized (libc.so.6)"
        " / ___pthread_mutex_lock (libc.so.6)"
        " / c10d::ProcessGroupNCCL::checkForNCCLErrorsInternal (libtorch_cuda.so)"
        " / c10d::ProcessGroupNCCL::abort (libtorch_cuda.so)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#149153": (
        "syscall (libc.so.6) / std::__atomic_futex_unsigned_base::_M_futex_wait_until_steady (libstdc++.so.6)"
        " / c10d::ProcessGroupNCCL::waitForFutureOrTimeout (libtorch_cuda.so)"
        " / c10d::ProcessGroupNCCL::abort (libtorch_cuda.so)",
        WAIT,
        False,
    ),
    "a communicator that is torn down": (
        "pthread_join (libpthread.so.0) / commFree (libnccl.so.2) / commCleanup (libnccl.so.2)"
        " / commReclaim (libnccl.so.2) / ncclCommAbort (libnccl.so.2)",
        WAIT,
        False,
    ),
    "NVIDIA/nccl#1774": (
        "clock_nanosleep (libc.so.6) / nanosleep (libc.so.6) / usleep (libc.so.6) / ?? (libnccl.so.2)"
        " / ?? (libnccl.so.2) / pncclCommInitRankConfig (libnccl.so.2) / c10d::NCCLComm::create (libtorch_cuda.so)"
        " / c10d::ProcessGroupNCCL::initNCCLComm (libtorch_cuda.so)"
        " / c10d::ProcessGroupNCCL::recv (libtorch_cuda.so)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#60158": (
        "futex_abstimed_wait_cancelable (libpthread.so.0) / do_futex_wait (libpthread.so.0)"
        " / __new_sem_wait_slow (libpthread.so.0) / _nv031303cupti (libtorch_cpu.so) / ?? (libtorch_cpu.so)",
        WAIT,
        False,
    ),
    "pytorch/kineto#953": (
        "libkineto::CuptiActivityProfiler::performRunLoopStep (libtorch_cpu.so)"
        " / libkineto::ActivityProfilerController::step (libtorch_cpu.so) / step (torch/optim/optimizer.py:130)",
        WAIT,
        False,
    ),
    "pytorch/kineto#126": (
        "key_averages (torch/autograd/profiler.py:300) / trace_handler (train.py:9)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#77113": (
        "broadcast_object_list (torch/distributed/distributed_c10d.py:2900)"
        " / _check_missing_keys_on_rank (torch/distributed/fsdp/_optim_utils.py:1500)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#77562": (
        "reduce (torch/distributed/distributed_c10d.py:2200) / validate (train.py:120)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#130102": (
        "barrier (torch/distributed/distributed_c10d.py:3600) / sync_group (groups.py:10)",
        WAIT,
        False,
    ),
    "sgl-project/sglang#33289": (
        "all_gather_into_tensor (sglang/srt/distributed/device_communicators/pynccl.py:150)"
        " / _get_logits (sglang/srt/layers/logits_processor.py:300)",
        "broadcast_pyobj (sglang/srt/utils.py:900) / recv_requests (sglang/srt/managers/scheduler.py:700)",
        False,
    ),
    "verl-project/verl#1158": (
        "all_to_all_single (torch/distributed/distributed_c10d.py:3800) / all_to_all_tensor (verl/utils/ulysses.py:90)",
        WAIT,
        False,
    ),
    "mlcommons/storage#172": (
        "MPIDI_CH3I_Progress (libmpi.so.12) / MPIR_Wait_impl.isra.0 (libmpi.so.12) / MPIC_Recv (libmpi.so.12)"
        " / MPIR_Bcast_intra_binomial (libmpi.so.12) / PMPI_Bcast_c (libmpi.so.12)",
        "MPIDI_CH3I_Progress (libmpi.so.12) / MPIR_Wait_impl.isra.0 (libmpi.so.12) / MPIC_Sendrecv (libmpi.so.12)"
        " / MPIR_Allreduce_intra (libmpi.so.12) / PMPI_Allreduce (libmpi.so.12)",
        False,
    ),
    "NVIDIA/TensorRT-LLM#2560": (
        "poll (libc.so.6) / ?? (libcudadebugger.so.1) / ?? (libcuda.so.1) / cuLaunchKernel (libcuda.so.1)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#116798": (
        "pthread_cond_timedwait (libpthread.so.0) / take_gil (python3.10) / PyEval_AcquireThread (python3.10)"
        " / PyGILState_Ensure (python3.10) / pybind11::gil_scoped_acquire::gil_scoped_acquire (libtorch_python.so)",
        WAIT,
        False,
    ),
    "pytorch/pytorch#115888": (
        "pthread_rwlock_wrlock (libc.so.6) / ?? (libcuda.so.1) / cuEventDestroy_v2 (libcuda.so.1)"
        " / cudaEventDestroy (libcudart.so.12) / THCPEvent_dealloc (libtorch_python.so)",
        WAIT,
        False,
    ),
    "cudaHostAlloc pin memory lock": (
        "__lll_lock_wait (libc.so.6) / pthread_mutex_lock (libc.so.6) / ?? (libcuda.so.1)"
        " / cuMemHostAlloc (libcuda.so.1) / cudaHostAlloc (libcudart.so.12)",
        WAIT,
        False,
    ),
    "cudaMalloc in nccl lazily loading module": (
        "pthread_rwlock_wrlock (libc.so.6) / ?? (libcuda.so.1) / cuModuleGetFunction (libcuda.so.1)"
        " / cudaGetFuncBySymbol (libcudart.so.12) / ncclLaunchKernel (libnccl.so.2)",
        WAIT,
        False,
    ),
    "forked child import lock": (
        "_acquire (<frozen importlib._bootstrap>:120) / __enter__ (<frozen importlib._bootstrap>:170)"
        " / _find_and_load (<frozen importlib._bootstrap>:1170)",
        WAIT,
        False,
    ),
    "logging handler lock after fork": (
        "acquire (logging/__init__.py:900) / handle (logging/__init__.py:960) / callHandlers (logging/__init__.py:1700)",
        WAIT,
        False,
    ),
    "queue get of a prefetcher": (
        "wait (threading.py:324) / get (queue.py:171) / __next__ (app/prefetch.py:40)",
        WAIT,
        False,
    ),
    "wandb init / finish": (
        "wait (threading.py:324) / wait (wandb/sdk/mailbox/mailbox.py:110) / finish (wandb/sdk/wandb_run.py:2000)",
        WAIT,
        False,
    ),
    "mlflow REST": (
        "read (ssl.py:1100) / readinto (http/client.py:500) / urlopen (urllib3/connectionpool.py:790)"
        " / http_request (mlflow/utils/rest_utils.py:100) / log_metric (mlflow/tracking/fluent.py:800)",
        WAIT,
        False,
    ),
    "hf hub request": (
        "read (ssl.py:1166) / recv_into (ssl.py:1314) / readinto (socket.py:706)"
        " / _read_status (http/client.py:280) / getresponse (http/client.py:1375)"
        " / request (huggingface_hub/utils/_http.py:300) / hf_hub_download (huggingface_hub/file_download.py:1000)",
        WAIT,
        False,
    ),
    "triton autotune": (
        "do_bench (triton/testing.py:150) / _bench (triton/runtime/autotuner.py:120) / run (triton/runtime/autotuner.py:180)",
        WAIT,
        False,
    ),
    "inductor async compile wait": (
        "wait (torch/_inductor/async_compile.py:300) / result (concurrent/futures/_base.py:445) / wait (threading.py:324)",
        WAIT,
        False,
    ),
    "flashinfer jit file lock": (
        "acquire (filelock/_api.py:330) / build_and_load (flashinfer/jit/core.py:120)",
        WAIT,
        False,
    ),
    "torch extension baton": (
        "wait (torch/utils/file_baton.py:43) / _jit_compile (torch/utils/cpp_extension.py:1700)",
        WAIT,
        False,
    ),
    "TE userbuffers init": (
        "initialize_ub (transformer_engine/pytorch/module/base.py:200) / all_gather_object (torch/distributed/distributed_c10d.py:2500)",
        WAIT,
        False,
    ),
    "gc callback": (
        "gc_collect_main (python3.11) / gc_collect_with_callback (python3.11) / PyObject_GC_Track (python3.11)",
        WAIT,
        False,
    ),
    "malloc trim": (
        "madvise (libc.so.6) / mtrim (libc.so.6) / __malloc_trim (libc.so.6) / ffi_call (libffi.so.8)",
        WAIT,
        False,
    ),
    "nsys": (
        "__GI___libc_read (libc.so.6) / QuadDCommon::Wait (libToolsInjection64.so) / NSYS_Flush (libToolsInjection64.so)",
        WAIT,
        False,
    ),
    "memory snapshot pickling": (
        "_dump_snapshot (torch/cuda/memory.py:900) / oom_observer (train.py:40)",
        WAIT,
        False,
    ),
    "jax pgle profile": (
        "stop_trace (jax/_src/profiler.py:200) / stop (maxtext/profiler.py:60)",
        WAIT,
        False,
    ),
    "dataset len on one rank: all_gather_object": (
        "all_gather_object (torch/distributed/distributed_c10d.py:2500) / __len__ (app/sampler.py:30)",
        WAIT,
        False,
    ),
    "clip_grad_norm DTensor full_tensor": (
        "full_tensor (torch/distributed/tensor/_api.py:480) / clip_grad_norm_ (torchtitan/distributed/utils.py:300)",
        WAIT,
        False,
    ),
    "MoE token dispatch all_to_all in EP group": (
        "all_to_all_single_autograd (torch/distributed/_functional_collectives.py:700)"
        " / token_dispatch (megatron/core/transformer/moe/token_dispatcher.py:500)",
        WAIT,
        False,
    ),
    "DeepEP dispatch": (
        "dispatch (deep_ep/buffer.py:400) / fused_dispatch (megatron/core/transformer/moe/fused_a2a.py:90)",
        WAIT,
        False,
    ),
    "nvshmem barrier": (
        "nvshmem_barrier_all (libnvshmem_host.so) / nvshmemx_init_attr (libnvshmem_host.so)",
        WAIT,
        False,
    ),
    "device synchronize of grads unscaled": (
        "synchronize (torch/cuda/__init__.py:800) / train_step (trainer.py:160)",
        WAIT,
        True,
    ),
    "item()": (
        "item (app/loss.py:8) / log_loss (trainer.py:300)",
        WAIT,
        True,
    ),
    "read dataset file": (
        "read (<frozen io>:300) / load_index (app/meta.py:31)",
        WAIT,
        True,
    ),
    "ray.get in a training step": (
        "get (ray/_private/worker.py:2700) / wrapper (ray/_private/client_mode_hook.py:103) / next_rollout (my/loop.py:30)",
        WAIT,
        False,
    ),
    "an answer over zmq": (
        "recv_multipart (zmq/sugar/socket.py:700) / ask (my/rollout_client.py:40)",
        WAIT,
        False,
    ),
    "an answer over torch's RPC": (
        "_invoke_rpc (torch/distributed/rpc/api.py:700) / rpc_sync (torch/distributed/rpc/api.py:770) / fetch (my/ps.py:9)",
        WAIT,
        False,
    ),
    "ZeRO-Infinity reads its disk": (
        "aio_read (deepspeed_aio.so) / swap_in (deepspeed/runtime/swap_tensor/partitioned_param_swapper.py:280)"
        " / fetch_sub_module (deepspeed/runtime/zero/partitioned_param_coordinator.py:300)",
        WAIT,
        True,
    ),
}


@pytest.mark.parametrize("name", sorted(PLACES))
def test_a_place_of_a_public_thread(name: str) -> None:
    odd, usual, goes = PLACES[name]
    assert look(odd, usual).evict == (("node-5",) if goes else ())
