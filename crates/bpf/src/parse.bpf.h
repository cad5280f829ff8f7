/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds the UDP or TCP ports of a frame. A cursor walks the headers, bounds first, and every loop
 * is bounded. Any doubt (fragment, truncated, shorter than its headers say, too many tags or
 * extension headers) means "no ports", so that the frame is treated as normal traffic.
 *
 * Not here: what is done with the ports.
 */
#ifndef TIMEWIRE_PARSE_BPF_H
#define TIMEWIRE_PARSE_BPF_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define TW_MAX_TAGS 2
#define TW_MAX_EXTENSIONS 4

#define TW_IPV4_MORE_OR_OFFSET 0x3fff

#define TW_UDP_HEADER 8
#define TW_TCP_HEADER 20

#define TW_NEXT_HOP_BY_HOP 0
#define TW_NEXT_ROUTING 43
#define TW_NEXT_DESTINATION 60

struct tw_ports {
	__u16 source;
	__u16 destination;
};

struct tw_cursor {
	void *at;
	void *end;
};

struct tw_tag {
	__be16 tci;
	__be16 type;
};

struct tw_ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 addresses[2];
};

struct tw_ipv6 {
	__be32 flow;
	__be16 payload;
	__u8 next;
	__u8 hops;
	__be32 addresses[8];
};

struct tw_extension {
	__u8 next;
	__u8 length;
	__u8 rest[6];
};

struct tw_l4 {
	__be16 source;
	__be16 destination;
};

/* The header at the cursor, which moves past it; NULL when the frame ends before. */
static __always_inline void *tw_take(struct tw_cursor *cursor, __u32 size)
{
	void *header = cursor->at;

	if (header + size > cursor->end)
		return NULL;
	cursor->at = header + size;
	return header;
}

/* A length in host order. Linux 6.12's verifier knows nothing of the result of a byte swap, so
 * its bound is stated where the compiler cannot drop it. */
static __always_inline __u32 tw_length(__be16 length)
{
	__u32 bounded = bpf_ntohs(length);

	asm volatile("%0 &= 0xffff" : "+r"(bounded));
	return bounded;
}

/* Whether a packet that says it has so many bytes lies in the frame with all of them. */
static __always_inline int tw_is_whole(struct tw_cursor *cursor, void *packet, __u32 length)
{
	return packet + length <= cursor->end;
}

/* `left` is what the packet says that it has behind its IP headers. */
static __always_inline int tw_take_l4(struct tw_cursor *cursor, __u8 protocol, int left,
				      struct tw_ports *ports)
{
	struct tw_l4 *l4 = cursor->at;
	int header;

	if (protocol == IPPROTO_UDP)
		header = TW_UDP_HEADER;
	else if (protocol == IPPROTO_TCP)
		header = TW_TCP_HEADER;
	else
		return 0;
	if (left < header || !tw_take(cursor, header))
		return 0;
	ports->source = bpf_ntohs(l4->source);
	ports->destination = bpf_ntohs(l4->destination);
	return 1;
}

static __always_inline int tw_take_ipv4(struct tw_cursor *cursor, struct tw_ports *ports)
{
	struct tw_ipv4 *ip = tw_take(cursor, sizeof(*ip));
	int header, total;

	if (!ip || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5)
		return 0;
	if (ip->fragment & bpf_htons(TW_IPV4_MORE_OR_OFFSET))
		return 0;
	header = (ip->version_ihl & 15) * 4;
	total = tw_length(ip->total);
	if (!tw_is_whole(cursor, ip, total) || !tw_take(cursor, header - sizeof(*ip)))
		return 0;
	return tw_take_l4(cursor, ip->protocol, total - header, ports);
}

static __always_inline int tw_take_ipv6(struct tw_cursor *cursor, struct tw_ports *ports)
{
	struct tw_ipv6 *ip = tw_take(cursor, sizeof(*ip));
	struct tw_extension *extension;
	int i, left;
	__u8 next;

	if (!ip || bpf_ntohl(ip->flow) >> 28 != 6)
		return 0;
	left = tw_length(ip->payload);
	if (!tw_is_whole(cursor, ip, sizeof(*ip) + left))
		return 0;
	next = ip->next;
	for (i = 0; i < TW_MAX_EXTENSIONS; i++) {
		if (next != TW_NEXT_HOP_BY_HOP && next != TW_NEXT_ROUTING &&
		    next != TW_NEXT_DESTINATION)
			break;
		extension = tw_take(cursor, sizeof(*extension));
		if (!extension || !tw_take(cursor, extension->length * 8))
			return 0;
		left -= (extension->length + 1) * 8;
		next = extension->next;
	}
	return tw_take_l4(cursor, next, left, ports);
}

/* Fills in the ports; 0 when the frame has none that can be trusted. */
static __always_inline int tw_parse_ports(void *data, void *end, struct tw_ports *ports)
{
	struct tw_cursor cursor = { .at = data, .end = end };
	struct ethhdr *ethernet = tw_take(&cursor, sizeof(*ethernet));
	struct tw_tag *tag;
	__be16 type;
	int i;

	if (!ethernet)
		return 0;
	type = ethernet->h_proto;
	for (i = 0; i < TW_MAX_TAGS; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = tw_take(&cursor, sizeof(*tag));
		if (!tag)
			return 0;
		type = tag->type;
	}
	if (type == bpf_htons(ETH_P_IP))
		return tw_take_ipv4(&cursor, ports);
	if (type == bpf_htons(ETH_P_IPV6))
		return tw_take_ipv6(&cursor, ports);
	return 0;
}

#endif
