#!/bin/bash
# Is this node fit for a training job? Exit 0, or 1 with one line per reason. For slurm.conf:
#   Prolog=/usr/local/sbin/minder-node-check      Epilog=/usr/local/sbin/minder-node-check
#   HealthCheckProgram=/usr/local/sbin/minder-node-check
# Slurm drains a node whose prolog or epilog fails, under its own reason: minder leaves that alone.
# Settings, in the environment or in /etc/minder/node-check.conf: AGENT_URL, MIN_FREE_KIB, GPUS, CHECK_PATH.
set -uo pipefail
conf=${NODE_CHECK_CONF:-/etc/minder/node-check.conf}
# shellcheck disable=SC1090
[ -r "$conf" ] && . "$conf"
: "${AGENT_URL:=}" "${MIN_FREE_KIB:=1048576}" "${GPUS:=}" "${CHECK_PATH:=/tmp}"
failed=0
bad() { echo "minder-node-check: $*" >&2; failed=1; }

free=$(df -Pk "$CHECK_PATH" 2>/dev/null | awk 'NR==2 {print $4}')
if [ -z "$free" ]; then
    bad "$CHECK_PATH cannot be read"
elif [ "$free" -lt "$MIN_FREE_KIB" ]; then
    bad "$CHECK_PATH has $free KiB free, less than $MIN_FREE_KIB"
fi

# A lost GPU makes nvidia-smi wait for ever: five seconds, then it counts as failed.
if [ -n "$GPUS" ]; then
    seen=$(timeout 5 nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total --format=csv,noheader 2>/dev/null) || bad "nvidia-smi failed or did not answer"
    count=$(printf '%s' "$seen" | grep -c .)
    [ "$count" -ge "$GPUS" ] || bad "$count GPUs answer, $GPUS expected"
    if printf '%s\n' "$seen" | grep -qE '^[1-9]'; then bad "uncorrectable ECC errors: $(printf '%s' "$seen" | tr '\n' ' ')"; fi
fi

for state in /sys/class/infiniband/*/ports/*/state; do
    [ -r "$state" ] || continue
    grep -q ACTIVE "$state" || bad "${state#/sys/class/infiniband/} is $(cat "$state")"
done

if [ -n "$AGENT_URL" ] && ! timeout 5 curl -fsS -o /dev/null "$AGENT_URL/v1/health"; then
    bad "the agent at $AGENT_URL does not answer"
fi
exit "$failed"
