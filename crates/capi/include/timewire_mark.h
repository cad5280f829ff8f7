/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Marks: what a program did when, for which packet, for `timewire trace`. Needs C11 or C++17 with
 * GCC or Clang; little endian.
 *
 *	static tw_marker *marks;
 *	static int sent;
 *
 *	if (tw_marker_open(0, &marks) < 0) ...        once per thread; without it marks is NULL,
 *	sent = tw_marker_point(marks, "loop.sent");   and all that follows does nothing
 *	...
 *	tw_mark(marks, sent, tw_tag(stream, seq), value);
 *
 * The functions here are inline: a mark is a reading of the clock and four stores, without a
 * system call, a lock or an allocation; when nobody listens, it is one load. All are "real time".
 *
 * Threads. A tw_marker belongs to the thread that opened it; no other thread may use it. A child
 * process must not use that of its parent.
 *
 * Not here: opening, naming and closing (timewire.h), the bytes (the manual, "Rings of marks").
 */
#ifndef TIMEWIRE_MARK_H
#define TIMEWIRE_MARK_H

#include <time.h>

#include "timewire.h"

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "timewire_mark.h: marks are little endian"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* For the functions below; programs leave it alone. */
struct tw_marker {
	unsigned char *base;
	const uint32_t *cpu;
	int (*clock)(int, struct timespec *);
	uint64_t next;
	uint64_t limit;
	uint64_t mask;
	uint32_t shift;
	uint32_t words;
};

/* Where things are in a ring. */
#define TW_MARKER_AT_LISTENING 128
#define TW_MARKER_AT_READ 256
#define TW_MARKER_AT_WRITTEN 384
#define TW_MARKER_AT_LOST 392
#define TW_MARKER_AT_VALUES 8192
#define TW_MARKER_AT_RECORDS 16384
#define TW_MARKER_RECORD 32
#define TW_MARKER_BUCKETS 65

/*
 * The tag of a packet: whose it is, and which of them. For messages with the header of a stream
 * (tw_probe) `flow` is the stream and `number` its sequence number; for others see
 * tw_marker_flow().
 */
static inline uint64_t tw_tag(uint32_t flow, uint32_t number)
{
	return (uint64_t)flow << 32 | number;
}

/* One 64-bit word of a ring. */
static inline uint64_t *tw_marker_word(const tw_marker *marker, uint64_t at)
{
	return (uint64_t *)(void *)(marker->base + at);
}

/* Whether a collector listens: worth asking before a tag or value is computed at some cost. */
static inline int tw_marker_listening(const tw_marker *marker)
{
	const uint32_t *listening;

	if (!marker)
		return 0;
	listening = (const uint32_t *)(const void *)(marker->base + TW_MARKER_AT_LISTENING);
	return __atomic_load_n(listening, __ATOMIC_RELAXED) != 0;
}

/* Whether there is room for a mark; counts one that is lost if not. */
static inline int tw_marker_room(tw_marker *marker)
{
	uint64_t read, check, *lost;

	if (__builtin_expect(marker->next != marker->limit, 1))
		return 1;
	read = __atomic_load_n(tw_marker_word(marker, TW_MARKER_AT_READ), __ATOMIC_ACQUIRE);
	check = __atomic_load_n(tw_marker_word(marker, TW_MARKER_AT_READ + 8), __ATOMIC_ACQUIRE);
	if (check == ~read && marker->next - read <= marker->mask) {
		marker->limit = read + marker->mask + 1;
		return 1;
	}
	lost = tw_marker_word(marker, TW_MARKER_AT_LOST);
	__atomic_store_n(lost, __atomic_load_n(lost, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
	return 0;
}

/* Writes a record; there is room. */
static inline void tw_marker_put(tw_marker *marker, int point, uint64_t at, uint64_t tag,
				 uint64_t value)
{
	uint64_t next = marker->next, cpu, lap;
	uint64_t *record = tw_marker_word(
		marker, TW_MARKER_AT_RECORDS + (next & marker->mask) * TW_MARKER_RECORD);

	cpu = __atomic_load_n(marker->cpu, __ATOMIC_RELAXED) & 0xffff;
	lap = ((next >> marker->shift) + 1) & 0xffff;
	__atomic_store_n(record, at, __ATOMIC_RELAXED);
	__atomic_store_n(record + 1, tag, __ATOMIC_RELAXED);
	__atomic_store_n(record + 2, value, __ATOMIC_RELAXED);
	__atomic_store_n(record + 3, (uint64_t)(uint16_t)point | lap << 16 | cpu << 32,
			 __ATOMIC_RELAXED);
	marker->next = next + 1;
	__atomic_store_n(tw_marker_word(marker, TW_MARKER_AT_WRITTEN), next + 1, __ATOMIC_RELEASE);
}

/*
 * Says that the program is at this point (tw_marker_point()) now, with this packet (tw_tag(); 0 for
 * none) and a value of its own. Does nothing when nobody listens or `marker` is NULL.
 */
static inline void tw_mark(tw_marker *marker, int point, uint64_t tag, uint64_t value)
{
	struct timespec now;

	if (!tw_marker_listening(marker) || !tw_marker_room(marker))
		return;
	/* clock_gettime(CLOCK_MONOTONIC, &now), which strict C does not declare. */
	marker->clock(1, &now);
	tw_marker_put(marker, point,
		      (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec, tag,
		      value);
}

/* The same for a time that is known already, in nanoseconds of CLOCK_MONOTONIC. */
static inline void tw_mark_at(tw_marker *marker, int point, uint64_t at, uint64_t tag,
			      uint64_t value)
{
	if (tw_marker_listening(marker) && tw_marker_room(marker))
		tw_marker_put(marker, point, at, tag, value);
}

/* Adds to a word of the values. */
static inline void tw_marker_add(tw_marker *marker, uint64_t word, uint64_t more)
{
	uint64_t *value = tw_marker_word(marker, TW_MARKER_AT_VALUES + word * 8);

	__atomic_store_n(value, __atomic_load_n(value, __ATOMIC_RELAXED) + more, __ATOMIC_RELAXED);
}

/* Adds to a counter (tw_marker_counter()), whether somebody listens or not. */
static inline void tw_count(tw_marker *marker, int counter, uint64_t more)
{
	if (marker && counter >= 0 && (uint32_t)counter < marker->words)
		tw_marker_add(marker, (uint64_t)counter, more);
}

/* Counts a value in a histogram (tw_marker_histogram()), whether somebody listens or not. */
static inline void tw_observe(tw_marker *marker, int histogram, uint64_t value)
{
	uint64_t first, bits;

	if (!marker || histogram < 0)
		return;
	first = (uint64_t)histogram;
	if (first + TW_MARKER_BUCKETS + 1 > marker->words)
		return;
	bits = value ? 64 - (uint64_t)__builtin_clzll(value) : 0;
	tw_marker_add(marker, first + bits, 1);
	tw_marker_add(marker, first + TW_MARKER_BUCKETS, value);
}

#ifdef __cplusplus
}
#endif

#endif /* TIMEWIRE_MARK_H */
