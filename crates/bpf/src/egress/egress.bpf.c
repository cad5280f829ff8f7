// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Before the queueing discipline of an interface: frames of some priorities pass only until an
 * instant that is moved on from outside, again and again. Who moves it on may die or hang, and then
 * they pass no more.
 *
 * The schedule of the discipline is left alone. To replace one opens all gates for a moment, and
 * what waits in it leaves within its cycle.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* A discipline looks at these bits of the priority (linux sch_generic.h TC_BITMASK). */
#define PRIORITY_BITS 15

struct tw_gate {
	/* CLOCK_MONOTONIC, ns. */
	__u64 open_until;
	/* Bit N: frames of priority N need the gate. */
	__u32 priorities;
	__u32 padding;
};

_Static_assert(sizeof(struct tw_gate) == 16, "the loader writes 16 bytes");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_gate);
} gate SEC(".maps");

/* 0: passed through the gate, 1: found it closed. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

SEC("tc")
int tw_egress(struct __sk_buff *frame)
{
	__u32 priority = 1 << (frame->priority & PRIORITY_BITS);
	__u32 key = 0, closed;
	struct tw_gate *now;
	__u64 *count;

	/* What carries the time must pass, or it would never open again. */
	if (frame->protocol == bpf_htons(ETH_P_1588))
		return TC_ACT_UNSPEC;
	now = bpf_map_lookup_elem(&gate, &key);
	if (!now || !(now->priorities & priority))
		return TC_ACT_UNSPEC;
	closed = bpf_ktime_get_ns() >= now->open_until;
	count = bpf_map_lookup_elem(&counters, &closed);
	if (count)
		(*count)++;
	return closed ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
