#include "wire/vnet.h"
#include "wire/checksum.h"

static const char *const error_names[] = {
    [VNET_OK] = "ok",          [VNET_PACKET] = "vnet_packet",     [VNET_TYPE] = "vnet_type",
    [VNET_SIZE] = "vnet_size", [VNET_CHECKSUM] = "vnet_checksum", [VNET_FRAGMENT] = "vnet_fragment",
};
_Static_assert(ARRAY_COUNT(error_names) == VNET_ERROR_COUNT, "a name for every error");

const char *vnet_error_name(enum vnet_error e)
{
    return error_names[e];
}

static uint16_t load_native16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

void vnet_read(struct vnet_header *h, const uint8_t bytes[VNET_HEADER_LEN])
{
    h->flags = bytes[0];
    h->gso_type = bytes[1];
    h->hdr_len = load_native16(bytes + 2);
    h->gso_size = load_native16(bytes + 4);
    h->csum_start = load_native16(bytes + 6);
    h->csum_offset = load_native16(bytes + 8);
}

void vnet_write(uint8_t bytes[VNET_HEADER_LEN], const struct vnet_header *h)
{
    bytes[0] = h->flags;
    bytes[1] = h->gso_type;
    memcpy(bytes + 2, &h->hdr_len, 2);
    memcpy(bytes + 4, &h->gso_size, 2);
    memcpy(bytes + 6, &h->csum_start, 2);
    memcpy(bytes + 8, &h->csum_offset, 2);
}

static enum vnet_error check_type(const struct vnet_header *h, const struct ip_view *ip)
{
    uint8_t want_l4;
    switch (h->gso_type & ~VNET_ECN) {
    case VNET_TCP4:
    case VNET_TCP6:
        if (ip->version != ((h->gso_type & ~VNET_ECN) == VNET_TCP4 ? 4 : 6))
            return VNET_TYPE;
        want_l4 = IP_L4_TCP;
        break;
    case VNET_UDP_L4:
        want_l4 = IP_L4_UDP;
        break;
    default:
        return VNET_TYPE;
    }
    if (ip->fragment)
        return VNET_FRAGMENT;
    if (ip->l4_kind != want_l4)
        return VNET_TYPE;
    return h->gso_size ? VNET_OK : VNET_SIZE;
}

/* What all segments' headers sum to, without what differs between them. */
static void sum_template(struct vnet_split *s, bool partial)
{
    const uint8_t *p = s->packet, *l4 = p + s->ip.l4;
    uint32_t l4_len = s->ip.length - s->ip.l4;
    if (s->ip.version == 4)
        s->sum_ip = checksum_add(checksum_add(checksum_load(p), p + 6, 4), p + 12, s->ip.l4 - 12);
    if (partial) /* what the kernel put there covers addresses, protocol and length; right with a routing header too */
        s->sum_l4 = checksum_load(p + s->csum_at) + checksum_not(checksum_word((uint16_t)l4_len));
    else if (s->ip.version == 4)
        s->sum_l4 = checksum_pseudo4(p + 12, p + 16, s->ip.protocol, 0);
    else
        s->sum_l4 = checksum_pseudo6(p + 8, p + 24, s->ip.protocol, 0);
    s->sum_l4 = checksum_add(s->sum_l4, l4, 4);
    if (s->tcp) {
        s->sum_l4 = checksum_add(s->sum_l4, l4 + 8, 4);
        s->sum_l4 += checksum_load(l4 + 14);
        s->sum_l4 = checksum_add(s->sum_l4, l4 + 18, s->head - s->ip.l4 - 18);
    }
    s->sum_l4 = checksum_fold(s->sum_l4);
}

enum vnet_error vnet_split_begin(struct vnet_split *s, const uint8_t header[VNET_HEADER_LEN], uint8_t *packet, size_t n)
{
    struct vnet_header h;
    vnet_read(&h, header);
    if (ip_parse(&s->ip, packet, n) != IP_OK)
        return VNET_PACKET;
    s->packet = packet;
    s->offset = 0;
    s->index = 0;
    s->count = 1;
    s->segment_max = s->ip.length;
    s->csum_at = 0;
    s->head = s->ip.l4;
    s->super = false;
    bool partial = h.flags & VNET_NEEDS_CSUM;
    if (partial) {
        if (h.csum_start < s->ip.l4 || (uint32_t)h.csum_start + h.csum_offset + 2 > s->ip.length)
            return VNET_CHECKSUM;
        s->head = h.csum_start;
        s->csum_at = (uint32_t)h.csum_start + h.csum_offset;
    }
    if (h.gso_type == VNET_NONE)
        return VNET_OK;

