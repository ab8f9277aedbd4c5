"""Bringing a job back: the store that each generation meets at, and checkpoints that are complete and verified or not used.

`manifest` and `rendezvous` are light (standard library only); `checkpoint` and `store_host` load torch.
"""
