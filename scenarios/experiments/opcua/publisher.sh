#!/bin/sh
# SPDX-License-Identifier: Apache-2.0 OR MIT
# The port of a publisher: class 5 has the window of 100 us that begins at $1 (in ns) of each
# millisecond, and etf sends its messages 20 us before their launch times; all else has 500 us from
# 250 us on. The two frames of all else that can follow its end (see profinet/gates.sh) end in the
# 250 us after it.
set -e
if [ "$1" = 0 ]; then
  windows="sched-entry S 02 100000 sched-entry S 00 150000"
else
  windows="sched-entry S 00 $1 sched-entry S 02 100000 sched-entry S 00 $((150000 - $1))"
fi
gates="root handle 100: stab overhead 24 taprio num_tc 2 map 0 0 0 0 0 1 0 0 0 0 0 0 0 0 0 0
  queues 1@0 1@1 base-time 0 clockid CLOCK_TAI $windows
  sched-entry S 01 500000 sched-entry S 00 250000"
tc qdisc add dev eth0 $gates
tc qdisc add dev eth0 parent 100:1 tbf rate 100mbit burst 1542 limit 200000
tc qdisc add dev eth0 parent 100:2 etf clockid CLOCK_TAI delta 20000
# A discipline that comes below stops the gates (linux v6.12 net/sched/sch_taprio.c:taprio_reset).
tc qdisc replace dev eth0 $gates
