"""Where the processes of six kinds of training program stand: (function, file, line), innermost first.

Written from the frameworks' sources and from what such jobs print. A place is a fragment (what happens) in front of a trunk
(who called it).
"""

from __future__ import annotations

Frames = list[tuple[str, str, int]]

TORCH = "/opt/conda/lib/python3.10/site-packages/torch"
C10D = f"{TORCH}/distributed/distributed_c10d.py"
SITE = "/opt/conda/lib/python3.10/site-packages"
STD = "/opt/conda/lib/python3.10"
LOG = ("wrapper", f"{TORCH}/distributed/c10d_logger.py", 81)
GRAPH: Frames = [
    ("_engine_run_backward", f"{TORCH}/autograd/graph.py", 825),
    ("backward", f"{TORCH}/autograd/__init__.py", 347),
    ("backward", f"{TORCH}/_tensor.py", 626),
]
NEXT: Frames = [("_next_data", f"{TORCH}/utils/data/dataloader.py", 1448), ("__next__", f"{TORCH}/utils/data/dataloader.py", 708)]

# Trunks: step is the middle of a training step, loop is the loop around it, main is what is outside of both.
_MEGATRON: Frames = [
    ("pretrain", "/workspace/megatron-lm/megatron/training/training.py", 790),
    ("<module>", "/workspace/megatron-lm/pretrain_gpt.py", 298),
]
_HF: Frames = [
    ("_inner_training_loop", f"{SITE}/transformers/trainer.py", 2548),
    ("train", f"{SITE}/transformers/trainer.py", 2241),
    ("main", "/scratch/anna/sft/run_sft.py", 201),
    ("<module>", "/scratch/anna/sft/run_sft.py", 233),
]
_PL = f"{SITE}/lightning/pytorch"
_LIGHTNING: Frames = [
    ("run", f"{_PL}/loops/fit_loop.py", 216),
    ("_run_stage", f"{_PL}/trainer/trainer.py", 1056),
    ("_run", f"{_PL}/trainer/trainer.py", 1012),
    ("_fit_impl", f"{_PL}/trainer/trainer.py", 599),
    ("_call_and_handle_interrupt", f"{_PL}/trainer/call.py", 48),
    ("fit", f"{_PL}/trainer/trainer.py", 561),
    ("<module>", "/srv/vision/fit.py", 61),
]
_DS: Frames = [
    ("train", "/data/code/finetune.py", 310),
    ("main", "/data/code/finetune.py", 402),
    ("<module>", "/data/code/finetune.py", 410),
]
_FSDP: Frames = [
    ("train_loop", "/code/llm/fsdp_train.py", 144),
    ("main", "/code/llm/fsdp_train.py", 260),
    ("<module>", "/code/llm/fsdp_train.py", 271),
]
_PLAIN: Frames = [
    ("train", "/scratch/u/project/main.py", 77),
    ("main", "/scratch/u/project/main.py", 130),
    ("<module>", "/scratch/u/project/main.py", 141),
]

