// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Changes nothing. Some drivers make the queues for zero copy only while a program is attached,
 * even for a socket that only sends.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int tw_pass(struct xdp_md *context)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
