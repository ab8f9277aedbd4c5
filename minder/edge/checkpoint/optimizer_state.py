"""State tensors for an optimiser that has not stepped yet."""

from __future__ import annotations

import torch

__all__ = ["materialise"]


def materialise(optimizer: torch.optim.Optimizer) -> None:
    """Give a fresh optimiser its state, so that there is something to load into: one step with no gradient and no rate.

    Parameters and their gradients are as before; the state's own values are those after that step.
    """
    if optimizer.state:
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"] if parameter.requires_grad]
    gradients = [parameter.grad for parameter in parameters]
    rates = [group["lr"] for group in optimizer.param_groups]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    for group in optimizer.param_groups:
        group["lr"] = torch.zeros_like(group["lr"]) if isinstance(group["lr"], torch.Tensor) else 0.0
    optimizer.step()
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