LOOP: dict[str, Frames] = {
    "megatron": [("train", "/workspace/megatron-lm/megatron/training/training.py", 2050), *_MEGATRON],
    "deepspeed": _DS,
    "fsdp": _FSDP,
    "trainer": _HF,
    "lightning": [("advance", f"{_PL}/loops/fit_loop.py", 455), *_LIGHTNING],
    "plain": _PLAIN,
}
STEP: dict[str, Frames] = {
    "megatron": [("train_step", "/workspace/megatron-lm/megatron/training/training.py", 1210), *LOOP["megatron"]],
    "deepspeed": [("forward", f"{SITE}/deepspeed/runtime/engine.py", 1899), *_DS],
    "fsdp": [("train_step", "/code/llm/fsdp_train.py", 92), *_FSDP],
    "trainer": [("training_step", f"{SITE}/transformers/trainer.py", 3698), *_HF],
    "lightning": [
        ("optimizer_step", f"{_PL}/core/module.py", 1306),
        ("_optimizer_step", f"{_PL}/loops/optimization/automatic.py", 270),
        ("run", f"{_PL}/loops/optimization/automatic.py", 190),
        ("advance", f"{_PL}/loops/training_epoch_loop.py", 310),
        *LOOP["lightning"],
    ],
    "plain": _PLAIN,
}
# Where the ranks of a healthy job wait for one another at the end of a step.
SYNC: dict[str, Frames] = {
    "megatron": [
        ("all_reduce", C10D, 2501),
        LOG,
        ("start_grad_sync", "/workspace/megatron-lm/megatron/core/distributed/param_and_grad_buffer.py", 335),
        ("finish_grad_sync", "/workspace/megatron-lm/megatron/core/distributed/param_and_grad_buffer.py", 380),
        ("finalize_model_grads", "/workspace/megatron-lm/megatron/core/distributed/finalize_model_grads.py", 240),
        *STEP["megatron"],
    ],
    "deepspeed": [
        ("all_reduce", C10D, 2224),
        LOG,
        ("all_reduce", f"{SITE}/deepspeed/comm/torch.py", 161),
        ("all_reduce", f"{SITE}/deepspeed/comm/comm.py", 496),
        ("allreduce_and_copy", f"{SITE}/deepspeed/runtime/zero/stage_1_and_2.py", 1560),
        ("step", f"{SITE}/deepspeed/runtime/engine.py", 2213),
        *_DS,
    ],
    "fsdp": [
        ("_reduce_scatter_base", C10D, 3340),
        LOG,
        ("_reduce_grad", f"{TORCH}/distributed/fsdp/_runtime_utils.py", 848),
        ("_post_backward_hook", f"{TORCH}/distributed/fsdp/_runtime_utils.py", 733),
        *GRAPH,
        *STEP["fsdp"],
    ],
    "trainer": [*GRAPH, ("backward", f"{SITE}/accelerate/accelerator.py", 2473), *STEP["trainer"]],
    "lightning": [
        *GRAPH,
        ("backward", f"{_PL}/core/module.py", 1101),
        ("backward", f"{_PL}/strategies/strategy.py", 212),
        ("closure", f"{_PL}/loops/optimization/automatic.py", 146),
        *STEP["lightning"],
    ],
    "plain": [*GRAPH, *STEP["plain"]],
}
BARRIER: Frames = [("barrier", C10D, 4159), LOG]
WAIT_EVERYONE: Frames = [*BARRIER, ("wait_for_everyone", f"{SITE}/accelerate/state.py", 349)]
STRATEGY_BARRIER: Frames = [*BARRIER, ("barrier", f"{_PL}/strategies/ddp.py", 300)]


def meet(framework: str) -> Frames:
    """The barrier at which a framework's ranks wait for what rank 0 does."""
    inner = {"trainer": WAIT_EVERYONE, "lightning": STRATEGY_BARRIER}.get(framework, BARRIER)
    return [*inner, *LOOP[framework]]


# What one rank may be doing while the others wait.

