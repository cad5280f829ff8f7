/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Marks in a control loop: when a cycle begins and ends, how long it took, how often it was late.
 *
 *	marks [CYCLES]
 *
 * While `timewire trace` runs, they are in its capture. Without it the loop is as fast as without
 * marks. Exit: 0 done; 2 wrong use.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "timewire_mark.h"

#define CYCLE INT64_C(1000000)
#define STREAM 7

int main(int argc, char **argv)
{
	int64_t cycles = argc > 1 ? strtoll(argv[1], NULL, 10) : 1000;
	tw_marker *marks;
	int begin, end, late, took;
	int64_t next;

	if (argc > 2 || cycles < 1) {
		fprintf(stderr, "usage: %s [CYCLES]\n", argv[0]);
		return 2;
	}
	/* A program goes on without marks. */
	if (tw_marker_open(0, &marks) < 0)
		fprintf(stderr, "no marks: %s\n", tw_last_error());
	begin = tw_marker_point(marks, "loop.begin");
	end = tw_marker_point(marks, "loop.end");
	late = tw_marker_counter(marks, "loop.late");
	took = tw_marker_histogram(marks, "loop.ns");

	next = tw_now();
	for (uint32_t cycle = 0; cycle < cycles; cycle++) {
		int64_t started;

		next += CYCLE;
		tw_sleep_until(next, 0);
		started = tw_now();
		/* The message that this cycle would send has this tag, too. */
		tw_mark(marks, begin, tw_tag(STREAM, cycle), (uint64_t)(started - next));
		/* ... the control law, a message ... */
		tw_mark(marks, end, tw_tag(STREAM, cycle), 0);
		tw_observe(marks, took, (uint64_t)(tw_now() - started));
		if (started - next > CYCLE / 10)
			tw_count(marks, late, 1);
	}
	printf("cycles %" PRId64 "\n", cycles);
	tw_marker_close(marks);
	return 0;
}
