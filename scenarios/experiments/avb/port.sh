#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Every port of this node as that of an AVB bridge at 100 Mbit/s: two classes with credit, the rest.
#   port.sh IDLE_A IDLE_B       the reserved rates of class A and class B, in kbit/s
# A bucket for one frame makes the virtual interface a port of 100 Mbit/s: the next frame is chosen
# when the one before has ended. Each frame counts 24 bytes more: check sequence, preamble, gap. A
# talker's frame has its tag in it, a forwarded one has it beside it, so the bucket has 1542 bytes.
# The interface states 10 Gbit/s, so the send slopes are those of such a port.
set -e
for port in /sys/class/net/eth*; do
  port=$(basename "$port")
  tc qdisc add dev "$port" root handle 1: stab overhead 24 tbf rate 100mbit burst 1542 limit 200000
  tc qdisc add dev "$port" parent 1:1 handle 2: prio bands 3 \
    priomap 2 2 1 0 2 2 2 2 2 2 2 2 2 2 2 2
  tc qdisc add dev "$port" parent 2:1 handle 10: cbs \
    idleslope "$1" sendslope $(($1 - 10000000)) hicredit 1538 locredit -1538
  tc qdisc add dev "$port" parent 2:2 handle 20: cbs \
    idleslope "$2" sendslope $(($2 - 10000000)) hicredit 1538 locredit -1538
done
