/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * libtimewire: deterministic Ethernet on ordinary Linux, for control programs in C, C++ and any
 * language that can call C. Needs C11 or C++17; links with -ltimewire (pkg-config timewire).
 *
 * Results. A function that returns int returns a negative TW_ERROR_... when it failed, and else 0
 * or the count that its comment tells. tw_last_error() says in words what failed, on what, and what
 * would be right. A failed call changes nothing unless its comment says so.
 *
 * Time. A time is an int64_t in nanoseconds of TAI since 1970 (CLOCK_TAI), a duration an int64_t in
 * nanoseconds. Timestamps of a NIC are of the NIC's own clock. Where the kernel was not told how
 * far TAI is ahead of UTC, both are the same to it and here.
 *
 * Handles. tw_slots, tw_transmitter, tw_talker and tw_receiver are names, not addresses: never
 * follow, free or compare them. A handle that is closed, was never one or is of another kind is
 * TW_ERROR_USAGE. So is a handle that is NULL, except that closing NULL does nothing. At most 1024
 * are open at a time; a child process must not use those of its parent.
 *
 * Structures. One that is given to the library begins with `size`: set all of it to zero, then
 * `size` to its sizeof. Zero always means "the usual". A library that is older than the program's
 * header refuses what it does not know, with TW_ERROR_UNSUPPORTED, and does not pass it over.
 * One that the library gives has its own `size`, which a later library may have larger.
 *
 * Threads. Each handle may be used by any thread, but by one at a time: a second call while one
 * runs, also from the callback that the first one makes, is TW_ERROR_USAGE and waits for nothing.
 * Different handles never wait for each other. Errors are told to the thread whose call failed.
 * tw_talker_stop() and tw_talker_counters() are exceptions: they may be called at any time.
 *
 * Callbacks run in the calling thread before the call returns. They must return: no exception, no
 * longjmp(). What they are given is theirs until they return.
 *
 * Real time. Nothing is allocated, locked or waited for in the functions that are marked "real
 * time"; those that wait say so. Opening and closing do all of it. Scheduling policy, CPU and
 * memory locking are the program's own: see the manual, "Use the library from C, C++ and Python".
 *
 * Not here: the MAC in user space and the settings of a host (the program `timewire`).
 */
#ifndef TIMEWIRE_H
#define TIMEWIRE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions ---------------------------------------------------------------------------- */

/*
 * The binary interface. It changes when a program that was compiled with an earlier header could
 * go wrong; then the name of the shared library, libtimewire.so.TW_ABI_VERSION, changes too.
 * Functions, constants and fields at the end of structures are added without a change.
 */
#define TW_ABI_VERSION 1

/* The version of the library that runs, such as "0.1.0". Never NULL; never goes away. */
const char *tw_version(void);

/* TW_ABI_VERSION of the library that runs; a program that loads it by hand compares. */
uint32_t tw_abi_version(void);

/* ---- Errors ------------------------------------------------------------------------------ */

enum {
	/* The program asked for something that makes no sense. Nothing was done. */
	TW_ERROR_USAGE = -1,
	/* The system refused: tw_last_errno() is its number. */
	TW_ERROR_SYSTEM = -2,
	/* This kernel, driver or library cannot do it; another could. */
	TW_ERROR_UNSUPPORTED = -3,
	/* No room now: as many messages or objects are under way as can be. Part of normal work. */
	TW_ERROR_FULL = -4,
	/* A defect in Timewire. The handle refuses everything from now on but being closed. */
	TW_ERROR_INTERNAL = -5
};

/*
 * What the calling thread's last error was, in words; "" when there was none. The text stays until
 * the next error in this thread. A call that does not fail leaves it as it was.
 */
const char *tw_last_error(void);

/* The errno of the calling thread's last error; 0 when it was none of the system's. */
int tw_last_errno(void);

/*
 * The exit code of a program that ends with this result, as the program `timewire` has them: 0 for
 * 0 and counts, 4 for TW_ERROR_UNSUPPORTED, 2 for the others.
 */
int tw_exit_code(int result);

/* ---- Time -------------------------------------------------------------------------------- */

/* TAI now. Real time. */
int64_t tw_now(void);

/* A spin that covers how late a thread of real-time priority wakes on most hosts. */
#define TW_SPIN_USUAL INT64_C(80000)

/*
 * Waits until TAI is `until`: sleeps, and for the last `spin` nanoseconds looks at the clock
 * without sleeping, since a sleep ends late. Returns 0 at or after `until`, at once when it has
 * passed; a signal does not end it. Takes the thread's timer slack away. In virtual time it never
 * spins. Waits; else real time.
 *
 * Errors: TW_ERROR_USAGE for a negative spin.
 */
