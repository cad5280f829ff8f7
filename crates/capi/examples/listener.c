/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Receives the messages of a stream and says at the end how they came.
 *
 *     listener udp 0.0.0.0:9000 [COUNT [SECONDS [CLOCK-ERROR]]]
 *     listener frames eth1 [COUNT [SECONDS [CLOCK-ERROR]]]           also ring, xdp
 *
 * Ends after COUNT messages, or when none came for so many seconds, five unless given. A latency is
 * a difference of the talker's clock and this host's: it is printed when CLOCK-ERROR says how far
 * these are apart at most, in nanoseconds; 0 where talker and listener have one clock.
 *
 * Not here: order and statistics of many streams (`timewire listen`).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timewire.h"

#define ETHERTYPE 0x88b5

struct result {
	size_t header; /* bytes before the message */
	uint64_t known, other, lost, skipped, timestamped;
	uint32_t next, not_sent;
	int64_t least, most, sum;
};

static void on_arrival(const tw_arrival *arrival, void *context)
{
	struct result *result = context;
	tw_probe probe = { .size = sizeof(probe) };
	uint32_t missing = 0, not_sent;
	int64_t latency;

	if (arrival->captured < result->header ||
	    tw_probe_parse(arrival->bytes + result->header, arrival->captured - result->header,
			   &probe) != 1) {
		result->other++;
		return;
	}
	/* Sequence numbers wrap: a difference beyond half of them is a message from before. */
	if (result->known && probe.seq - result->next < UINT32_MAX / 2)
		missing = probe.seq - result->next;
	/* What the talker says it did not send is not lost. */
	if (probe.has_skipped) {
		not_sent = result->known ? probe.skipped - result->not_sent : 0;
		if (not_sent > missing)
			not_sent = missing;
		result->skipped += not_sent;
		missing -= not_sent;
		result->not_sent = probe.skipped;
	}
	result->lost += missing;
	result->next = probe.seq + 1;
	latency = arrival->user_ns - probe.time_ns;
	if (!result->known || latency < result->least)
		result->least = latency;
	if (!result->known || latency > result->most)
		result->most = latency;
	result->sum += latency;
	result->known++;
	if (arrival->has & (TW_HAS_HARDWARE | TW_HAS_DRIVER | TW_HAS_KERNEL))
		result->timestamped++;
}

int main(int argc, char **argv)
{
	static const char *const ways[] = { "udp", "frames", "ring", "xdp" };
	tw_receiver_config config = { .size = sizeof(config), .timestamps = TW_TIMESTAMP_SOFTWARE };
	struct result result = { .header = 14 };
	tw_receiver *receiver = NULL;
	uint64_t count, drops = 0;
	int64_t timeout;
	char text[256];
	int at, error;

	if (argc < 3) {
		fprintf(stderr,
			"usage: %s udp ADDRESS:PORT | frames|ring|xdp INTERFACE "
			"[COUNT [SECONDS [CLOCK-ERROR]]]\n",
			argv[0]);
		return 2;
	}
	for (at = 0; at < 4; at++) {
		if (!strcmp(argv[1], ways[at]))
			config.transport = (uint32_t)at + TW_TRANSPORT_UDP;
	}
	count = argc > 3 ? strtoull(argv[3], NULL, 10) : UINT64_MAX;
	timeout = (argc > 4 ? atoll(argv[4]) : 5) * INT64_C(1000000000);
	if (config.transport == TW_TRANSPORT_UDP) {
		config.bind = argv[2];
		result.header = 0;
	} else {
		config.interface = argv[2];
		config.filter.parts = TW_FILTER_ETHERTYPE;
		config.filter.ethertype = ETHERTYPE;
	}
	error = tw_receiver_open(&config, &receiver);
	if (error) {
		fprintf(stderr, "error: %s\n", tw_last_error());
		return tw_exit_code(error);
	}
	tw_receiver_mode(receiver, text, sizeof(text));
	printf("mode %s\n", text);
	if (config.transport == TW_TRANSPORT_UDP) {
		tw_address own;

		tw_receiver_address(receiver, &own);
		tw_address_format(&own, text, sizeof(text));
		printf("listening on %s\n", text);
	} else {
		printf("listening on %s\n", argv[2]);
	}
	fflush(stdout);

	while (result.known < count) {
		error = tw_receiver_receive(receiver, timeout, on_arrival, &result);
		if (error < 0) {
			fprintf(stderr, "error: %s\n", tw_last_error());
			return tw_exit_code(error);
		}
		if (error == 0)
			break;
	}
	tw_receiver_drops(receiver, &drops);
	if (result.skipped)
		printf("skipped %llu\n", (unsigned long long)result.skipped);
	printf("known %llu lost %llu other %llu timestamped %llu drops %llu\n",
	       (unsigned long long)result.known, (unsigned long long)result.lost,
	       (unsigned long long)result.other, (unsigned long long)result.timestamped,
	       (unsigned long long)drops);
	if (argc <= 5)
		printf("latency not shown: clock error unknown\n");
	else if (result.known)
		printf("latency_us least %lld mean %lld most %lld error %lld\n",
		       (long long)result.least / 1000,
		       (long long)(result.sum / (int64_t)result.known) / 1000,
		       (long long)result.most / 1000, (atoll(argv[5]) + 999) / 1000);
	tw_receiver_close(receiver);
	return 0;
}
