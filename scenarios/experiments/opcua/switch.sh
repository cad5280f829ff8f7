#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# Every port of the switch: class 5 has the first 250 us of each millisecond, all else the 500 us after
# them. What all else begins last ends (see profinet/gates.sh) before class 5 comes again.
set -e
for port in /sys/class/net/eth*; do
  port=$(basename "$port")
  gates="root handle 100: stab overhead 24 taprio num_tc 2 map 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0
    queues 1@0 1@1 base-time 0 clockid CLOCK_TAI
    sched-entry S 02 250000 sched-entry S 01 500000 sched-entry S 00 250000"
  tc qdisc add dev "$port" $gates
  tc qdisc add dev "$port" parent 100:1 tbf rate 100mbit burst 1542 limit 200000
  # A discipline that comes below stops the gates (linux v6.12 net/sched/sch_taprio.c:taprio_reset).
  tc qdisc replace dev "$port" $gates
done