int tw_sleep_until(int64_t until, int64_t spin);

/* ---- Slots ------------------------------------------------------------------------------- */

/* The slots of one station in a cycle that repeats for ever, before and after its base time. */
typedef struct tw_slots tw_slots;

/* One slot of a cycle, [offset, offset + length). */
typedef struct tw_window {
	int64_t offset_ns; /* from the start of the cycle */
	int64_t length_ns;
} tw_window;

/*
 * Reads the slots of a station from a file: a network, or what `timewire tdm show --json` printed.
 * `station` names one of them; with the output of `tdm show` it may be NULL for the MAC's own.
 * A schedule that changes later does not change these: open them again.
 *
 * `lead` is how long before a slot tw_slots_wait() returns: 0 to one cycle.
 *
 * Errors: TW_ERROR_SYSTEM when the file cannot be read; TW_ERROR_USAGE when it is neither, is
 * wrong (with file, line and column), has no such station, or the station has no slot.
 */
int tw_slots_open(const char *path, const char *station, int64_t lead, tw_slots **slots);

/* The same from a text, which ends with a zero. */
int tw_slots_parse(const char *text, const char *station, int64_t lead, tw_slots **slots);

/*
 * The same from numbers: a cycle starts at `base_time` and every `cycle` nanoseconds; 1 to 256
 * windows in it, which do not overlap.
 */
int tw_slots_make(int64_t base_time, int64_t cycle, const tw_window *windows, size_t count,
		  int64_t lead, tw_slots **slots);

/* The start of the first slot at or after `from`. Real time. */
int tw_slots_next(tw_slots *slots, int64_t from, int64_t *slot);

/*
 * Waits until `lead` before a slot and returns its start in `slot`, which may be NULL. Each slot is
 * returned for once; slots that were missed are passed over. Sleeps, and spins the last 80 us.
 * Waits; else real time.
 */
int tw_slots_wait(tw_slots *slots, int64_t *slot);

/* Ends the slots. NULL is allowed. */
int tw_slots_close(tw_slots *slots);

/* ---- Addresses --------------------------------------------------------------------------- */

/* The address of a UDP socket. */
typedef struct tw_address {
	uint16_t family;   /* 4 or 6; 0 for none */
	uint16_t port;     /* in the host's byte order */
	uint32_t scope;    /* the interface's index for a link-local address of IPv6, else 0 */
	uint8_t bytes[16]; /* network byte order; IPv4 has the first four */
} tw_address;

/* Reads "192.0.2.7:9000" or "[2001:db8::7]:9000". Names are not looked up. */
int tw_address_parse(const char *text, tw_address *address);

/*
 * Writes it in the same form into `text`, which has room for `room` bytes with the zero at the end;
 * 64 are enough. Returns the length without the zero, of the whole text if it was cut.
 */
int tw_address_format(const tw_address *address, char *text, size_t room);

/* ---- The header of messages of a stream -------------------------------------------------- */

/*
 * With this header at the start of a message, Timewire's listeners know its stream, count what is
 * lost, and measure latency. The rest of the message is the program's own. A talker that leaves out
 * messages with a number, or whose kernel did not take them, says how many in `skipped`: they are
 * not counted as lost then.
 */
typedef struct tw_probe {
	uint32_t size;      /* sizeof(tw_probe) */
	uint32_t seq;       /* the sequence number in the stream; wraps */
	int64_t time_ns;    /* when it is handed over, or its launch time */
	uint32_t stream;    /* 0 to TW_PROBE_MAX_STREAM */
	uint32_t is_launch; /* 1 when `time_ns` is the launch time, else 0 */
	uint32_t skipped;   /* messages of the stream before this one that were not sent; wraps */
	uint32_t has_skipped; /* 1 when `skipped` is said, else 0 */
} tw_probe;

#define TW_PROBE_LEN 18 /* bytes; the shortest message */
#define TW_PROBE_LEN_SKIPPED 22 /* bytes; the shortest with `skipped` */
#define TW_PROBE_MAX_STREAM 32767

/*
 * Writes the header to the first TW_PROBE_LEN bytes of a message of `length` bytes, or to the first
 * TW_PROBE_LEN_SKIPPED with `has_skipped`. Real time.
 */
int tw_probe_write(uint8_t *message, size_t length, const tw_probe *probe);

