/* Fragments through the NAT (RFC 4787 REQ-14: in any order). Ports are in the first fragment alone: what became of it
 * is remembered by the datagram's identity, and what comes before it is held, at most NAT_HELD_SLOTS packets of at most
 * NAT_HELD_ROOM bytes for NAT_HELD_SECONDS. A datagram that leaves gets an identification of its own, because several
 * hosts' datagrams to one remote would otherwise meet under one address with equal ones. */
#include "flow/nat_table.h"
#include "wire/checksum.h"

void nat_fragment_key(struct nat_fragment_key *key, const uint8_t *packet, const struct ip_view *v, bool out)
{
    memset(key, 0, sizeof *key);
    key->family = v->version;
    key->protocol = v->version == 4 ? v->protocol : 0;
    key->id = v->fragment_id;
    key->out = out;
    memcpy(key->src, ip_src(v->version, packet), ip_addr_len(v->version));
    memcpy(key->dst, ip_dst(v->version, packet), ip_addr_len(v->version));
}

static bool key_equal(const struct nat_fragment_key *a, const struct nat_fragment_key *b)
{
    return a->id == b->id && a->family == b->family && a->protocol == b->protocol && a->out == b->out &&
           memcmp(a->src, b->src, 16) == 0 && memcmp(a->dst, b->dst, 16) == 0;
}

static struct nat_fragment *set_of(struct nat *n, const struct nat_fragment_key *key)
{
    uint64_t h = n->config.seed ^ key->id;
    for (int i = 0; i < 16; i += 4)
        h = (h ^ load_be32(key->src + i) ^ (uint64_t)load_be32(key->dst + i) << 32) * 0x9e3779b97f4a7c15;
    return n->fragment[(h >> 32) % NAT_FRAGMENT_SETS];
}

static struct nat_fragment *find(struct nat *n, const struct nat_fragment_key *key)
{
    struct nat_fragment *set = set_of(n, key);
    for (int i = 0; i < NAT_FRAGMENT_WAYS; i++)
        if (set[i].used && n->now - set[i].seen <= NAT_FRAGMENT_SECONDS && key_equal(&set[i].key, key))
            return &set[i];
    return NULL;
}

static struct nat_fragment *remember(struct nat *n, const struct nat_fragment_key *key)
{
    struct nat_fragment *f = find(n, key), *set = set_of(n, key);
    if (!f) {
        f = set;
        for (int i = 0; i < NAT_FRAGMENT_WAYS && f->used; i++)
            if (!set[i].used || set[i].seen < f->seen)
                f = &set[i];
        f->new_id = (uint32_t)nat_table_random(n);
    }
    f->used = true;
    f->key = *key;
    f->seen = n->now;
    return f;
}

static void set_id(uint8_t *packet, const struct ip_view *v, uint32_t id)
{
    if (v->version == 4)
        checksum_set16(packet + 10, packet + 4, (uint16_t)id);
    else
        store_be32(packet + v->fragment_header + 4, id);
}

/* Makes of a later fragment what became of the first. */
static enum nat_verdict follow(const struct nat_fragment *f, uint8_t *packet, const struct ip_view *v)
{
    if (f->verdict == NAT_TRANSLATED) {
        nat_rewrite_address(packet, v->version, !f->key.out, f->address);
        if (f->key.out)
            set_id(packet, v, f->new_id);
    }
    return f->verdict < NAT_DROP_MALFORMED ? (enum nat_verdict)f->verdict : NAT_DROP_FRAGMENT_FILTERED;
}

void nat_fragment_first(struct nat *n, const struct nat_fragment_key *key, uint8_t *packet, const struct ip_view *v,
                        enum nat_verdict verdict)
{
    struct nat_fragment *f = remember(n, key);
    f->verdict = (uint8_t)verdict;
    if (verdict == NAT_TRANSLATED) {
        const uint8_t *a = key->out ? ip_src(v->version, packet) : ip_dst(v->version, packet);
        memcpy(f->address, a, ip_addr_len(v->version));
        if (key->out)
            set_id(packet, v, f->new_id);
    }
    for (unsigned i = 0; n->held_waiting && i < NAT_HELD_SLOTS; i++) {
        struct nat_held *h = &n->held[i];
        if (h->state != NAT_HELD_WAITING || !key_equal(&h->key, key))
            continue;
        struct ip_view later;
        ip_parse(&later, h->bytes + 16, h->length);
        enum nat_verdict then = follow(f, h->bytes + 16, &later);
        n->stats.verdict[then]++;
        n->held_waiting--;
        h->state = then < NAT_DROP_MALFORMED ? NAT_HELD_READY : NAT_HELD_FREE;
        n->held_ready += h->state == NAT_HELD_READY;
    }
}

static enum nat_verdict hold(struct nat *n, const struct nat_fragment_key *key, const uint8_t *packet, uint32_t length)
{
    if (length > NAT_HELD_ROOM)
        return NAT_DROP_FRAGMENT_FULL;
    for (unsigned i = 0; i < NAT_HELD_SLOTS; i++) {
        struct nat_held *h = &n->held[i];
        if (h->state != NAT_HELD_FREE)
            continue;
        h->key = *key;
        h->state = NAT_HELD_WAITING;
        h->seen = n->now;
        h->number = n->held_number++;
        h->length = length;
        memset(h->bytes, 0, 16);
        memcpy(h->bytes + 16, packet, length);
        n->held_waiting++;
        return NAT_HELD;
    }
    return NAT_DROP_FRAGMENT_FULL;
}

enum nat_verdict nat_fragment_next(struct nat *n, uint8_t *packet, const struct ip_view *v, bool out)
{
    struct nat_fragment_key key;
    nat_fragment_key(&key, packet, v, out);
    const struct nat_fragment *f = find(n, &key);
    return f ? follow(f, packet, v) : hold(n, &key, packet, v->length);
}

void nat_fragment_expire(struct nat *n)
{
    for (unsigned i = 0; n->held_waiting && i < NAT_HELD_SLOTS; i++) {
        struct nat_held *h = &n->held[i];
        if (h->state != NAT_HELD_WAITING || n->now - h->seen <= NAT_HELD_SECONDS)
            continue;
        h->state = NAT_HELD_FREE;
        n->held_waiting--;
        n->stats.verdict[NAT_DROP_FRAGMENT_TIMEOUT]++;
    }
}

size_t nat_take(struct nat *n, uint8_t **packet, bool *out)
{
    if (!n->held_ready)
        return 0;
    struct nat_held *first = NULL;
    for (unsigned i = 0; i < NAT_HELD_SLOTS; i++) {
        struct nat_held *h = &n->held[i];
        if (h->state == NAT_HELD_READY && (!first || (int32_t)(h->number - first->number) < 0))
            first = h;
    }
    first->state = NAT_HELD_FREE; /* its bytes stay until another is held */
    n->held_ready--;
    *packet = first->bytes + 16;
    *out = first->key.out;
    return first->length;
}
