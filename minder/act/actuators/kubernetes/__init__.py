"""Kubernetes as the owner of the machines (experimental): nodes are cordoned and tainted, pods evicted through the Eviction API.

"Node" and "pod" are Kubernetes' words and are used in this folder only; a machine is called by its node's name, and known by its hardware.
"""