/*
 * Reads the header of a message: 1 and the header in `probe`, or 0 when it has none. `probe->size`
 * must be set before. Real time.
 */
int tw_probe_parse(const uint8_t *message, size_t length, tw_probe *probe);

/* ---- Ways out of a host and into it ------------------------------------------------------ */

enum {
	/* UDP over IPv4 or IPv6: a message is a payload. */
	TW_TRANSPORT_UDP = 1,
	/* A packet socket: a message is a whole frame without check sequence. CAP_NET_RAW. */
	TW_TRANSPORT_FRAMES = 2,
	/* The same through memory shared with the kernel. CAP_NET_RAW. */
	TW_TRANSPORT_RING = 3,
	/*
	 * AF_XDP: whole frames, sent past the queueing discipline, received before the stack.
	 * CAP_NET_RAW; CAP_NET_ADMIN and CAP_BPF to receive, or to send with zero copy.
	 */
	TW_TRANSPORT_XDP = 4
};

enum {
	TW_XDP_AUTO = 0,     /* the best that works */
	TW_XDP_GENERIC = 1,  /* the kernel copies, with any driver */
	TW_XDP_NATIVE = 2,   /* in the driver, which copies */
	TW_XDP_ZERO_COPY = 3 /* the driver uses the program's memory, or it is an error */
};

/* ---- Sending ----------------------------------------------------------------------------- */

/* A way out. */
typedef struct tw_transmitter tw_transmitter;

enum {
	TW_LAUNCH_NONE = 0,
	/* Launch times for a queueing discipline on CLOCK_TAI (etf, taprio; fq since 6.11). */
	TW_LAUNCH_TAI = 1,
	/* The same on CLOCK_MONOTONIC (fq). The program still gives TAI. */
	TW_LAUNCH_MONOTONIC = 2
};

/* Where a message is timestamped on its way out. */
enum {
	TW_POINT_SCHED = 1,    /* before the queueing discipline; not with AF_XDP */
	TW_POINT_SOFTWARE = 2, /* as it is handed to the interface */
	TW_POINT_HARDWARE = 4, /* by the NIC */
	TW_POINT_FREED = 8     /* only reported: AF_XDP, as the kernel frees its copy */
};

enum {
	/* A launch time is the latest moment, not the exact one; etf must be set the same way. */
	TW_TRANSMIT_DEADLINE = 1,
	/* Whole frames go to the driver without the queueing discipline. */
	TW_TRANSMIT_QDISC_BYPASS = 2,
	/* AF_XDP: the kernel says when it wants a call; otherwise each flush makes one. */
	TW_TRANSMIT_NEED_WAKEUP = 4,
	/* AF_XDP: interrupts stay off while busy polling goes on. */
	TW_TRANSMIT_PREFER_BUSY_POLL = 8
};

typedef struct tw_transmitter_config {
	uint32_t size;             /* sizeof(tw_transmitter_config) */
	uint32_t transport;        /* TW_TRANSPORT_...; required */
	const char *interface;     /* required but for UDP, where it is the only one to use */
	const char *from;          /* UDP: bound to "192.0.2.1:0"; NULL for any address and port */
	const char *to;            /* UDP: the only destination; NULL: each message names its own */
	uint32_t queue;            /* AF_XDP: the transmit queue */
	uint32_t xdp_mode;         /* AF_XDP: TW_XDP_... */
	uint32_t flags;            /* TW_TRANSMIT_... */
	uint32_t priority;         /* SO_PRIORITY, 0 to 15; above 6 needs CAP_NET_ADMIN */
	uint32_t traffic_class;    /* UDP: the byte with DSCP and ECN */
	uint32_t launch;           /* TW_LAUNCH_... */
	uint32_t points;             /* what comes back: TW_POINT_SCHED, _SOFTWARE, _HARDWARE */
	uint32_t buffer_bytes;     /* bytes that may wait in the kernel; 0: system's choice */
	uint32_t longest;          /* bytes; 0: what the interface takes, or 1472 with UDP */
	uint32_t busy_poll_us;     /* AF_XDP: microseconds; 0 for no busy polling */
	uint32_t busy_poll_budget; /* AF_XDP: most frames at one look; 0 for the kernel's choice */
	uint32_t reserved;         /* 0 */
} tw_transmitter_config;

/*
 * Opens a way out.
 *
 * Errors: TW_ERROR_USAGE for requests that exclude each other; TW_ERROR_SYSTEM for a missing
 * interface, address or privilege; TW_ERROR_UNSUPPORTED for what kernel or driver cannot do.
 */