    enum vnet_error e = check_type(&h, &s->ip);
    if (e)
        return e;
    s->tcp = s->ip.l4_kind == IP_L4_TCP;
    uint16_t field = s->tcp ? 16 : 6;
    if (partial && (h.csum_start != s->ip.l4 || h.csum_offset != field))
        return VNET_CHECKSUM;
    uint32_t payload = s->ip.length - s->ip.payload;
    if (payload <= h.gso_size)
        return VNET_OK;
    s->super = true;
    s->head = s->ip.payload;
    s->size = h.gso_size;
    s->count = (payload + s->size - 1) / s->size;
    s->segment_max = s->head + s->size;
    s->csum_at = s->ip.l4 + field;
    s->flags = s->ip.tcp_flags;
    if (s->tcp)
        s->seq = load_be32(packet + s->ip.l4 + 4);
    sum_template(s, partial);
    return VNET_OK;
}

/* All-ones instead of 0 is right for UDP and the same number for everything else. */
size_t vnet_split_in_place(struct vnet_split *s)
{
    if (s->csum_at)
        checksum_finish_udp(s->packet + s->csum_at, checksum_add(0, s->packet + s->head, s->ip.length - s->head));
    s->index = s->count;
    return s->ip.length;
}

static size_t copy_single(struct vnet_split *s, uint8_t *dst)
{
    if (!s->csum_at) {
        memcpy(dst, s->packet, s->ip.length);
    } else {
        memcpy(dst, s->packet, s->head);
        checksum_finish_udp(dst + s->csum_at,
                            checksum_copy(dst + s->head, s->packet + s->head, s->ip.length - s->head, 0));
    }
    return s->ip.length;
}

static void patch_ip(const struct vnet_split *s, uint8_t *dst, unsigned i, uint32_t length)
{
    if (s->ip.version == 6) {
        store_be16(dst + 4, (uint16_t)(length - 40));
        return;
    }
    uint16_t id = (uint16_t)(s->ip.fragment_id + i);
    store_be16(dst + 2, (uint16_t)length);
    store_be16(dst + 4, id);
    checksum_finish(dst + 10, s->sum_ip + checksum_word((uint16_t)length) + checksum_word(id));
}

size_t vnet_split_next(struct vnet_split *s, uint8_t *dst)
{
    if (s->index == s->count)
        return 0;
    unsigned i = s->index++;
    if (!s->super)
        return copy_single(s, dst);

    uint32_t left = s->ip.length - s->head - s->offset, size = MIN(left, s->size), length = s->head + size;
    uint8_t *l4 = dst + s->ip.l4;
    memcpy(dst, s->packet, s->head);
    patch_ip(s, dst, i, length);
    uint64_t sum = s->sum_l4 + checksum_word((uint16_t)(length - s->ip.l4));
    if (s->tcp) {
        uint8_t flags = s->flags;
        if (i)
            flags &= (uint8_t)~TCP_CWR;
        if (s->index < s->count)
            flags &= (uint8_t)~(TCP_FIN | TCP_PSH);
        store_be32(l4 + 4, s->seq);
        l4[13] = flags;
        s->seq += size;
        sum += checksum_load(l4 + 4) + checksum_load(l4 + 6) + checksum_load(l4 + 12);
    } else {
        store_be16(l4 + 4, (uint16_t)(size + 8));
        sum += checksum_load(l4 + 4);
    }
    sum = checksum_copy(dst + s->head, s->packet + s->head + s->offset, size, sum);
    s->offset += size;
    if (s->tcp)
        checksum_finish(dst + s->csum_at, sum);
    else
        checksum_finish_udp(dst + s->csum_at, sum);
    return length;
}
