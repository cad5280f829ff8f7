// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Receive priority. Each frame belongs to the class of the first rule that fits it; its class says
 * whether it goes up the stack at once, to an AF_XDP socket, or to the stack by threads on chosen
 * CPUs (CPUMAP). Frames without a class are normal, which is a class of its own.
 *
 * A station's MAC uses the same program on its link: there frames for other stations are dropped,
 * and what goes up enters the station's virtual interface, where its addresses are.
 *
 * Fails open: a frame in doubt fits no rule that asks for what is in doubt, a frame that cannot be
 * redirected goes up at once.
 *
 * Not here: the transmit side; frames that are lost behind a redirection (losses.bpf.c).
 */
#include <linux/pkt_cls.h>

#include "parse.bpf.h"

/* The mirrors of all these are in rules.rs. */
#define TW_CLASSES 33 /* the first is normal */
#define TW_ENTRIES 128
#define TW_CPUS 16
#define TW_TEXT 32768
#define TW_SLOTS 72
#define TW_SLOT_FOREIGN 70
#define TW_SLOT_REAL_TIME 71

#define TW_TO_KERNEL 0
#define TW_TO_SOCKET 1
#define TW_TO_THREADS 2

/* Filled in before loading; the mirror is `Settings` in mod.rs. */
struct tw_settings {
	__u32 stack_interface; /* index of the interface that carries the addresses */
	__u8 address[ETH_ALEN]; /* of this station */
	__u8 drops_foreign; /* whether unicast frames to others are dropped */
	__u8 is_chained; /* whether another program decides on what goes up at once */
};
_Static_assert(sizeof(struct tw_settings) == 12, "mirrored in mod.rs");

const volatile struct tw_settings settings = {};

struct tw_class {
	__u32 slot; /* of its counters */
	__u8 to;
	__u8 lane; /* of its threads */
	__u16 cpus;
	__u32 cpu[TW_CPUS];
};
_Static_assert(sizeof(struct tw_class) == 72, "mirrored in rules.rs");

/* Fits a frame whose key has the bits of `value` where `mask` has ones. */
struct tw_entry {
	__u64 value[TW_KEY_WORDS];
	__u64 mask[TW_KEY_WORDS];
	__u32 class;
	__u32 pad;
};
_Static_assert(sizeof(struct tw_entry) == 136, "mirrored in rules.rs");

struct tw_rules {
	__u32 entries;
	__u32 text_length;
	struct tw_class class[TW_CLASSES];
	struct tw_entry entry[TW_ENTRIES];
	char text[TW_TEXT]; /* what the rules were made of; not looked at here */
};

/* clang does not describe the types of an inner map, so it has sizes. */
struct tw_rule_block {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct tw_rules));
};

/* Rules are replaced whole, by one store of a pointer: no frame sees a half of the one and a half
 * of the other. Without any, everything goes up at once. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct tw_rule_block);
} rules SEC(".maps");

struct tw_counter {
	__u64 frames;
	__u64 bytes;
	__u64 kernel; /* up at once */
	__u64 socket;
	__u64 threads;
	__u64 chained; /* decided on by another program */
	__u64 turned; /* up at once, because the socket or the thread is not there */
};
_Static_assert(sizeof(struct tw_counter) == 56, "mirrored in program.rs");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TW_SLOTS);
	__type(key, __u32);
	__type(value, struct tw_counter);
} counters SEC(".maps");

/* The key of the frame in hand. In a map and not on the stack, because of what is in a map the
 * verifier knows nothing: else it would follow each way through the parser through all the rules.
 * A CPU has one frame in hand at a time, since softirqs are off. On PREEMPT_RT from Linux 6.18
 * without PREEMPT_RT_NEEDS_BH_LOCK that is not so: queues of an interface that are polled by
 * threads of different priorities on one CPU can meet here. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_key);
} keys SEC(".maps");

/* By receive queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* The other program, if any. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} chain SEC(".maps");

/* A CPUMAP has one thread for each CPU, so classes whose threads are scheduled differently need
 * maps of their own. One entry per possible CPU; sized when they are loaded. */
#define TW_LANE(name)                                 \
	struct {                                      \
		__uint(type, BPF_MAP_TYPE_CPUMAP);    \
		__uint(max_entries, 1);               \
		__type(key, __u32);                   \
		__type(value, struct bpf_cpumap_val); \
	} name SEC(".maps")

TW_LANE(lane_0);
TW_LANE(lane_1);
TW_LANE(lane_2);
TW_LANE(lane_3);
TW_LANE(lane_4);
TW_LANE(lane_5);
TW_LANE(lane_6);
TW_LANE(lane_7);

static __always_inline struct tw_counter *tw_counter_of(__u32 slot)
{
	return bpf_map_lookup_elem(&counters, &slot);
}

static __always_inline void tw_count(__u32 slot)
{
	struct tw_counter *counter = tw_counter_of(slot);

	if (counter)
		counter->frames += 1;
}

static __always_inline int tw_is_foreign(const struct ethhdr *ethernet)
{
	int i, differs = 0;

	if (ethernet->h_dest[0] & 1)
		return 0;
	for (i = 0; i < ETH_ALEN; i++)
		differs |= ethernet->h_dest[i] ^ settings.address[i];
	return differs;
}

