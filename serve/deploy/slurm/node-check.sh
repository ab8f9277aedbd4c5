#!/bin/bash
# Is this node fit for a training job? Exit 0, or 1 with one line per reason. For slurm.conf:
#   Prolog=/usr/local/sbin/minder-node-check      Epilog=/usr/local/sbin/minder-node-check
#   HealthCheckProgram=/usr/local/sbin/minder-node-check
# Slurm drains a node whose prolog or epilog fails, under its own reason: minder leaves that alone.
# Settings, in the environment or in /etc/minder/node-check.conf: AGENT_URL, AGENT_TOKEN_FILE, AGENT_CA, MIN_FREE_KIB, GPUS, CHECK_PATH.
set -uo pipefail
conf=${NODE_CHECK_CONF:-/etc/minder/node-check.conf}
# shellcheck disable=SC1090
[ -r "$conf" ] && . "$conf"
: "${AGENT_URL:=}" "${AGENT_TOKEN_FILE:=}" "${AGENT_CA:=}" "${MIN_FREE_KIB:=1048576}" "${GPUS:=}" "${CHECK_PATH:=/tmp}"
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

# Any answer shows that the agent lives. One that refuses the token says something of this script's settings, nothing of the node.
ask_agent() {
    local token=""
    [ -z "$AGENT_TOKEN_FILE" ] || token=$(head -n 1 "$AGENT_TOKEN_FILE" 2>/dev/null) # a second line is the token before it
    printf 'Authorization: Bearer %s\n' "$token" | # on standard input: arguments are everybody's to read
        timeout 5 curl -s -o /dev/null -w '%{http_code}' ${AGENT_CA:+--cacert "$AGENT_CA"} -H @- "$AGENT_URL/v1/health"
}
if [ -n "$AGENT_URL" ]; then
    status=$(ask_agent)
    case "$status" in
        2??) ;;
        401 | 403) echo "minder-node-check: the agent answers, but refuses the token: set AGENT_TOKEN_FILE to the file that the agent reads" >&2 ;;
        000 | "") bad "the agent at $AGENT_URL does not answer" ;;
        *) bad "the agent at $AGENT_URL answers with status $status" ;;
    esac
fi
exit "$failed"
