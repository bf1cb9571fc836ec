#include "wire/gro.h"
#include "wire/checksum.h"

/* What gro_add needs to know of a packet. */
struct candidate {
    uint8_t *p;
    uint32_t length; /* of the IP packet */
    uint32_t l4;     /* offset of the transport header */
    uint32_t payload;
    bool tcp;
    bool joinable; /* may be part of a super-packet */
    bool ends;     /* PSH: may only be its last part */
};

enum kind {
    KIND_FLOW,      /* TCP or UDP with ports at a fixed place: it belongs to one flow */
    KIND_UNRELATED, /* has no ports: nothing of a flow can be behind it */
    KIND_UNCLEAR,   /* fragments, options, extension headers: it may belong to any flow */
};

void gro_init(struct gro *g, unsigned flags)
{
    g->flags = flags;
    g->joined = 0;
    gro_reset(g);
}

void gro_reset(struct gro *g)
{
    g->packet_count = g->output_count = g->flow_count = 0;
    g->last_flow = g->oldest_flow = 0;
}

static bool look_ip(struct candidate *c, size_t n, uint8_t *protocol, enum kind *kind)
{
    const uint8_t *p = c->p;
    if (n >= 20 && p[0] >> 4 == 4) {
        uint32_t total = load_be16(p + 2);
        if (total < 20 || total > n)
            return false;
        c->length = total;
        c->l4 = 20;
        *protocol = p[9];
        *kind = p[0] != 0x45 || load_be16(p + 6) & 0xbfff ? KIND_UNCLEAR : KIND_FLOW; /* all but DF */
        return true;
    }
    if (n >= 40 && p[0] >> 4 == 6) {
        uint32_t total = 40u + load_be16(p + 4);
        if (total > n)
            return false;
        c->length = total;
        c->l4 = 40;
        *protocol = p[6];
        *kind = p[6] == IP_PROTO_TCP || p[6] == IP_PROTO_UDP ? KIND_FLOW
                : p[6] == IP_PROTO_ICMP6                     ? KIND_UNRELATED
                                                             : KIND_UNCLEAR;
        return true;
    }
    return false;
}

static enum kind look(struct candidate *c, unsigned flags, size_t n)
{
    uint8_t protocol;
    enum kind kind;
    c->joinable = c->ends = false;
    c->length = (uint32_t)n;
    if (!look_ip(c, n, &protocol, &kind))
        return KIND_UNRELATED;
    if (kind != KIND_FLOW)
        return kind;
    const uint8_t *l4 = c->p + c->l4;
    uint32_t left = c->length - c->l4;
    if (protocol == IP_PROTO_TCP && left >= 20) {
        uint32_t header = (uint32_t)(l4[12] >> 4) * 4;
        c->tcp = true;
        c->payload = c->l4 + header;
        c->ends = l4[13] & TCP_PSH;
        c->joinable =
            flags & GRO_TCP && header >= 20 && header < left && !(l4[12] & 15) && (l4[13] & ~TCP_PSH) == TCP_ACK;
        return KIND_FLOW;
    }
    if (protocol == IP_PROTO_UDP && left >= 8) {
        c->tcp = false;
        c->payload = c->l4 + 8;
        c->joinable = flags & GRO_UDP && left > 8 && load_be16(l4 + 4) == left && load_be16(l4 + 6);
        return KIND_FLOW;
    }
    return protocol == IP_PROTO_TCP || protocol == IP_PROTO_UDP ? KIND_UNCLEAR : KIND_UNRELATED;
}

/* 5-tuple. Both are KIND_FLOW. */
static bool same_flow(const uint8_t *a, const uint8_t *b)
{
    if ((a[0] ^ b[0]) & 0xf0)
        return false;
    if (a[0] >> 4 == 4)
        return a[9] == b[9] && memcmp(a + 12, b + 12, 12) == 0;
    return a[6] == b[6] && memcmp(a + 8, b + 8, 36) == 0;
}

static uint32_t flow_hash(const struct candidate *c)
{
    uint64_t h = c->tcp;
    for (const uint8_t *p = c->p + (c->l4 == 20 ? 12 : 8), *end = c->p + c->l4 + 4; p < end; p += 4)
        h = (h ^ load_be32(p)) * 0x9e3779b97f4a7c15;
    return (uint32_t)(h >> 32);
}

/* Transport checksum, and IPv4's header checksum: both are written anew in a super-packet. */
static bool verify(const uint8_t *p, uint32_t length)
{
    if (p[0] >> 4 == 4)
        return checksum_fold(checksum_add(0, p, 20)) == 0xffff &&
               checksum_fold(checksum_add(checksum_pseudo4(p + 12, p + 16, p[9], length - 20), p + 20, length - 20)) ==
                   0xffff;
    return checksum_fold(checksum_add(checksum_pseudo6(p + 8, p + 24, p[6], length - 40), p + 40, length - 40)) ==
           0xffff;
}