/* Most rules ask for a port, an EtherType or a tag, which are in the first two words. */
static __always_inline int tw_fits(const struct tw_entry *entry, const __u64 *key)
{
	__u64 differs;
	int i;

	if ((key[0] ^ entry->value[0]) & entry->mask[0])
		return 0;
	if ((key[1] ^ entry->value[1]) & entry->mask[1])
		return 0;
	differs = 0;
	for (i = 2; i < TW_KEY_WORDS; i++)
		differs |= (key[i] ^ entry->value[i]) & entry->mask[i];
	return !differs;
}

/* The number of the class of the first rule that fits; 0 for normal. */
static __always_inline __u32 tw_class_of(const struct tw_rules *list, const __u64 *key)
{
	__u32 i;

	for (i = 0; i < TW_ENTRIES; i++) {
		if (i >= list->entries)
			break;
		if (tw_fits(&list->entry[i], key))
			return list->entry[i].class;
	}
	return 0;
}

/* The same for all frames of a flow, fragments apart. */
static __always_inline __u32 tw_flow(const struct tw_key *key)
{
	const __u64 *word = (const __u64 *)key;
	__u64 hash;

	if (key->found & TW_HAS_IP)
		hash = ((__u64)key->to_port << 16 | key->from_port) ^ word[4] ^ word[6] * 3 ^
		       word[5] * 5 ^ word[7] * 7;
	else
		hash = word[1] ^ word[2] * 3 ^ word[3];
	hash *= 0x9e3779b97f4a7c15;
	hash ^= hash >> 32;
	hash *= 0xd6e8feb86659fd93;
	return hash >> 32;
}

static __always_inline long tw_redirect_to_thread(__u32 lane, __u32 cpu)
{
	switch (lane) {
	case 0:
		return bpf_redirect_map(&lane_0, cpu, XDP_PASS);
	case 1:
		return bpf_redirect_map(&lane_1, cpu, XDP_PASS);
	case 2:
		return bpf_redirect_map(&lane_2, cpu, XDP_PASS);
	case 3:
		return bpf_redirect_map(&lane_3, cpu, XDP_PASS);
	case 4:
		return bpf_redirect_map(&lane_4, cpu, XDP_PASS);
	case 5:
		return bpf_redirect_map(&lane_5, cpu, XDP_PASS);
	case 6:
		return bpf_redirect_map(&lane_6, cpu, XDP_PASS);
	case 7:
		return bpf_redirect_map(&lane_7, cpu, XDP_PASS);
	}
	return XDP_PASS;
}

static __always_inline long tw_to_threads(const struct tw_class *class, const struct tw_key *key)
{
	__u32 cpus = class->cpus;
	__u32 which;

	if (cpus == 0 || cpus > TW_CPUS)
		return XDP_PASS;
	which = (__u64)tw_flow(key) * cpus >> 32;
	if (which >= TW_CPUS)
		return XDP_PASS;
	return tw_redirect_to_thread(class->lane, class->cpu[which]);
}

SEC("xdp")
int tw_classify(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	__u32 length = bpf_xdp_get_buff_len(context);
	const struct tw_class *class;
	struct tw_counter *counter;
	struct tw_rules *list;
	__u32 number, to, foreign = 0, first = 0;
	struct tw_key *key;
	long action = XDP_PASS;
	void *block;

	if (data + sizeof(struct ethhdr) > end)
		return XDP_PASS;
	/* Its timestamp is worth the less the later it is. */
	if (settings.drops_foreign && ((struct ethhdr *)data)->h_proto == bpf_htons(ETH_P_1588))
		return XDP_PASS;
	block = bpf_map_lookup_elem(&rules, &first);
	list = block ? bpf_map_lookup_elem(block, &first) : NULL;
	key = bpf_map_lookup_elem(&keys, &first);
	if (!list || !key)
		return XDP_PASS;
	if (settings.drops_foreign)
		foreign = tw_is_foreign(data);
	__builtin_memset(key, 0, sizeof(*key));
	tw_parse(data, end, length, key);
	number = tw_class_of(list, (const __u64 *)key);
	if (number >= TW_CLASSES)
		return XDP_PASS;
	if (settings.drops_foreign) {
		if (number)
			tw_count(TW_SLOT_REAL_TIME);
		if (foreign) {
			/* A hub shows every frame to everyone; a NIC's filter would not. */
			tw_count(TW_SLOT_FOREIGN);
			return XDP_DROP;
		}
	}
	class = &list->class[number];
	counter = tw_counter_of(class->slot);
	if (!counter)
		return XDP_PASS;
	counter->frames += 1;
	counter->bytes += length;

	to = class->to;
	/* Whoever was here first decides on frames without a class, too. */
	if (settings.is_chained && number == 0)
		to = TW_TO_KERNEL;
	if (to == TW_TO_THREADS) {
		action = tw_to_threads(class, key);
		if (action == XDP_REDIRECT)
			counter->threads += 1;
	} else if (to == TW_TO_SOCKET) {
		action = bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
		if (action == XDP_REDIRECT)
			counter->socket += 1;
	}
	if (action == XDP_REDIRECT)
		return action;
	if (to != TW_TO_KERNEL)
		counter->turned += 1;
	if (settings.is_chained) {
		counter->chained += 1;
		bpf_tail_call(context, &chain, 0);
		/* Here only if it is gone. */
		counter->chained -= 1;
	}
	counter->kernel += 1;
	return XDP_PASS;
}

SEC("tc")
int tw_to_stack(struct __sk_buff *frame)
{
	/* What carries the time is for a daemon on the link, where it leaves at any time. */
	if (frame->protocol == bpf_htons(ETH_P_1588))
		return TC_ACT_UNSPEC;
	return bpf_redirect(settings.stack_interface, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
