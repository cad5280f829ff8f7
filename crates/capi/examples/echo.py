#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Sends messages over the loopback interface to an echo in a second thread, and tells where their
time went: from the program to the interface, to the other program, and back.

    TIMEWIRE_LIBRARY=.../libtimewire.so PYTHONPATH=crates/capi/python echo.py [COUNT]

Not here: figures of a control loop; the interpreter is the largest part of these.
"""
import statistics
import sys
import threading

import timewire as tw

SECOND = 1_000_000_000


def echo(receiver, to, ends):
    """Sends each message back until it is told to end."""
    with tw.Transmitter(to=to) as transmitter:
        while not ends.is_set():
            for arrival in receiver.receive(wait_ns=SECOND // 20):
                transmitter.send(arrival.bytes)


def main(count):
    out, up, back, timestamps = [], [], [], 0
    with tw.Receiver(bind="127.0.0.1:0", timestamps=tw.TIMESTAMP_SOFTWARE) as far, \
            tw.Receiver(bind="127.0.0.1:0", timestamps=tw.TIMESTAMP_SOFTWARE) as near, \
            tw.Transmitter(to=str(far.address), points=tw.POINT_SOFTWARE) as transmitter:
        ends = threading.Event()
        other = threading.Thread(target=echo, args=(far, str(near.address), ends))
        other.start()
        try:
            for seq in range(count):
                sent = tw.now()
                number = transmitter.send(tw.probe_bytes(7, seq, sent) + b"echo")
                answers = near.receive(wait_ns=20 * SECOND)
                if len(answers) != 1:
                    raise SystemExit("message %d: %d answers" % (seq, len(answers)))
                answer = answers[0]
                probe = tw.parse_probe(answer.bytes)
                if (probe.stream, probe.seq, probe.time_ns) != (7, seq, sent):
                    raise SystemExit("message %d came back as another" % seq)
                if answer.bytes[tw.PROBE_LEN:] != b"echo" or answer.sender is None:
                    raise SystemExit("message %d came back changed" % seq)
                back.append(answer.user_ns - sent)
                # The kernel begins to timestamp a moment after it is first asked to.
                if answer.kernel_ns is not None:
                    up.append(answer.user_ns - answer.kernel_ns)
                for report in transmitter.reports():
                    if report.kind == tw.REPORT_TIMESTAMP and report.id == number:
                        timestamps += 1
                        out.append(report.time_ns - sent)
        finally:
            # A receiver is one thread's at a time: what comes now is asked of both.
            ends.set()
            other.join()
        print("echoes %d timestamps %d kernel %d drops %d"
              % (count, timestamps, len(up), near.drops + far.drops))
    for name, times in (("to the interface", out), ("kernel to program", up), ("echo", back)):
        if times:
            print("%-18s median %6.1f us, most %6.1f us"
                  % (name, statistics.median(times) / 1000, max(times) / 1000))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