int tw_transmitter_open(const tw_transmitter_config *config, tw_transmitter **transmitter);

/*
 * Lends the memory in which the next message of up to `length` bytes is written; with AF_XDP and
 * the ring it is the memory that the kernel reads. It has bytes of earlier messages in it. It is
 * the program's until its next call for this transmitter. Flushes when no buffer is free. Real
 * time.
 *
 * Errors: TW_ERROR_FULL when none is free even then; TW_ERROR_USAGE when it is too long. `buffer`
 * is NULL then.
 */
int tw_transmitter_buffer(tw_transmitter *transmitter, size_t length, uint8_t **buffer);

/* As launch time: none. */
#define TW_NO_LAUNCH INT64_C(0)

/*
 * Lets the first `length` bytes that were written into the buffer go with the next flush. `to` is
 * for UDP without a destination of its own; else NULL. `launch` is when the message is to leave, or
 * TW_NO_LAUNCH. `id`, which may be NULL, gets the number by which reports name the message: counted
 * from 0 in each transmitter, wraps. After an error the buffer is still the program's. Real time.
 *
 * Errors: TW_ERROR_USAGE without a buffer, for a launch time or destination that cannot be.
 */
int tw_transmitter_send(tw_transmitter *transmitter, size_t length, const tw_address *to,
			int64_t launch, uint32_t *id);

/* The two in one, with a copy of `message`. Real time. */
int tw_transmitter_send_copy(tw_transmitter *transmitter, const uint8_t *message, size_t length,
			     const tw_address *to, int64_t launch, uint32_t *id);

/*
 * Hands over what waits, up to 32 messages with one system call, without waiting for room. Returns
 * how many frames stay in the ring of AF_XDP because the interface was busy: they go with the next
 * flush. What the kernel does not take is reported. Real time.
 */
int tw_transmitter_flush(tw_transmitter *transmitter);

enum {
	TW_REPORT_TIMESTAMP = 1,          /* `id` passed `point` at `time_ns` */
	TW_REPORT_NOT_TAKEN = 2,      /* the kernel did not take `id`: `error` is its errno */
	TW_REPORT_LAUNCH_INVALID = 3, /* dropped: its launch time `time_ns` was past, or wrong */
	TW_REPORT_LAUNCH_MISSED = 4,  /* dropped: it waited until `time_ns` had passed */
	TW_REPORT_OTHER = 5           /* something else about earlier messages, such as ICMP */
};

/* What became known of a message. */
typedef struct tw_report {
	uint32_t size;
	uint32_t kind;          /* TW_REPORT_... */
	uint32_t id;            /* of a timestamp and of what was not taken */
	uint32_t point;           /* of a timestamp: TW_POINT_... */
	uint32_t is_nic_clock;  /* of a timestamp: 1 when `time_ns` is the NIC's clock, 0: TAI */
	int32_t error;          /* errno of what was not taken, and of others */
	int64_t time_ns;        /* of a timestamp; of a refused launch time, that time (TAI) */
} tw_report;

typedef void (*tw_report_fn)(const tw_report *report, void *context);

/*
 * Calls `on` with everything that became known since the last call, oldest first, and returns how
 * much that was. Never waits. Real time.
 */
int tw_transmitter_reports(tw_transmitter *transmitter, tw_report_fn on, void *context);

/* How many reports were lost because they were not asked for in time. Real time. */
int tw_transmitter_lost_reports(tw_transmitter *transmitter, uint64_t *lost);

/*
 * Why messages did not leave, since it was opened: of each cause the frames, the causes that are
 * possible, and what would be right. As JSON (`is_json` 1) it is the list `drop_causes` of the
 * command's --json, else a line for each cause; empty when all left. Counts what
 * tw_transmitter_reports() told, and each send call that failed, with TW_ERROR_FULL too: a message
 * that is sent again counts each time. The library does not read the counters of
 * queueing disciplines: where they would tell causes apart, all are named. As tw_address_format():
 * cut to `room`, returns the whole length. Not real time.
 */
int tw_transmitter_drop_causes(tw_transmitter *transmitter, int is_json, char *text, size_t room);

/* Returns the longest message in bytes. */
int tw_transmitter_longest(tw_transmitter *transmitter);

/* The interface's own address in six bytes, for the frames that a program makes; not with UDP. */
int tw_transmitter_hardware_address(tw_transmitter *transmitter, uint8_t *address);