/* Everything that splitting copies from the first packet's headers into every segment's. */
static bool same_headers(const uint8_t *head, const struct candidate *c)
{
    const uint8_t *a = head, *b = c->p;
    if (c->l4 == 20) {
        if (a[1] != b[1] || load_be16(a + 6) != load_be16(b + 6) || a[8] != b[8])
            return false;
    } else if (load_be32(a) != load_be32(b) || a[7] != b[7]) {
        return false;
    }
    if (!c->tcp)
        return true;
    a += c->l4;
    b += c->l4;
    return memcmp(a + 8, b + 8, 5) == 0 && load_be16(a + 14) == load_be16(b + 14) &&
           memcmp(a + 18, b + 18, c->payload - c->l4 - 18) == 0;
}

static void close_flow(struct gro *g, unsigned i)
{
    g->flow[i] = g->flow[--g->flow_count];
    if (g->last_flow == g->flow_count)
        g->last_flow = i;
}

static bool find_flow(const struct gro *g, const struct candidate *c, unsigned *at)
{
    if (!g->flow_count)
        return false;
    if (g->last_flow < g->flow_count &&
        same_flow(g->packet[g->output[g->flow[g->last_flow].output].first].data, c->p)) {
        *at = g->last_flow;
        return true;
    }
    uint32_t hash = flow_hash(c);
    for (unsigned i = 0; i < g->flow_count; i++)
        if (g->flow[i].hash == hash && same_flow(g->packet[g->output[g->flow[i].output].first].data, c->p)) {
            *at = i;
            return true;
        }
    return false;
}

static unsigned new_output(struct gro *g, const struct candidate *c)
{
    unsigned i = g->packet_count++, o = g->output_count++;
    g->packet[i] = (struct gro_packet){.data = c->p, .length = c->length, .next = GRO_NONE};
    g->output[o] = (struct gro_output){.first = (uint16_t)i, .count = 1, .length = c->length};
    return o;
}

static void open_flow(struct gro *g, const struct candidate *c)
{
    unsigned at = g->flow_count;
    if (at == GRO_FLOWS)
        at = g->oldest_flow++ % GRO_FLOWS;
    else
        g->flow_count++;
    unsigned o = new_output(g, c);
    g->packet[g->output[o].first].payload = (uint16_t)c->payload;
    g->flow[at] = (struct gro_flow){
        .hash = flow_hash(c),
        .output = (uint16_t)o,
        .last = g->output[o].first,
        .length = c->length,
        .next_seq = c->tcp ? load_be32(c->p + c->l4 + 4) + c->length - c->payload : 0,
        .size = (uint16_t)(c->length - c->payload),
    };
    g->last_flow = at;
}

/* May c be appended, its checksum aside? */
static bool fits(const struct gro *g, const struct gro_flow *f, const struct candidate *c)
{
    const struct gro_output *o = &g->output[f->output];
    const struct gro_packet *head = &g->packet[o->first];
    uint32_t size = c->length - c->payload;
    return c->joinable && c->payload == head->payload && size <= f->size && o->count < GRO_SEGMENTS &&
           f->length + size <= 65535 && (!c->tcp || load_be32(c->p + c->l4 + 4) == f->next_seq) &&
           same_headers(head->data, c);
}

static void append(struct gro *g, unsigned at, const struct candidate *c)
{
    struct gro_flow *f = &g->flow[at];
    struct gro_output *o = &g->output[f->output];
    uint32_t size = c->length - c->payload;
    unsigned i = g->packet_count++;
    g->packet[i] =
        (struct gro_packet){.data = c->p, .length = c->length, .next = GRO_NONE, .payload = (uint16_t)c->payload};
    g->packet[f->last].next = (uint16_t)i;
    f->last = (uint16_t)i;
    f->length += size;
    f->next_seq += size;
    o->count++;
    o->length += size;
    g->joined++;
    g->last_flow = at;
    if (size < f->size || c->ends)
        close_flow(g, at);
}

bool gro_add(struct gro *g, uint8_t *packet, size_t n)
{
    if (g->packet_count == GRO_PACKETS)
        return false;
    struct candidate c = {.p = packet};
    enum kind kind = look(&c, g->flags & GRO_VNET ? g->flags : 0, n);
    if (kind != KIND_FLOW) {
        if (kind == KIND_UNCLEAR)
            g->flow_count = 0;
        new_output(g, &c);
        return true;
    }
    unsigned at;
    if (find_flow(g, &c, &at)) {
        struct gro_flow *f = &g->flow[at];
        if (fits(g, f, &c)) {
            bool good = verify(c.p, c.length);
            const struct gro_packet *head = &g->packet[g->output[f->output].first];
            if (good && (f->verified || verify(head->data, head->length))) {
                f->verified = true;
                append(g, at, &c);
                return true;
            }
            c.joinable = good;
        }
        close_flow(g, at);
    }
    if (c.joinable && !c.ends)
        open_flow(g, &c);
    else
        new_output(g, &c);
    return true;
}