DURING_STEP: dict[str, Frames] = {
    "reading a file": [("read", "/usr/lib/python3.10/codecs.py", 320), ("read_jsonl", "/app/data/io.py", 31)],
    "python sleep": [("throttle", "/app/hooks/pacing.py", 12)],
    "sleep seen natively": [("sleep", "/app/hooks/pacing.py", 12)],
    "user loop": [("pack_sequences", "/app/data/packing.py", 88)],
    "matrix product": [("linear", f"{TORCH}/nn/functional.py", 2290), ("forward", f"{TORCH}/nn/modules/linear.py", 125)],
    "attention": [
        ("scaled_dot_product_attention", f"{TORCH}/nn/functional.py", 5400),
        ("forward", f"{SITE}/transformers/models/llama/modeling_llama.py", 640),
        ("_call_impl", f"{TORCH}/nn/modules/module.py", 1562),
    ],
    "device sync": [("synchronize", f"{TORCH}/cuda/__init__.py", 892), ("stop", "/app/timers.py", 40)],
    "reading a scalar": [("item", f"{TORCH}/_tensor.py", 980), ("log_loss", "/app/metrics.py", 19)],
    "optimizer": [
        ("_single_tensor_adamw", f"{TORCH}/optim/adamw.py", 420),
        ("adamw", f"{TORCH}/optim/adamw.py", 335),
        ("step", f"{TORCH}/optim/adamw.py", 220),
    ],
    "writing a file": [("write", "/app/trace.py", 33), ("dump_grads", "/app/trace.py", 51)],
    "moving to the device": [("to", f"{TORCH}/_tensor.py", 10), ("move", "/app/batch.py", 20)],
}
GARBAGE: Frames = [("collect", "/usr/lib/python3.10/gc.py", 1), ("free_memory", "/app/memory.py", 14)]
LOCK: Frames = [("acquire", f"{STD}/threading.py", 168), ("__enter__", f"{STD}/threading.py", 180), ("log", "/app/metrics.py", 22)]
RECOMPILE: Frames = [
    ("compile", f"{SITE}/triton/compiler/compiler.py", 276),
    ("run", f"{SITE}/triton/runtime/jit.py", 623),
    ("_compile_to_module", f"{TORCH}/_inductor/graph.py", 2130),
    ("compile_to_fn", f"{TORCH}/_inductor/graph.py", 2095),
    ("fx_codegen_and_compile", f"{TORCH}/_inductor/compile_fx.py", 840),
    ("_compile_inner", f"{TORCH}/_dynamo/convert_frame.py", 698),
]
DEBUGGER: Frames = [
    ("readline", f"{STD}/codecs.py", 322),
    ("cmdloop", f"{STD}/cmd.py", 126),
    ("_cmdloop", f"{STD}/pdb.py", 321),
    ("interaction", f"{STD}/pdb.py", 417),
    ("user_line", f"{STD}/pdb.py", 345),
    ("trace_dispatch", f"{STD}/bdb.py", 90),
]
LOADER_QUEUE: Frames = [
    ("poll", f"{STD}/multiprocessing/connection.py", 257),
    ("get", f"{STD}/multiprocessing/queues.py", 113),
    ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1243),
    ("_get_data", f"{TORCH}/utils/data/dataloader.py", 1412),
    *NEXT,
]
LOADER_PINNED: Frames = [
    ("wait", f"{STD}/threading.py", 324),
    ("get", f"{STD}/queue.py", 180),
    ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1243),
    ("_get_data", f"{TORCH}/utils/data/dataloader.py", 1405),
    *NEXT,
]
LOADER_INLINE: Frames = [
    ("__getitem__", "/app/data/set.py", 66),
    ("<listcomp>", f"{TORCH}/utils/data/_utils/fetch.py", 52),
    ("fetch", f"{TORCH}/utils/data/_utils/fetch.py", 52),
    *NEXT,
]
LOADER_LOCK: Frames = [("acquire", f"{STD}/threading.py", 168), *LOADER_INLINE]

# What rank 0 does for all.

FOR_ALL: dict[str, Frames] = {
    "saving": [
        ("_save", f"{TORCH}/serialization.py", 853),
        ("save", f"{TORCH}/serialization.py", 627),
        ("save_checkpoint", "/app/ckpt.py", 50),
    ],
    "saving by hand": [("write", f"{STD}/shutil.py", 20), ("copyfileobj", f"{STD}/shutil.py", 195), ("persist", "/app/ckpt.py", 71)],
    "safetensors": [
        ("save_file", f"{SITE}/safetensors/torch.py", 286),
        ("save_pretrained", f"{SITE}/transformers/modeling_utils.py", 2793),
    ],
    "evaluating": [
        ("linear", f"{TORCH}/nn/functional.py", 2290),
        ("forward", f"{TORCH}/nn/modules/linear.py", 125),
        ("evaluate", "/app/evaluate.py", 70),
    ],
    "generating": [
        ("forward", f"{SITE}/transformers/models/llama/modeling_llama.py", 640),
        ("_sample", f"{SITE}/transformers/generation/utils.py", 3223),
        ("generate", f"{SITE}/transformers/generation/utils.py", 2224),
        ("sample_prompts", "/app/samples.py", 18),
    ],
    "validation loop": [("matmul", "/app/model.py", 60), ("validation_step", "/app/model.py", 80), ("validate", "/app/evaluate.py", 21)],
    "logging to wandb": [
        ("wait", f"{STD}/threading.py", 324),
        ("_wait_for_response", f"{SITE}/wandb/sdk/mailbox/mailbox_handle.py", 88),
        ("log", f"{SITE}/wandb/sdk/wandb_run.py", 1700),
        ("log_metrics", "/app/metrics.py", 44),
    ],
    "logging to a service": [
        ("read", f"{STD}/ssl.py", 1166),
        ("readinto", f"{STD}/socket.py", 717),
        ("_read_status", f"{STD}/http/client.py", 286),
        ("post", f"{SITE}/requests/api.py", 115),
        ("log_metrics", "/app/metrics.py", 44),
    ],
    "tensorboard": [
        ("flush", f"{SITE}/tensorboard/summary/writer/event_file_writer.py", 125),
        ("add_histogram", f"{TORCH}/utils/tensorboard/writer.py", 495),
        ("log_metrics", "/app/metrics.py", 44),
    ],
    "uploading": [
        ("sendall", f"{STD}/ssl.py", 1273),
        ("upload_file", f"{SITE}/boto3/s3/inject.py", 145),
        ("push_checkpoint", "/app/ckpt.py", 90),
    ],
    "printing": [
        ("write", f"{STD}/logging/__init__.py", 1103),
        ("emit", f"{STD}/logging/__init__.py", 1103),
        ("info", f"{STD}/logging/__init__.py", 1477),
    ],
    "plotting": [("savefig", f"{SITE}/matplotlib/figure.py", 3390), ("plot_samples", "/app/plots.py", 55)],
    "downloading": [
        ("read", f"{STD}/ssl.py", 1166),
        ("http_get", f"{SITE}/huggingface_hub/file_download.py", 455),
        ("hf_hub_download", f"{SITE}/huggingface_hub/file_download.py", 862),
        ("load_dataset", f"{SITE}/datasets/load.py", 2062),
    ],
    "extracting": [("extractall", f"{STD}/tarfile.py", 2261), ("prepare_data", "/app/data/prepare.py", 21)],
    "tokenizing": [("tokenize_corpus", "/app/data/prepare.py", 44), ("prepare_data", "/app/data/prepare.py", 30)],
}