/*
 * In words how it sends, and what was asked for and could not be had: "AF_XDP copy; no zero copy:
 * ...". As tw_address_format(): cut to `room`, returns the whole length.
 */
int tw_transmitter_mode(tw_transmitter *transmitter, char *text, size_t room);

/*
 * Returns the descriptor for poll(): POLLERR when there are reports (not with AF_XDP), POLLOUT when
 * there is room. It stays the transmitter's: neither read, write nor close it.
 */
int tw_transmitter_fd(tw_transmitter *transmitter);

/* Ends it; messages that were not flushed are not sent. NULL is allowed. */
int tw_transmitter_close(tw_transmitter *transmitter);

/* ---- Sending many streams by timetable --------------------------------------------------- */

/*
 * A talker sends the messages of many streams from one thread, each when it is due in its stream's
 * cycle; what a message carries is asked of the program just before it is sent.
 */
typedef struct tw_talker tw_talker;

enum {
	/* The message begins with the header of tw_probe, which the talker writes. */
	TW_STREAM_PROBE = 1,
	/* A message that is past its deadline is sent and counted, not left out. */
	TW_STREAM_SEND_LATE = 2,
	/* Whole frames: with a customer VLAN tag of `vid` and `pcp`. */
	TW_STREAM_TAG = 4,
	/* Whole frames: the message is in UDP over IPv4, `from` and `to`; no UDP checksum. */
	TW_STREAM_UDP = 8
};

/*
 * A stream. Its messages are due at start_ns + n * cycle_ns + offset_ns, for every n, and the other
 * frames of the cycle each spacing_ns later. Times are at most a day.
 */
typedef struct tw_stream_config {
	uint32_t size;          /* sizeof(tw_stream_config) */
	uint32_t stream;        /* its number: 0 to TW_PROBE_MAX_STREAM, each once */
	uint32_t port;          /* which port of the talker, counted from 0 */
	uint32_t flags;         /* TW_STREAM_... */
	int64_t start_ns;       /* of any of its cycles; 0: at multiples of the cycle since 1970 */
	int64_t cycle_ns;       /* required */
	int64_t offset_ns;      /* from the start of a cycle to its first message */
	int64_t spacing_ns;     /* between the messages of a cycle; 0: together */
	int64_t deadline_ns;    /* how late a message may be handed over; 0 for one cycle */
	int64_t launch_lead_ns; /* the time above is the launch time, handed over so much earlier */
	uint64_t cycles;        /* of each run; 0 for no end */
	uint32_t frames;        /* messages of a cycle; 0 for one */
	uint32_t payload;       /* bytes of a message (UDP), or behind the header of its frame */
	tw_address to;          /* UDP: where it goes, if its port has no destination of its own */
	tw_address from;        /* TW_STREAM_UDP: its source */
	uint8_t destination[6]; /* whole frames: required */
	uint8_t source[6];      /* whole frames: zero for the interface's own address */
	uint16_t ethertype;     /* whole frames: 0x0600 or more; not with TW_STREAM_UDP */
	uint16_t vid;           /* TW_STREAM_TAG: 0 (priority only) to 4094 */
	uint8_t pcp;            /* TW_STREAM_TAG: 0 to 7 */
	uint8_t traffic_class;  /* TW_STREAM_UDP: the byte with DSCP and ECN */
	uint8_t reserved[6];    /* 0 */
} tw_stream_config;

/* As spin_ns: never spins. */
#define TW_SPIN_NONE INT64_C(-1)

/*
 * A talker. Priority, launch clock, timestamps and everything else of a way out are its port's:
 * streams of two priorities need two ports.
 */
typedef struct tw_talker_config {
	uint32_t size;                      /* sizeof(tw_talker_config) */
	uint32_t reserved;                  /* 0 */
	const tw_transmitter_config *ports; /* an array; all of one size */
	const tw_stream_config *streams;    /* an array; all of one size */
	uint32_t port_count;                /* 1 to 64 */
	uint32_t stream_count;              /* 1 to 32768 */
	int64_t spin_ns; /* before a message is due; 0: TW_SPIN_USUAL; or TW_SPIN_NONE */
} tw_talker_config;

/*
 * Opens the ports and makes all streams ready.
 *
 * Errors: as tw_transmitter_open(); TW_ERROR_USAGE for a stream that cannot be, or not through its
 * port.
 */
int tw_talker_open(const tw_talker_config *config, tw_talker **talker);

