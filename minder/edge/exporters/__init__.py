"""What an agent reads on its machine: host, cgroup, the job's processes and sockets, network, GPUs, heartbeat pages.

Every exporter has `read(now_s) -> Reading`. What could not be read is left out of the reading: absent, never zero.
"""
