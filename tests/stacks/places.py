"""Stacks of real training programs, innermost frame first, as (function, file, line). Written from what such jobs print."""

from __future__ import annotations

C10D = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOGGER = ("wrapper", "/opt/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83)
DEEPSPEED = "/opt/venv/lib/python3.10/site-packages/deepspeed"
TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
MEGATRON = "/workspace/Megatron-LM/megatron"
THREADING = "/usr/lib/python3.11/threading.py"

Frames = list[tuple[str, str, int]]

ROOT: Frames = [
    ("train_step", f"{MEGATRON}/training/training.py", 1302),
    ("train", f"{MEGATRON}/training/training.py", 2101),
    ("pretrain", f"{MEGATRON}/training/training.py", 850),
    ("<module>", "/workspace/Megatron-LM/pretrain_gpt.py", 312),
]
SCHEDULE: Frames = [("forward_backward_pipelining_without_interleaving", f"{MEGATRON}/core/pipeline_parallel/schedules.py", 1890), *ROOT]
GRAD_SYNC: Frames = [
    ("all_reduce", C10D, 2806),
    LOGGER,
    ("start_grad_sync", f"{MEGATRON}/core/distributed/param_and_grad_buffer.py", 313),
    ("finalize_model_grads", f"{MEGATRON}/core/distributed/finalize_model_grads.py", 251),
    *ROOT,
]
GRAD_NORM: Frames = [("item", f"{TORCH}/_tensor.py", 1), ("get_grad_norm_fp32", f"{MEGATRON}/core/optimizer/clip_grads.py", 124), *ROOT]
RECV: Frames = [
    ("irecv", C10D, 2389),
    LOGGER,
    ("_p2p_ops", f"{MEGATRON}/core/pipeline_parallel/p2p_communication.py", 215),
    ("_communicate", f"{MEGATRON}/core/pipeline_parallel/p2p_communication.py", 391),
    ("recv_forward", f"{MEGATRON}/core/pipeline_parallel/p2p_communication.py", 453),
    *SCHEDULE,
]
SEND: Frames = [("isend", C10D, 2330), LOGGER, ("send_backward", f"{MEGATRON}/core/pipeline_parallel/p2p_communication.py", 520), *SCHEDULE]
GATHER: Frames = [
    ("all_gather_into_tensor", C10D, 3709),
    LOGGER,
    ("_gather_along_first_dim", f"{MEGATRON}/core/tensor_parallel/mappings.py", 118),
    ("forward", f"{MEGATRON}/core/tensor_parallel/layers.py", 480),
    ("forward_step", f"{MEGATRON}/core/pipeline_parallel/schedules.py", 310),
    *SCHEDULE,
]
COMPUTE: Frames = [
    ("_flash_attn_forward", "/opt/venv/lib/python3.11/site-packages/flash_attn/flash_attn_interface.py", 91),
    ("forward", f"{MEGATRON}/core/transformer/attention.py", 610),
    ("_call_impl", f"{TORCH}/nn/modules/module.py", 1762),
    ("_wrapped_call_impl", f"{TORCH}/nn/modules/module.py", 1751),
    ("forward_step", f"{MEGATRON}/core/pipeline_parallel/schedules.py", 310),
    *SCHEDULE,
]
SYNC: Frames = [
    ("synchronize", f"{TORCH}/cuda/__init__.py", 1083),
    ("forward_step", f"{MEGATRON}/core/pipeline_parallel/schedules.py", 330),
    *SCHEDULE,
]
DDP_BACKWARD: Frames = [
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 824),
    ("backward", f"{TORCH}/autograd/__init__.py", 347),
    ("backward", f"{TORCH}/_tensor.py", 581),
    ("main", "/workspace/train_ddp.py", 88),
    ("<module>", "/workspace/train_ddp.py", 140),
]
USER_CODE: Frames = [("main", "/workspace/train_ddp.py", 71), ("<module>", "/workspace/train_ddp.py", 140)]
READ: Frames = [
    ("read_shard", "/workspace/data/shards.py", 44),
    ("__getitem__", "/workspace/data/corpus.py", 31),
    ("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 54),
    ("_next_data", f"{TORCH}/utils/data/dataloader.py", 789),
    ("__next__", f"{TORCH}/utils/data/dataloader.py", 733),
    *ROOT,
]
READ_PLAIN: Frames = [("read_file", "/workspace/train_ddp.py", 20), *USER_CODE]
LOADER_WAIT: Frames = [
    ("wait", THREADING, 331),
    ("get", "/usr/lib/python3.11/queue.py", 180),
    ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1243),
    ("_get_data", f"{TORCH}/utils/data/dataloader.py", 1397),
    ("_next_data", f"{TORCH}/utils/data/dataloader.py", 1448),
    ("__next__", f"{TORCH}/utils/data/dataloader.py", 701),
    *ROOT,
]
SAVE: Frames = [
    ("_save", f"{TORCH}/serialization.py", 1020),
    ("save", f"{TORCH}/serialization.py", 850),
    ("save_checkpoint", f"{MEGATRON}/training/checkpointing.py", 520),
    *ROOT[1:],
]
SAVE_BARRIER: Frames = [
    ("barrier", C10D, 4551),
    LOGGER,
    ("save_checkpoint", f"{MEGATRON}/training/checkpointing.py", 602),
    *ROOT[1:],
]
IMPORTING: Frames = [
    ("_compile_bytecode", "<frozen importlib._bootstrap_external>", 729),
    ("get_code", "<frozen importlib._bootstrap_external>", 1069),
    ("_find_and_load", "<frozen importlib._bootstrap>", 1176),
    ("<module>", "/opt/venv/lib/python3.11/site-packages/transformers/__init__.py", 26),
    ("<module>", "/workspace/Megatron-LM/pretrain_gpt.py", 4),
]
RENDEZVOUS: Frames = [
    ("_create_c10d_store", f"{TORCH}/distributed/rendezvous.py", 199),
    ("init_process_group", C10D, 1710),
    ("initialize_megatron", f"{MEGATRON}/training/initialize.py", 80),
    *ROOT[2:],
]
COMPILE: Frames = [
    ("synchronize", f"{TORCH}/cuda/__init__.py", 1083),
    ("_make_launchers", f"{TORCH}/_inductor/runtime/triton_heuristics.py", 646),
    ("precompile", f"{TORCH}/_inductor/runtime/triton_heuristics.py", 412),
    ("_wait_futures", f"{TORCH}/_inductor/async_compile.py", 480),
    ("_compile_to_module", f"{TORCH}/_inductor/graph.py", 2200),
    ("compile_fx", f"{TORCH}/_inductor/compile_fx.py", 1900),
    *USER_CODE,
]
BROADCAST: Frames = [("broadcast", C10D, 2841), LOGGER, ("warmup", "/workspace/serve/engine.py", 90), *USER_CODE]
STRAY_BARRIER: Frames = [
    ("barrier", C10D, 5234),
    LOGGER,
    ("_build_index_mappings", "/workspace/blend/gpt_dataset.py", 1141),
    ("build_datasets", "/workspace/blend/gpt_dataset.py", 90),
    *ROOT[1:],
]
ZERO_GATHER: Frames = [
    ("all_gather_into_tensor", C10D, 2709),
    LOGGER,
    ("all_gather_into_tensor", f"{DEEPSPEED}/comm/torch.py", 219),
    ("all_gather_into_tensor", f"{DEEPSPEED}/comm/comm.py", 305),
    ("log_wrapper", f"{DEEPSPEED}/comm/comm.py", 117),
    ("_all_gather_params", f"{DEEPSPEED}/runtime/zero/partition_parameters.py", 1180),
    ("backward", f"{DEEPSPEED}/runtime/zero/parameter_offload.py", 168),
]
ZERO_MAIN: Frames = [
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 769),
    ("backward", f"{TORCH}/autograd/__init__.py", 289),
    ("backward", f"{TORCH}/_tensor.py", 521),
    ("backward", f"{DEEPSPEED}/runtime/fp16/loss_scaler.py", 63),
    ("backward", f"{DEEPSPEED}/runtime/zero/stage3.py", 2213),
    ("<module>", "/workspace/finetune.py", 587),
]
PIN_MEMORY: Frames = [
    ("select", "/usr/lib/python3.11/selectors.py", 415),
    ("wait", "/usr/lib/python3.11/multiprocessing/connection.py", 947),
    ("_pin_memory_loop", f"{TORCH}/utils/data/_utils/pin_memory.py", 52),
    ("run", THREADING, 982),
    ("_bootstrap_inner", THREADING, 1045),
    ("_bootstrap", THREADING, 1002),
]
TQDM: Frames = [
    ("wait", THREADING, 331),
    ("run", "/opt/venv/lib/python3.11/site-packages/tqdm/_monitor.py", 60),
    ("_bootstrap", THREADING, 1002),
]
WORKER_IDLE: Frames = [
    ("poll", "/usr/lib/python3.11/multiprocessing/connection.py", 257),
    ("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113),
    ("_worker_loop", f"{TORCH}/utils/data/_utils/worker.py", 275),
    ("run", "/usr/lib/python3.11/multiprocessing/process.py", 108),
    ("<module>", "/workspace/Megatron-LM/pretrain_gpt.py", 312),
]
LAUNCHER: Frames = [
    ("_poll", "/usr/lib/python3.11/multiprocessing/connection.py", 440),
    ("_invoke_run", f"{TORCH}/distributed/elastic/agent/server/api.py", 850),
    ("launch_agent", f"{TORCH}/distributed/launcher/api.py", 260),
    ("<module>", "/opt/venv/bin/torchrun", 8),
]
LOADING_MODEL: Frames = [
    ("load_file", "/opt/venv/lib/python3.11/site-packages/safetensors/torch.py", 311),
    ("load_state_dict", "/opt/venv/lib/python3.11/site-packages/transformers/modeling_utils.py", 508),
    ("from_pretrained", "/opt/venv/lib/python3.11/site-packages/transformers/modeling_utils.py", 4200),
    *USER_CODE,
]
OWN_SOCKET: Frames = [
    ("recv_into", "/usr/lib/python3.11/socket.py", 706),
    ("exchange", "/workspace/fused/ring.py", 55),
    *USER_CODE,
]
