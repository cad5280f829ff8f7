// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * On the far side of the station's virtual interface: every frame that the local stack sends goes
 * to the AF_XDP socket of the station's MAC. Without a socket it is dropped, as a cable without a
 * NIC would.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

SEC("xdp")
int tw_to_mac(struct xdp_md *context)
{
	return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_DROP);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
