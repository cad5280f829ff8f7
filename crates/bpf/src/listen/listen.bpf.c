// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Hands frames that a listener wants to its AF_XDP socket, with timestamps before them; all others
 * go up the stack, and so do those whose queue has no socket. Fails open: a frame in doubt does not
 * fit a filter that asks for what is in doubt.
 *
 * There are two programs: the driver tells its timestamp only to one that is bound to its device,
 * which needs Linux 6.3 and cannot run outside of the driver.
 */
#include "parse.bpf.h"

/* What of the settings is looked at. */
#define TW_WANTS_DESTINATION 1
#define TW_WANTS_SOURCE 2
#define TW_WANTS_ETHERTYPE 4
#define TW_WANTS_VID 8
#define TW_WANTS_PCP 16
#define TW_WANTS_UDP_PORT 32

/* Filled in before loading; the mirror is `encode` in mod.rs. */
struct tw_listen_settings {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__u16 ethertype;
	__u16 vid;
	__u16 udp_port;
	__u8 pcp;
	__u8 wants;
	__u8 has_tai; /* whether bpf_ktime_get_tai_ns is there (Linux 6.1) */
	__u8 pad[3];
};
_Static_assert(sizeof(struct tw_listen_settings) == 24, "mirrored in mod.rs");

const volatile struct tw_listen_settings settings = {};

/* Right before the frame; the mirror is `Metadata` in mod.rs. A timestamp of 0 is none. */
struct tw_listen_metadata {
	__u64 driver_ns; /* TAI */
	__u64 hardware_ns; /* of the NIC's clock */
	__u32 pad;
	__u32 mark;
};
_Static_assert(sizeof(struct tw_listen_metadata) == 24, "mirrored in mod.rs");

#define TW_LISTEN_MARK 0x4d6c7754

/* The mirror is `ListenCounters` in mod.rs. */
struct tw_listen_counters {
	__u64 taken;
	__u64 passed; /* did not fit */
	__u64 without_socket; /* fit, went up all the same */
	__u64 without_metadata; /* among those taken: the driver leaves no room before a frame */
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tw_listen_counters);
} counters SEC(".maps");

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *context,
					 __u64 *timestamp) __ksym __weak;

static __always_inline int tw_is_address(const volatile __u8 *wanted, const __u8 *found)
{
	int i;

	for (i = 0; i < ETH_ALEN; i++) {
		if (wanted[i] != found[i])
			return 0;
	}
	return 1;
}

static __always_inline int tw_fits(struct xdp_md *context)
{
	struct tw_cursor cursor = {
		.at = (void *)(long)context->data,
		.end = (void *)(long)context->data_end,
		.start = (void *)(long)context->data,
	};
	struct tw_key key = {};
	__u16 tci;

	cursor.length = cursor.end - cursor.start;
	tw_walk(&cursor, &key);
	tci = bpf_ntohs(key.tci);
	if ((settings.wants & TW_WANTS_DESTINATION) &&
	    !tw_is_address(settings.destination, key.destination))
		return 0;
	if ((settings.wants & TW_WANTS_SOURCE) && !tw_is_address(settings.source, key.source))
		return 0;
	if ((settings.wants & TW_WANTS_ETHERTYPE) &&
	    bpf_ntohs(key.ethertype) != settings.ethertype)
		return 0;
	if ((settings.wants & (TW_WANTS_VID | TW_WANTS_PCP)) && !(key.found & TW_HAS_TAG))
		return 0;
	if ((settings.wants & TW_WANTS_VID) && (tci & 0x0fff) != settings.vid)
		return 0;
	if ((settings.wants & TW_WANTS_PCP) && tci >> 13 != settings.pcp)
		return 0;
	if ((settings.wants & TW_WANTS_UDP_PORT) &&
	    (!(key.found & TW_HAS_PORTS) || cursor.protocol != IPPROTO_UDP ||
	     bpf_ntohs(key.to_port) != settings.udp_port))
		return 0;
	return 1;
}

/* Whether there was room. */
static __always_inline int tw_write(struct xdp_md *context, __u64 driver, __u64 hardware)
{
	struct tw_listen_metadata *metadata;

	if (bpf_xdp_adjust_meta(context, -(int)sizeof(*metadata)))
		return 0;
	metadata = (void *)(long)context->data_meta;
	if ((void *)(metadata + 1) > (void *)(long)context->data)
		return 0;
	metadata->driver_ns = driver;
	metadata->hardware_ns = hardware;
	metadata->pad = 0;
	metadata->mark = TW_LISTEN_MARK;
	return 1;
}

static __always_inline int tw_hand_over(struct xdp_md *context, __u64 driver, __u64 hardware)
{
	__u32 queue = context->rx_queue_index;
	struct tw_listen_counters *count;
	__u32 first = 0;

	count = bpf_map_lookup_elem(&counters, &first);
	if (!count)
		return XDP_PASS;
	if (!tw_fits(context)) {
		count->passed++;
		return XDP_PASS;
	}
	if (!bpf_map_lookup_elem(&sockets, &queue)) {
		count->without_socket++;
		return XDP_PASS;
	}
	if (!tw_write(context, driver, hardware))
		count->without_metadata++;
	count->taken++;
	return bpf_redirect_map(&sockets, queue, XDP_PASS);
}

SEC("xdp")
int tw_listen(struct xdp_md *context)
{
	__u64 driver = settings.has_tai ? bpf_ktime_get_tai_ns() : 0;

	return tw_hand_over(context, driver, 0);
}

SEC("xdp")
int tw_listen_bound(struct xdp_md *context)
{
	__u64 driver = settings.has_tai ? bpf_ktime_get_tai_ns() : 0;
	__u64 hardware = 0;

	if (bpf_xdp_metadata_rx_timestamp(context, &hardware))
		hardware = 0;
	return tw_hand_over(context, driver, hardware);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
