// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Asks the driver for the receive timestamp of a frame, before there is a socket buffer. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *context, __u64 *timestamp) __ksym;

SEC("xdp")
int tw_timestamp(struct xdp_md *context)
{
	__u64 timestamp = 0;

	bpf_xdp_metadata_rx_timestamp(context, &timestamp);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
