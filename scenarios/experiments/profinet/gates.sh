#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Gates of every port of this node, the same at all: in each millisecond 250 us for class 6 alone, 500
# us for all else, 250 us for nobody. The bucket has all else leave at 100 Mbit/s, which the virtual
# interface would not do by itself. A frame that it gave to a gate that closes goes at once when the
# gate opens, and another behind it: so two frames (123.4 us each) end while nobody's gate is open.
set -e
for port in /sys/class/net/eth*; do
  port=$(basename "$port")
  gates="root handle 100: stab overhead 24 taprio num_tc 2 map 0 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0
    queues 1@0 1@1 base-time 0 clockid CLOCK_TAI
    sched-entry S 02 250000 sched-entry S 01 500000 sched-entry S 00 250000"
  tc qdisc add dev "$port" $gates
  tc qdisc add dev "$port" parent 100:1 tbf rate 100mbit burst 1542 limit 200000
  # A discipline that comes below stops the gates (linux v6.12 net/sched/sch_taprio.c:taprio_reset).
  tc qdisc replace dev "$port" $gates
done
