"""The local lab: machines made of network namespaces and cgroups (or of plain process groups), and the faults to hurt them with.

Light on purpose: a training process that loads its script from here loads nothing else.
"""
