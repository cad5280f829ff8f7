/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Many streams with cycles of their own from one thread: each message is filled when it is due.
 * Says at the end what became of them.
 *
 *     cyclic udp 192.0.2.7:9000 [options]
 *     cyclic frames eth1 [options]           also ring, xdp
 *
 *     --streams N       1000 at most, 4 unless given; their messages are spread over the cycle
 *     --cycle US        length of the cycle, 1000 unless given
 *     --cycles N        each stream ends after so many; without, SIGINT and SIGTERM end them
 *     --launch US       give each message a launch time, and hand it over so much earlier
 *     --pcp N           whole frames: with a VLAN tag of this priority
 *     --vid N           and this VLAN
 *     --skip N          leave each N-th message of a stream out, as a program without data would
 *     --all             send what is late, too, and count it
 *
 * Not here: a real-time priority for the process, which `chrt -f 60` gives it.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timewire.h"

#define MOST 1000
#define PAYLOAD 64
#define ETHERTYPE 0x88b5 /* local experiments: IEEE Std 802-2014, 9.2.3 */

/* What the program knows of each stream. */
struct streams {
	uint32_t skip;
	uint32_t filled[MOST];
};

/* For the signal handler; set before signals can come. */
static tw_talker *talker;

static void on_signal(int number)
{
	(void)number;
	tw_talker_stop(talker);
}

/* What a control program computes with the freshest data; here a sawtooth. */
static int on_due(const tw_fill *fill, void *context)
{
	struct streams *streams = context;

	if (streams->skip && fill->seq % streams->skip == streams->skip - 1)
		return 1; /* nothing to send this time */
	memset(fill->bytes, (int)(fill->seq & 0xff), fill->length);
	streams->filled[fill->stream]++;
	return 0;
}

static int fail(const char *what, int error)
{
	fprintf(stderr, "error: %s: %s\n", what, tw_last_error());
	return tw_exit_code(error);
}

int main(int argc, char **argv)
{
	static const char *const ways[] = { "udp", "frames", "ring", "xdp" };
	static const uint8_t everyone[6] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	static tw_stream_config list[MOST];
	static struct streams streams;
	tw_transmitter_config port = { .size = sizeof(port), .points = TW_POINT_SOFTWARE };
	tw_talker_config config = { .size = sizeof(config), .ports = &port, .port_count = 1 };
	tw_stream_config usual = { .size = sizeof(usual), .flags = TW_STREAM_PROBE };
	tw_stream_counters sum = { .size = 0 };
	struct sigaction action;
	uint32_t count = 4, k;
	char mode[256];
	int at, result;

	if (argc < 3) {
		fprintf(stderr, "usage: %s udp ADDRESS:PORT | frames|ring|xdp INTERFACE\n",
			argv[0]);
		return 2;
	}
	for (at = 0; at < 4; at++) {
		if (!strcmp(argv[1], ways[at]))
			port.transport = (uint32_t)at + TW_TRANSPORT_UDP;
	}
	usual.cycle_ns = 1000000;
	usual.payload = PAYLOAD;
	for (at = 3; at < argc; at++) {
		const char *name = argv[at];
		long long value;

		if (!strcmp(name, "--all")) {
			usual.flags |= TW_STREAM_SEND_LATE;
			continue;
		}
		if (at + 1 == argc) {
			fprintf(stderr, "%s needs a number\n", name);
			return 2;
		}
		value = atoll(argv[++at]);
		if (!strcmp(name, "--streams")) {
			count = value > 0 && value <= MOST ? (uint32_t)value : MOST;
		} else if (!strcmp(name, "--cycle")) {
			usual.cycle_ns = value * 1000;
		} else if (!strcmp(name, "--cycles")) {
			usual.cycles = (uint64_t)value;
		} else if (!strcmp(name, "--launch")) {
			usual.launch_lead_ns = value * 1000;
			port.launch = TW_LAUNCH_TAI;
		} else if (!strcmp(name, "--pcp")) {
			usual.pcp = (uint8_t)value;
			usual.flags |= TW_STREAM_TAG;
		} else if (!strcmp(name, "--vid")) {
			usual.vid = (uint16_t)value;
			usual.flags |= TW_STREAM_TAG;
		} else if (!strcmp(name, "--skip")) {
			streams.skip = (uint32_t)value;
		} else {
			fprintf(stderr, "unknown argument %s\n", name);
			return 2;
		}
	}
	if (port.transport == TW_TRANSPORT_UDP) {
		port.to = argv[2];
	} else {
		port.interface = argv[2];
		memcpy(usual.destination, everyone, sizeof(everyone));
		usual.ethertype = ETHERTYPE;
	}
	for (k = 0; k < count; k++) {
		list[k] = usual;
		list[k].stream = k;
		list[k].offset_ns = usual.cycle_ns * (int64_t)k / (int64_t)count;
	}
	config.streams = list;
	config.stream_count = count;

	result = tw_talker_open(&config, &talker);
	if (result < 0)
		return fail("talker", result);
	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	tw_talker_mode(talker, 0, mode, sizeof(mode));
	printf("mode %s\n", mode);
	fflush(stdout);

	result = tw_talker_run(talker, TW_NO_END, on_due, &streams);
	if (result < 0)
		return fail("run", result);
	for (k = 0; k < count; k++) {
		tw_stream_counters one = { .size = sizeof(one) };

		tw_talker_counters(talker, k, &one);
		sum.planned += one.planned;
		sum.sent += one.sent;
		sum.woke_late += one.woke_late;
		sum.overran += one.overran;
		sum.not_filled += one.not_filled;
		sum.not_taken += one.not_taken + one.refused;
		sum.past_deadline += one.past_deadline;
		sum.launch_invalid += one.launch_invalid + one.launch_missed;
		sum.timestamps += one.timestamps;
		sum.latest_ns = one.latest_ns > sum.latest_ns ? one.latest_ns : sum.latest_ns;
	}
	printf("streams %u stopped %d planned %llu sent %llu woke_late %llu overran %llu "
	       "not_filled %llu not_taken %llu past_deadline %llu launch_refused %llu "
	       "timestamps %llu latest_us %lld\n",
	       count, result, (unsigned long long)sum.planned, (unsigned long long)sum.sent,
	       (unsigned long long)sum.woke_late, (unsigned long long)sum.overran,
	       (unsigned long long)sum.not_filled, (unsigned long long)sum.not_taken,
	       (unsigned long long)sum.past_deadline, (unsigned long long)sum.launch_invalid,
	       (unsigned long long)sum.timestamps, (long long)(sum.latest_ns / 1000));
	tw_talker_close(talker);
	return 0;
}