/* The first packet's headers become the super-packet's. */
static void patch_head(const struct gro *g, const struct gro_output *o, uint8_t *p)
{
    const struct gro_packet *head = &g->packet[o->first];
    bool six = p[0] >> 4 == 6;
    uint32_t l4 = six ? 40 : 20, l4_len = o->length - l4;
    bool tcp = p[six ? 6 : 9] == IP_PROTO_TCP;
    struct vnet_header h = {
        .flags = VNET_NEEDS_CSUM,
        .gso_type = !tcp  ? VNET_UDP_L4
                    : six ? VNET_TCP6
                          : VNET_TCP4,
        .hdr_len = head->payload,
        .gso_size = (uint16_t)(head->length - head->payload),
        .csum_start = (uint16_t)l4,
        .csum_offset = tcp ? 16 : 6,
    };
    vnet_write(p - VNET_HEADER_LEN, &h);
    if (six) {
        store_be16(p + 4, (uint16_t)l4_len);
    } else {
        store_be16(p + 2, (uint16_t)o->length);
        store_be16(p + 10, 0);
        checksum_finish(p + 10, checksum_add(0, p, 20));
    }
    if (tcp) {
        unsigned last = o->first;
        while (g->packet[last].next != GRO_NONE)
            last = g->packet[last].next;
        p[l4 + 13] |= g->packet[last].data[l4 + 13] & TCP_PSH;
    } else {
        store_be16(p + l4 + 4, (uint16_t)l4_len);
    }
    uint64_t sum = six ? checksum_pseudo6(p + 8, p + 24, p[6], l4_len) : checksum_pseudo4(p + 12, p + 16, p[9], l4_len);
    checksum_store(p + l4 + h.csum_offset, checksum_fold(sum));
}

void gro_finish(struct gro *g)
{
    unsigned room = g->flags & GRO_VNET ? VNET_HEADER_LEN : 0;
    struct iovec *iov = g->iov;
    for (unsigned i = 0; i < g->output_count; i++) {
        struct gro_output *o = &g->output[i];
        const struct gro_packet *q = &g->packet[o->first];
        if (o->count > 1)
            patch_head(g, o, q->data);
        else if (room)
            memset(q->data - room, 0, room);
        o->iov = iov;
        o->iov_count = o->count;
        *iov++ = (struct iovec){q->data - room, q->length + room};
        while (q->next != GRO_NONE) {
            q = &g->packet[q->next];
            *iov++ = (struct iovec){q->data + q->payload, q->length - q->payload};
        }
        o->length += room;
    }
}

void gro_unjoin(struct gro *g, unsigned i, void (*write)(void *ctx, const struct iovec *iov), void *ctx)
{
    const struct gro_output *o = &g->output[i];
    unsigned room = g->flags & GRO_VNET ? VNET_HEADER_LEN : 0;
    if (o->count > 1) { /* the first packet's headers again: only what patch_head changed */
        const struct gro_packet *head = &g->packet[o->first];
        uint8_t *p = head->data;
        bool six = p[0] >> 4 == 6, tcp = p[six ? 6 : 9] == IP_PROTO_TCP;
        uint32_t l4 = six ? 40 : 20, l4_len = head->length - l4;
        uint8_t *field = p + l4 + (tcp ? 16 : 6);
        if (six) {
            store_be16(p + 4, (uint16_t)l4_len);
        } else {
            store_be16(p + 2, (uint16_t)head->length);
            store_be16(p + 10, 0);
            checksum_finish(p + 10, checksum_add(0, p, 20));
        }
        if (tcp)
            p[l4 + 13] &= (uint8_t)~TCP_PSH;
        else
            store_be16(p + l4 + 4, (uint16_t)l4_len);
        store_be16(field, 0);
        uint64_t sum =
            six ? checksum_pseudo6(p + 8, p + 24, p[6], l4_len) : checksum_pseudo4(p + 12, p + 16, p[9], l4_len);
        sum = checksum_add(sum, p + l4, l4_len);
        if (tcp)
            checksum_finish(field, sum);
        else
            checksum_finish_udp(field, sum);
    }
    for (unsigned k = o->first; k != GRO_NONE; k = g->packet[k].next) {
        const struct gro_packet *q = &g->packet[k];
        if (room)
            memset(q->data - room, 0, room);
        struct iovec iov = {q->data - room, q->length + room};
        write(ctx, &iov);
    }
}