# Messages of a pipeline.
P2P = "/workspace/megatron-lm/megatron/core/pipeline_parallel/p2p_communication.py"
SCHEDULES = "/workspace/megatron-lm/megatron/core/pipeline_parallel/schedules.py"
PIPE: Frames = [("forward_backward_pipelining_without_interleaving", SCHEDULES, 1601), *STEP["megatron"]]


def message(name: str) -> Frames:
    """recv_forward, send_backward_recv_forward and the like, as Megatron waits in them."""
    inner = "isend" if name.startswith("send") else "irecv"
    return [(inner, C10D, 1950), LOG, ("_p2p_ops", P2P, 190), ("_communicate", P2P, 356), (name, P2P, 460), *PIPE]


BATCH_WAIT: Frames = [("wait", C10D, 500), ("_communicate", P2P, 372), ("recv_backward", P2P, 480), *PIPE]
FORWARD: Frames = [
    ("_flash_attn_forward", f"{SITE}/flash_attn/flash_attn_interface.py", 91),
    ("forward", "/workspace/megatron-lm/megatron/core/transformer/attention.py", 580),
    ("_call_impl", f"{TORCH}/nn/modules/module.py", 1747),
    ("forward_step", SCHEDULES, 275),
    *PIPE,
]
BACKWARD: Frames = [*GRAPH, ("backward_step", SCHEDULES, 420), *PIPE]
TENSOR_GATHER: Frames = [
    ("all_reduce", C10D, 2501),
    LOG,
    ("_reduce", "/workspace/megatron-lm/megatron/core/tensor_parallel/mappings.py", 23),
    ("forward", "/workspace/megatron-lm/megatron/core/tensor_parallel/layers.py", 990),
    ("forward_step", SCHEDULES, 275),
    *PIPE,
]

# Starting.
IMPORTS: Frames = [
    ("get_data", "<frozen importlib._bootstrap_external>", 1073),
    ("_find_and_load", "<frozen importlib._bootstrap>", 1027),
    ("<module>", f"{SITE}/transformers/models/__init__.py", 15),
    ("<module>", "/app/main.py", 3),
]
MEETING: Frames = [
    ("_store_based_barrier", C10D, 873),
    ("init_process_group", C10D, 1590),
    ("main", "/app/main.py", 20),
    ("<module>", "/app/main.py", 90),
]
TCP_STORE: Frames = [
    ("_create_c10d_store", f"{TORCH}/distributed/rendezvous.py", 189),
    ("_env_rendezvous_handler", f"{TORCH}/distributed/rendezvous.py", 258),
    *MEETING[1:],
]
LOADING: Frames = [
    ("load_state_dict", f"{SITE}/transformers/modeling_utils.py", 520),
    ("_load_pretrained_model", f"{SITE}/transformers/modeling_utils.py", 4700),
    ("from_pretrained", f"{SITE}/transformers/modeling_utils.py", 4130),
    ("main", "/app/main.py", 30),
    ("<module>", "/app/main.py", 90),
]
FIRST_COMPILE: Frames = [*RECOMPILE, ("compile_wrapper", f"{TORCH}/_dynamo/eval_frame.py", 745)]

PLAIN_MAIN: Frames = [("main", "/app/main.py", 12), ("<module>", "/app/main.py", 90)]
