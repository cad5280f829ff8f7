/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Finds what a frame can be told by: addresses, VLAN tag, EtherType, IP addresses, DSCP, ports,
 * the stream of AVTP. A cursor walks the headers, bounds first, and every loop is bounded. Any
 * doubt about a header (truncated, shorter than it says, too many tags or extension headers) means
 * that nothing of it was found; a fragment has addresses and no ports.
 *
 * Not here: what is done with it.
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

#define TW_ETH_AVTP 0x22f0
#define TW_AVTP_HAS_STREAM 0x80
#define TW_AVTP_VERSION 0x70

#define TW_KEY_WORDS 8

/* What was found; part of the key, so that a missing port is not port 0. */
#define TW_HAS_TAG 1
#define TW_HAS_IP 2
#define TW_HAS_IPV6 4 /* beside the former */
#define TW_HAS_PORTS 8
#define TW_HAS_STREAM 16

/* What a frame is compared by, in the byte order of the frame; what was not found is 0. The mirror
 * is `key` in rules.rs. An IPv4 address is in the last four of its sixteen bytes. */
struct tw_key {
	__be16 to_port;
	__be16 from_port;
	__u8 found;
	__u8 dscp;
	__be16 ethertype; /* behind the tags */

	__u8 destination[ETH_ALEN];
	__be16 tci; /* of the outer tag */

	__u8 source[ETH_ALEN];
	__u16 pad;

	__be64 stream;

	__be32 to[4];
	__be32 from[4];
};
_Static_assert(sizeof(struct tw_key) == 8 * TW_KEY_WORDS, "compared word by word");

struct tw_cursor {
	void *at;
	void *end;
	void *start;
	__u32 length; /* of the frame, of which a part may lie elsewhere */
	__u8 protocol; /* whose ports were found */
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
	__be32 from;
	__be32 to;
};

struct tw_ipv6 {
	__be32 flow;
	__be16 payload;
	__u8 next;
	__u8 hops;
	__be32 from[4];
	__be32 to[4];
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

struct tw_avtp {
	__u8 subtype;
	__u8 flags;
	__u8 rest[2];
	__be32 stream[2];
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

/* Whether a packet that says it has so many bytes lies in the frame with all of them. */
static __always_inline int tw_is_whole(struct tw_cursor *cursor, void *packet, __u32 length)
{
	return (__u32)(packet - cursor->start) + length <= cursor->length;
}

/* `left` is what the packet says that it has behind its IP headers. */
static __always_inline void tw_take_l4(struct tw_cursor *cursor, __u8 protocol, int left,
				       struct tw_key *key)
{
	struct tw_l4 *l4 = cursor->at;
	int header;

	if (protocol == IPPROTO_UDP)
		header = TW_UDP_HEADER;
	else if (protocol == IPPROTO_TCP)
		header = TW_TCP_HEADER;
	else
		return;
	if (left < header || !tw_take(cursor, header))
		return;
	key->from_port = l4->source;
	key->to_port = l4->destination;
	key->found |= TW_HAS_PORTS;
	cursor->protocol = protocol;
}

static __always_inline void tw_take_ipv4(struct tw_cursor *cursor, struct tw_key *key)
{
	struct tw_ipv4 *ip = tw_take(cursor, sizeof(*ip));
	int header, total;

	if (!ip || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5)
		return;
	header = (ip->version_ihl & 15) * 4;
	total = bpf_ntohs(ip->total);
	if (total < header || !tw_is_whole(cursor, ip, total) ||
	    !tw_take(cursor, header - sizeof(*ip)))
		return;
	key->found |= TW_HAS_IP;
	key->dscp = ip->tos >> 2;
	key->to[3] = ip->to;
	key->from[3] = ip->from;
	if (!(ip->fragment & bpf_htons(TW_IPV4_MORE_OR_OFFSET)))
		tw_take_l4(cursor, ip->protocol, total - header, key);
}

static __always_inline void tw_take_ipv6(struct tw_cursor *cursor, struct tw_key *key)
{
	struct tw_ipv6 *ip = tw_take(cursor, sizeof(*ip));
	struct tw_extension *extension;
	int i, left;
	__u8 next;

	if (!ip || bpf_ntohl(ip->flow) >> 28 != 6)
		return;
	left = bpf_ntohs(ip->payload);
	if (!tw_is_whole(cursor, ip, sizeof(*ip) + left))
		return;
	key->found |= TW_HAS_IP | TW_HAS_IPV6;
	key->dscp = (bpf_ntohl(ip->flow) >> 22) & 63;
	__builtin_memcpy(key->to, ip->to, sizeof(key->to));
	__builtin_memcpy(key->from, ip->from, sizeof(key->from));
	next = ip->next;
	for (i = 0; i < TW_MAX_EXTENSIONS; i++) {
		if (next != TW_NEXT_HOP_BY_HOP && next != TW_NEXT_ROUTING &&
		    next != TW_NEXT_DESTINATION)
			break;
		extension = tw_take(cursor, sizeof(*extension));
		if (!extension || !tw_take(cursor, extension->length * 8))
			return;
		left -= (extension->length + 1) * 8;
		next = extension->next;
	}
	tw_take_l4(cursor, next, left, key);
}

static __always_inline void tw_take_avtp(struct tw_cursor *cursor, struct tw_key *key)
{
	struct tw_avtp *avtp = tw_take(cursor, sizeof(*avtp));

	if (!avtp || (avtp->flags & (TW_AVTP_HAS_STREAM | TW_AVTP_VERSION)) != TW_AVTP_HAS_STREAM)
		return;
	__builtin_memcpy(&key->stream, avtp->stream, sizeof(key->stream));
	key->found |= TW_HAS_STREAM;
}

/* Fills in what there is from the start of the frame; the key is all 0 before. */
static __always_inline void tw_walk(struct tw_cursor *cursor, struct tw_key *key)
{
	struct ethhdr *ethernet = tw_take(cursor, sizeof(*ethernet));
	struct tw_tag *tag;
	__be16 type;
	int i;

	if (!ethernet)
		return;
	__builtin_memcpy(key->destination, ethernet->h_dest, ETH_ALEN);
	__builtin_memcpy(key->source, ethernet->h_source, ETH_ALEN);
	type = ethernet->h_proto;
	for (i = 0; i < TW_MAX_TAGS; i++) {
		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		tag = tw_take(cursor, sizeof(*tag));
		if (!tag)
			return;
		if (i == 0) {
			key->tci = tag->tci;
			key->found |= TW_HAS_TAG;
		}
		type = tag->type;
	}
	key->ethertype = type;
	if (type == bpf_htons(ETH_P_IP))
		tw_take_ipv4(cursor, key);
	else if (type == bpf_htons(ETH_P_IPV6))
		tw_take_ipv6(cursor, key);
	else if (type == bpf_htons(TW_ETH_AVTP))
		tw_take_avtp(cursor, key);
}

/* As tw_walk; `length` is that of the whole frame. */
static __always_inline void tw_parse(void *data, void *end, __u32 length, struct tw_key *key)
{
	struct tw_cursor cursor = { .at = data, .end = end, .start = data, .length = length };

	tw_walk(&cursor, key);
}

#endif