/* A message that is due. */
typedef struct tw_fill {
	uint32_t size;
	uint32_t stream;   /* the number of its stream */
	uint32_t seq;      /* its sequence number there; wraps */
	uint32_t length;   /* bytes to be filled: `payload` without the header of tw_probe */
	int64_t due_ns;    /* when it is due; with a launch time, the lead before that */
	int64_t launch_ns; /* its launch time, or TW_NO_LAUNCH */
	uint8_t *bytes;    /* all zero; with AF_XDP and the ring the memory that the kernel reads */
} tw_fill;

/*
 * Fills a message. Returns 0; anything else leaves the message out, which is counted. The message
 * is sent after it returned: the time that it takes delays it and all that is due with it.
 */
typedef int (*tw_fill_fn)(const tw_fill *fill, void *context);

/* As `until`: no end. */
#define TW_NO_END INT64_C(0)

/*
 * Sends what is due before `until`, in the calling thread, and calls `fill` for each message. First
 * comes what is due after the call. Returns 0 when `until` is over or every stream has had its
 * cycles, 1 when it was stopped; then what is missing of timestamps has been waited for, up to 50
 * milliseconds. It can be called again: sequence numbers and counters go on.
 *
 * Sleeps, and spins for the last `spin_ns`. Takes the thread's timer slack away. Allocates before
 * its first message and after its last; in between it is real time. Scheduling is the thread's own.
 *
 * Errors: TW_ERROR_SYSTEM when what became of messages cannot be asked of a port.
 */
int tw_talker_run(tw_talker *talker, int64_t until, tw_fill_fn fill, void *context);

/*
 * Ends the run of a talker, within some 20 milliseconds and the wait for timestamps; when none
 * runs, the next one. May be called by any thread, by the callback and by a signal handler: it
 * changes one atomic number and nothing else, so a failure leaves no text either. Real time.
 *
 * Errors: TW_ERROR_USAGE when it is no open talker.
 */
int tw_talker_stop(tw_talker *talker);

/*
 * What became of the messages of a stream, since the talker was opened. planned = sent + woke_late
 * + overran + not_filled + not_taken + refused, when none runs.
 */
typedef struct tw_stream_counters {
	uint32_t size;           /* sizeof(tw_stream_counters); set by the program */
	uint32_t reserved;
	uint64_t planned;        /* that were due */
	uint64_t sent;           /* that the kernel took */
	uint64_t woke_late;      /* left out: the deadline passed while the thread slept */
	uint64_t overran;        /* left out: it passed during earlier ones, or the callback */
	uint64_t not_filled;     /* left out: the callback did not return 0 */
	uint64_t not_taken;      /* no buffer, or the interface's queue or the socket was full */
	uint64_t refused;        /* by the kernel for another reason, such as no route */
	uint64_t past_deadline;  /* of those sent: late, with TW_STREAM_SEND_LATE */
	uint64_t launch_invalid; /* of those sent: dropped, the launch time was past, or wrong */
	uint64_t launch_missed;  /* of those sent: dropped, they waited until it had passed */
	uint64_t timestamps;         /* that came back */
	uint64_t timestamps_missing; /* that did not, yet */
	int64_t latest_ns;       /* most between due and written, of those sent */
} tw_stream_counters;

/*
 * The counters of the stream with this number, into `counters`, whose `size` must be set before.
 * While it sends they can be 50 ms old.
 * May be called by any thread while the talker runs: then single numbers are right, and sums may be
 * off by a message. Not by a signal handler. Real time.
 *
 * Errors: TW_ERROR_USAGE when there is no such stream.
 */
int tw_talker_counters(tw_talker *talker, uint32_t stream, tw_stream_counters *counters);

/* Why messages of all streams did not leave; as tw_transmitter_drop_causes(). Not while it runs. */
int tw_talker_drop_causes(tw_talker *talker, int is_json, char *text, size_t room);

/* In words how a port sends; as tw_transmitter_mode(). */
int tw_talker_mode(tw_talker *talker, uint32_t port, char *text, size_t room);

/* Ends it. While it runs that is TW_ERROR_USAGE: stop it first. NULL is allowed. */
int tw_talker_close(tw_talker *talker);

/* ---- Receiving --------------------------------------------------------------------------- */

/* A way in. */
typedef struct tw_receiver tw_receiver;

enum {
	TW_FILTER_ETHERTYPE = 1,
	TW_FILTER_DESTINATION = 2,
	TW_FILTER_SOURCE = 4,
	TW_FILTER_VID = 8,
	TW_FILTER_PCP = 16,
	TW_FILTER_UDP_PORT = 32
};

