// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Counts the frames that are lost behind a redirection: a thread's queue or a socket's ring is
 * full. The program that redirects never learns of it; the kernel's tracepoints say it.
 *
 * Not here: what is redirected, and why (receive.bpf.c).
 */
#include <linux/bpf.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>

#define TW_WATCHED_MAPS 9

/* The watched maps that are watched, by the numbers of their maps. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TW_WATCHED_MAPS);
	__type(key, __u32);
	__type(value, __u32);
} watched_maps SEC(".maps");

/* By watched map: the lanes, then the sockets. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TW_WATCHED_MAPS);
	__type(key, __u32);
	__type(value, __u64);
} lost SEC(".maps");

static __always_inline int tw_lose(__u32 map, __u32 frames)
{
	__u32 *watched = bpf_map_lookup_elem(&watched_maps, &map);
	__u64 *counter = watched ? bpf_map_lookup_elem(&lost, watched) : NULL;

	if (counter)
		*counter += frames;
	return 0;
}

/* map, processed, drops, CPU (linux v6.12 include/trace/events/xdp.h) */
SEC("raw_tp/xdp_cpumap_enqueue")
int tw_lost_before(struct bpf_raw_tracepoint_args *context)
{
	return tw_lose(context->args[0], context->args[2]);
}

/* map, processed, drops, ... */
SEC("raw_tp/xdp_cpumap_kthread")
int tw_lost_behind(struct bpf_raw_tracepoint_args *context)
{
	return tw_lose(context->args[0], context->args[2]);
}

/* device, program, target, error, kind of map, map, index */
SEC("raw_tp/xdp_redirect_err")
int tw_lost_at_once(struct bpf_raw_tracepoint_args *context)
{
	int error = context->args[3];

	/* In generic mode a thread's full queue shows at once, after tw_lost_before has counted it
	 * (linux v6.12 kernel/bpf/cpumap.c:cpu_map_generic_redirect). */
	if (context->args[4] == BPF_MAP_TYPE_CPUMAP && error == -ENOSPC)
		return 0;
	return tw_lose(context->args[5], 1);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
