"""Slurm as the owner of the machines: nodes are drained and given back, jobs found by their id and requeued without a bad node.

"Node" is Slurm's word for a machine and is used in this folder only; a machine is called by its NodeName.
"""