/* Which frames: all parts that are named must fit. */
typedef struct tw_filter {
	uint32_t parts;     /* TW_FILTER_... as bits; 0 for all frames */
	uint16_t ethertype; /* behind at most two tags; 0x0600 or more */
	uint16_t vid;       /* of the outer tag, 0 to 4094 */
	uint16_t udp_port;  /* that it goes to, over IPv4 or IPv6 */
	uint8_t pcp;        /* of the outer tag, 0 to 7 */
	uint8_t reserved;   /* 0 */
	uint8_t destination[6];
	uint8_t source[6];
} tw_filter;

enum {
	TW_TIMESTAMP_SOFTWARE = 1, /* the kernel's, as the message comes to its stack */
	TW_TIMESTAMP_HARDWARE = 2  /* the NIC's, if it was told to timestamp received frames */
};

enum {
	TW_WAIT_BLOCK = 0,    /* sleep */
	TW_WAIT_POLL = 1,     /* look again and again; takes a whole CPU */
	TW_WAIT_BUSY_POLL = 2 /* have the kernel look at the device, then sleep. CAP_NET_ADMIN */
};

enum {
	/* Busy polling goes before the interrupt's own work. */
	TW_RECEIVE_PREFER_BUSY_POLL = 1,
	/* AF_XDP: hear the receive queue `queue` alone; without it all of the interface. */
	TW_RECEIVE_ONE_QUEUE = 2
};

typedef struct tw_receiver_config {
	uint32_t size;             /* sizeof(tw_receiver_config) */
	uint32_t transport;        /* TW_TRANSPORT_...; required */
	const char *interface;     /* required but for UDP, where it is the only one to use */
	const char *bind;          /* UDP: "0.0.0.0:9000", required; port 0 for any */
	const char *group;         /* UDP: a multicast group to join: "239.1.2.3" */
	uint32_t queue;            /* AF_XDP: the one queue, with TW_RECEIVE_ONE_QUEUE */
	uint32_t xdp_mode;         /* AF_XDP: TW_XDP_... */
	uint32_t flags;            /* TW_RECEIVE_... */
	uint32_t timestamps;       /* TW_TIMESTAMP_... as bits; AF_XDP always has the driver's */
	uint32_t wait;             /* TW_WAIT_... */
	uint32_t busy_poll_us;     /* TW_WAIT_BUSY_POLL: microseconds, required */
	uint32_t busy_poll_budget; /* TW_WAIT_BUSY_POLL: packets of a look; 0: kernel's choice */
	uint32_t buffer_bytes;     /* room for what waits; 0 for 8 MiB */
	uint32_t longest;          /* longest message taken whole; 0 for 2048; XDP: up to 1792 */
	uint32_t reserved;         /* 0 */
	tw_filter filter;          /* not with UDP */
} tw_receiver_config;

enum {
	TW_HAS_HARDWARE = 1,
	TW_HAS_DRIVER = 2,
	TW_HAS_KERNEL = 4,
	TW_HAS_FROM = 8,
	TW_HAS_TAG = 16
};

/* A message that has come. */
typedef struct tw_arrival {
	uint32_t size;
	uint32_t has;         /* TW_HAS_... as bits: which of the following are known */
	const uint8_t *bytes; /* a whole frame with its tags, no check sequence; UDP: the payload */
	uint32_t captured;    /* bytes that are there */
	uint32_t length;      /* bytes that the message had; more when it was cut */
	int64_t hardware_ns;  /* when the NIC received it: nanoseconds of the NIC's clock */
	int64_t driver_ns;    /* when an XDP program had it in or right behind the driver */
	int64_t kernel_ns;    /* when the kernel's stack received it */
	int64_t user_ns;      /* always: when the call that brought it had returned */
	tw_address from;      /* who sent it; UDP */
	uint8_t tag[4];       /* the outer VLAN tag, if the kernel had taken it off */
	uint32_t reserved;
} tw_arrival;

typedef void (*tw_arrival_fn)(const tw_arrival *arrival, void *context);

/*
 * Opens a way in. The XDP program of AF_XDP is on the interface until the receiver is closed or the
 * process ends, however it ends.
 *
 * Errors: as tw_transmitter_open(); another XDP program on the interface is TW_ERROR_SYSTEM.
 */
int tw_receiver_open(const tw_receiver_config *config, tw_receiver **receiver);

/*
 * Calls `each` with every message that is there, at most TW_RECEIVE_MOST, oldest first. If none is
 * there it waits for the first, up to `wait` nanoseconds; 0 never waits, negative waits for ever.
 * Returns how many there were: 0 when the time is over or a signal came. No copy. Real time but for
 * waiting.
 *
 * Errors: TW_ERROR_SYSTEM with ENETDOWN when the interface went down; it can be called again.
 */
