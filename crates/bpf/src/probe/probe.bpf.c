// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Programs that do next to nothing, to see whether the kernel takes them, where they can be
 * attached, and whether what they say arrives.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The name of the thread whose sending is to be seen; no other thread's is. */
const volatile char tw_watched[16];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

SEC("raw_tracepoint/net_dev_queue")
int tw_sent(void *context)
{
	char name[16] = {};

	if (bpf_get_current_comm(name, sizeof(name)))
		return 0;
	for (int i = 0; i < 16; i++) {
		if (name[i] != tw_watched[i])
			return 0;
		if (!name[i])
			break;
	}
	__u64 *timestamp = bpf_ringbuf_reserve(&events, sizeof(*timestamp), 0);

	if (timestamp) {
		*timestamp = bpf_ktime_get_ns();
		bpf_ringbuf_submit(timestamp, 0);
	}
	return 0;
}

SEC("xdp")
int tw_pass(struct xdp_md *context)
{
	return XDP_PASS;
}

SEC("tcx/ingress")
int tw_next(struct __sk_buff *frame)
{
	return -1; /* TCX_NEXT */
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
