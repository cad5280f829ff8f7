/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A control loop that sends one message in each cycle, or just before each slot of its station, and
 * says at the end how it went.
 *
 *     talker udp 192.0.2.7:9000 [options]
 *     talker frames eth1 [options]           also ring, xdp
 *
 *     --cycle US        length of the cycle, 1000 unless given
 *     --count N         messages, 1000 unless given
 *     --launch US       give each message a launch time so long after its instant
 *     --slots FILE STATION   wait for the slots of a station instead of a cycle of its own
 *     --lead US         how long before a slot to wake, 40 unless given
 *
 * Not here: a real-time priority for the process, which `chrt -f 60` gives it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timewire.h"

#define STREAM 1
#define PAYLOAD 64
#define ETHERTYPE 0x88b5 /* local experiments: IEEE Std 802-2014, 9.2.3 */
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* What the loop and its reports come to. */
struct result {
	uint64_t sent, full, not_taken, launch_refused, timestamps;
	int64_t latest;
};

static void fail(const char *what, int error)
{
	fprintf(stderr, "error: %s: %s\n", what, tw_last_error());
	exit(tw_exit_code(error));
}

static void on_report(const tw_report *report, void *context)
{
	struct result *result = context;

	switch (report->kind) {
	case TW_REPORT_TIMESTAMP:
		result->timestamps++;
		break;
	case TW_REPORT_NOT_TAKEN:
		result->not_taken++;
		break;
	case TW_REPORT_LAUNCH_INVALID:
	case TW_REPORT_LAUNCH_MISSED:
		result->launch_refused++;
		break;
	default:
		break;
	}
}

/* The header of a broadcast frame; returns how long it is. UDP has none. */
static size_t put_header(uint8_t *frame, int is_frame, const uint8_t own[6])
{
	if (!is_frame)
		return 0;
	memset(frame, 0xff, 6);
	memcpy(frame + 6, own, 6);
	frame[12] = ETHERTYPE >> 8;
	frame[13] = ETHERTYPE & 0xff;
	return 14;
}

/* What a control program computes with the freshest data; here a sawtooth. */
static void compute(uint8_t *payload, size_t length, uint32_t cycle)
{
	memset(payload, (int)(cycle & 0xff), length);
}

int main(int argc, char **argv)
{
	static const char *const ways[] = { "udp", "frames", "ring", "xdp" };
	tw_transmitter_config config = { .size = sizeof(config), .points = TW_POINT_SOFTWARE };
	const char *file = NULL, *station = NULL;
	int64_t cycle = 1000000, launch_after = 0, lead = 40000, next;
	uint32_t count = 1000, seq;
	struct result result = { .latest = 0 };
	tw_transmitter *transmitter = NULL;
	tw_slots *slots = NULL;
	uint8_t own[6] = { 0 };
	char mode[256];
	int at, error;

	if (argc < 3) {
		fprintf(stderr, "usage: %s udp ADDRESS:PORT | frames|ring|xdp INTERFACE\n",
			argv[0]);
		return 2;
	}
	for (at = 0; at < 4; at++) {
		if (!strcmp(argv[1], ways[at]))
			config.transport = (uint32_t)at + TW_TRANSPORT_UDP;
	}
	if (config.transport == TW_TRANSPORT_UDP)
		config.to = argv[2];
	else
		config.interface = argv[2];
	for (at = 3; at < argc; at++) {
		if (!strcmp(argv[at], "--cycle") && at + 1 < argc) {
			cycle = atoll(argv[++at]) * 1000;
		} else if (!strcmp(argv[at], "--count") && at + 1 < argc) {
			count = (uint32_t)strtoul(argv[++at], NULL, 10);
		} else if (!strcmp(argv[at], "--launch") && at + 1 < argc) {
			launch_after = atoll(argv[++at]) * 1000;
			config.launch = TW_LAUNCH_TAI;
		} else if (!strcmp(argv[at], "--lead") && at + 1 < argc) {
			lead = atoll(argv[++at]) * 1000;
		} else if (!strcmp(argv[at], "--slots") && at + 2 < argc) {
			file = argv[++at];
			station = argv[++at];
		} else {
			fprintf(stderr, "unknown argument %s\n", argv[at]);
			return 2;
		}
	}

	error = tw_transmitter_open(&config, &transmitter);
	if (error)
		fail("transmitter", error);
	if (config.transport != TW_TRANSPORT_UDP)
		tw_transmitter_hardware_address(transmitter, own);
	if (file) {
		error = tw_slots_open(file, station, lead, &slots);
		if (error)
			fail("slots", error);
	}
	tw_transmitter_mode(transmitter, mode, sizeof(mode));
	printf("mode %s\n", mode);

	next = tw_now() + cycle;
	for (seq = 0; seq < count; seq++) {
		tw_probe probe = { .size = sizeof(probe), .stream = STREAM, .seq = seq };
		uint8_t *message;
		size_t length, header;
		int64_t slot;

		/* The next slot, or the next instant. */
		if (slots) {
			error = tw_slots_wait(slots, &slot);
			next = slot - lead;
		} else {
			error = tw_sleep_until(next, TW_SPIN_USUAL);
		}
		if (error)
			fail("waiting", error);

		length = PAYLOAD + (config.transport == TW_TRANSPORT_UDP ? 0 : 14);
		error = tw_transmitter_buffer(transmitter, length, &message);
		if (error == TW_ERROR_FULL) {
			result.full++;
		} else if (error) {
			fail("buffer", error);
		} else {
			probe.is_launch = config.launch != TW_LAUNCH_NONE;
			probe.time_ns = probe.is_launch ? next + launch_after : tw_now();
			result.latest = MAX(result.latest, tw_now() - next);
			header = put_header(message, config.transport != TW_TRANSPORT_UDP, own);
			compute(message + header + TW_PROBE_LEN, PAYLOAD - TW_PROBE_LEN, seq);
			tw_probe_write(message + header, PAYLOAD, &probe);
			error = tw_transmitter_send(transmitter, length, NULL,
						    probe.is_launch ? probe.time_ns : TW_NO_LAUNCH,
						    NULL);
			if (error)
				fail("send", error);
			tw_transmitter_flush(transmitter);
			result.sent++;
		}
		error = tw_transmitter_reports(transmitter, on_report, &result);
		if (error < 0)
			fail("reports", error);
		next += cycle;
	}
	/* The last timestamps take a moment: a second at most, then they are missing. */
	for (at = 0; at < 1000; at++) {
		if (result.timestamps >= result.sent - result.not_taken)
			break;
		tw_sleep_until(tw_now() + 1000000, 0);
		error = tw_transmitter_reports(transmitter, on_report, &result);
		if (error < 0)
			fail("reports", error);
	}
	result.sent -= result.not_taken;
	printf("sent %llu full %llu not_taken %llu launch_refused %llu timestamps %llu "
	       "latest_us %lld\n",
	       (unsigned long long)result.sent, (unsigned long long)result.full,
	       (unsigned long long)result.not_taken, (unsigned long long)result.launch_refused,
	       (unsigned long long)result.timestamps, (long long)(result.latest / 1000));
	tw_slots_close(slots);
	tw_transmitter_close(transmitter);
	return 0;
}
