// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The receive side of a station's link. Priority frames go up the stack at once; all others are
 * deferred to a CPUMAP thread, which takes them up when nothing urgent runs. Both then leave the
 * link and enter the station's virtual interface, where its addresses are.
 *
 * Fails open: a frame that cannot be classified is normal, a frame that cannot be deferred goes up
 * at once.
 *
 * Not here: the transmit side, which is a user-space thread.
 */
#include "parse.bpf.h"

#define TW_NORMAL 0
#define TW_FOREIGN 33
#define TW_NOT_DEFERRED 34
#define TW_REAL_TIME 35
#define TW_COUNTERS 36

/* Filled in before loading; the mirror is `Settings` in mod.rs. */
struct tw_settings {
	__u32 stack_interface; /* index of the interface that carries the addresses */
	__u32 defer_cpu; /* where the CPUMAP thread runs */
	__u8 address[ETH_ALEN]; /* of this station; unicast frames to others are dropped */
	__u8 pad[2];
};
_Static_assert(sizeof(struct tw_settings) == 16, "mirrored in mod.rs");

const volatile struct tw_settings settings = {};

/* Port to priority, 1 to 32. Replaced whole through the outer map, so that no frame sees a half of
 * one list and a half of another. An empty outer map means: nothing is deferred. */
struct tw_rules {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u16);
	__type(value, __u8);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct tw_rules);
} rules SEC(".maps");

/* One entry per possible CPU; sized when it is loaded. */
struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_cpumap_val);
} defer SEC(".maps");

/* Frames per class: 0 normal, 1 to 32 by priority; then TW_FOREIGN, TW_NOT_DEFERRED, and all with a
 * priority whomever they are for. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, TW_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void tw_count(__u32 which)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &which);

	if (counter)
		*counter += 1;
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

static __always_inline __u32 tw_class(void *list, void *data, void *end)
{
	struct tw_ports ports = {};
	__u8 *priority;

	if (!tw_parse_ports(data, end, &ports))
		return TW_NORMAL;
	priority = bpf_map_lookup_elem(list, &ports.destination);
	if (!priority)
		priority = bpf_map_lookup_elem(list, &ports.source);
	if (!priority || *priority < 1 || *priority > 32)
		return TW_NORMAL;
	return *priority;
}

SEC("xdp")
int tw_classify(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = data;
	__u32 class, first = 0;
	void *list;
	long action;

	if (data + sizeof(*ethernet) > end)
		return XDP_PASS;
	list = bpf_map_lookup_elem(&rules, &first);
	class = list ? tw_class(list, data, end) : TW_NORMAL;
	if (class != TW_NORMAL)
		tw_count(TW_REAL_TIME);
	if (tw_is_foreign(ethernet)) {
		/* A hub shows every frame to everyone; a network card's filter would not. */
		tw_count(TW_FOREIGN);
		return XDP_DROP;
	}
	tw_count(class);
	if (!list || class != TW_NORMAL)
		return XDP_PASS;
	action = bpf_redirect_map(&defer, settings.defer_cpu, XDP_PASS);
	if (action == XDP_PASS)
		tw_count(TW_NOT_DEFERRED);
	return action;
}

SEC("tc")
int tw_to_stack(struct __sk_buff *frame)
{
	return bpf_redirect(settings.stack_interface, BPF_F_INGRESS);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