int tw_receiver_receive(tw_receiver *receiver, int64_t wait, tw_arrival_fn each, void *context);

/* No call brings more messages. */
#define TW_RECEIVE_MOST 64

/*
 * The same without a callback, with a copy: message i goes to `arrivals[i]`, its bytes to `bytes +
 * i * room`, cut to `room`. `arrival_size` is sizeof(tw_arrival). `count` must be TW_RECEIVE_MOST
 * or more, and `bytes` have count * room bytes; otherwise it is TW_ERROR_USAGE and no message is
 * lost. Real time but for waiting.
 */
int tw_receiver_take(tw_receiver *receiver, int64_t wait, tw_arrival *arrivals, size_t arrival_size,
		     size_t count, uint8_t *bytes, size_t room);

/*
 * How many messages were lost since it was opened because it was too slow; with XDP also those that
 * were too long.
 */
int tw_receiver_drops(tw_receiver *receiver, uint64_t *drops);

/*
 * AF_XDP: how many frames that fit came on receive queues that are not heard, since it was opened:
 * those that were not asked for, or that the interface has got since. They went up the stack.
 */
int tw_receiver_other_queues(tw_receiver *receiver, uint64_t *frames);

/* The address that a UDP socket is bound to, with the port that it got. */
int tw_receiver_address(tw_receiver *receiver, tw_address *address);

/* In words how it receives; as tw_transmitter_mode(). */
int tw_receiver_mode(tw_receiver *receiver, char *text, size_t room);

/*
 * Returns the descriptor for poll(): POLLIN when messages are there. It stays the receiver's:
 * neither read nor close it.
 */
int tw_receiver_fd(tw_receiver *receiver);

/* Ends it. NULL is allowed. */
int tw_receiver_close(tw_receiver *receiver);

/* ---- Marks ------------------------------------------------------------------------------- */

/*
 * Marks of one thread, for `timewire trace`: the program says what it did when, for which packet.
 * Include timewire_mark.h for tw_mark() and what else is done in a loop. Not a handle but memory:
 * only the thread that opened it may use it. In all functions NULL is allowed, and does nothing.
 */
typedef struct tw_marker tw_marker;

/* Records of a ring for which 0 is asked. */
#define TW_MARKER_RECORDS 16384

/*
 * Opens the ring of the calling thread, with room for so many marks until the collector comes by: 0
 * for the usual, else rounded up to a power of two, 64 to 1048576. It is a file in memory, in the
 * directory that the environment variable TIMEWIRE_MARKERS names, or else in
 * /dev/shm/timewire-markers-USER. With TIMEWIRE_MARKERS=off it succeeds and gives NULL.
 *
 * Errors: TW_ERROR_SYSTEM when the directory or the memory cannot be had; `*marker` is NULL then,
 * with which a program can go on.
 */
int tw_marker_open(uint32_t records, tw_marker **marker);

/*
 * Names a point and returns it, 0 or more; the same for the same name. The name has 1 to 47 bytes.
 * A thread has 64 points, counters and histograms at most.
 *
 * Errors: TW_ERROR_USAGE for such a name, or when there is no room.
 */
int tw_marker_point(tw_marker *marker, const char *name);

/* The same for a sum: see tw_count(). */
int tw_marker_counter(tw_marker *marker, const char *name);

/* The same for a histogram by powers of two, 15 at most: see tw_observe(). */
int tw_marker_histogram(tw_marker *marker, const char *name);

/*
 * The upper half of the tags of what goes from one UDP socket to another: with it and the tag that
 * a message has in its payload, tw_tag() is the tag that the packet has in a trace. Not real time.
 */
int tw_marker_flow(const tw_address *from, const tw_address *to, uint32_t *flow);

/* tw_mark() for languages that cannot include timewire_mark.h. Real time. */
void tw_marker_mark(tw_marker *marker, int point, uint64_t tag, uint64_t value);

/* tw_count() for those. Real time. */
void tw_marker_count(tw_marker *marker, int counter, uint64_t more);

/* tw_observe() for those. Real time. */
void tw_marker_observe(tw_marker *marker, int histogram, uint64_t value);

/* Ends it, by the thread that opened it. What was marked is still read. */
int tw_marker_close(tw_marker *marker);

#ifdef __cplusplus
}
#endif

#endif /* TIMEWIRE_H */
