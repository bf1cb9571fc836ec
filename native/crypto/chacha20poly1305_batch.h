/* How the vector implementations take a batch apart. Not a header in the usual sense: each of them includes it once, after
 * it has defined TARGET, LANES, GROUP, WORTH (the smallest batch that gains by vectors), zeros, struct lanes, lanes_keys,
 * lanes_add, lanes_flush, struct columns, columns_run, struct group and poly_group.
 *
 * Packets are sorted by length, so that those which share a Poly1305 group are alike, and taken in chunks of 16: their
 * one-time keys, their text, their tags; when opening, tags first, and only what was authentic is deciphered. */

enum { CHUNK = 16, SORT = 64 };

/* Longest first. Batches are mostly of equal packets, which costs one comparison each. */
static void sort_jobs(struct chacha_job **order, struct chacha_job *jobs, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned k = i;
        for (; k > 0 && order[k - 1]->len < jobs[i].len; k--)
            order[k] = order[k - 1];
        order[k] = &jobs[i];
    }
}

/* A batch under way: up to SORT packets, longest first, in chunks of 16. */
struct batch {
    uint32_t key[8];
    struct chacha_job *jobs[SORT];
    struct lanes lanes;
    uint8_t otk[CHUNK][64];
    uint64_t low[CHUNK], high[CHUNK]; /* the tags */
};

static void batch_init(struct batch *b, const uint8_t key[CHACHA_KEY])
{
    memset(&b->lanes, 0, offsetof(struct lanes, dst)); /* the pointers and buffers are written before they are read */
    b->lanes.n = b->lanes.cuts = 0;
    for (unsigned i = 0; i < 8; i++)
        b->key[i] = load_le32(key + 4 * i);
}

static void batch_wipe(struct batch *b)
{
    secret_wipe(b->key, sizeof b->key);
    secret_wipe(b->otk, sizeof b->otk);
}

/* The one-time keys of the n packets at jobs. When sealing they are needed after the text, so what does not fill a pass is
 * only lined up. */
TARGET static void chunk_keys(struct batch *b, struct chacha_job *const *jobs, unsigned n, bool opening)
{
    unsigned at = 0;
    for (; at + LANES <= n || (opening && at < n); at += LANES) {
        uint64_t counter[LANES];
        for (unsigned i = 0; i < LANES; i++)
            counter[i] = jobs[MIN(at + i, n - 1)]->counter;
        lanes_keys(&b->lanes, b->key, b->otk + at, counter);
    }
    for (; at < n; at++)
        lanes_add(&b->lanes, b->key, b->otk[at], zeros, 64, 0, jobs[at]->counter);
}

/* The tags of the n packets at jobs. Their ciphertext is at dst when sealing, at src when opening. */
static void chunk_tags(struct batch *b, struct chacha_job *const *jobs, unsigned n, bool opening)
{
    for (unsigned at = 0; at < n; at += GROUP) {
        struct group g;
        for (unsigned i = 0; i < GROUP; i++) {
            unsigned k = at + i < n ? at + i : at; /* an empty lane repeats the first */
            g.m[i] = opening ? jobs[k]->src : jobs[k]->dst;
            g.len[i] = opening ? jobs[k]->len - CHACHA_TAG : jobs[k]->len;
            g.otk[i] = b->otk[k];
        }
        poly_group(&g, b->low + at, b->high + at);
    }
}

/* True when LANES packets, longest first, are so alike that a lane for each wastes less than a sixteenth. */
static bool alike(struct chacha_job *const *jobs, uint32_t extra)
{
    uint32_t blocks = 0, longest = (jobs[0]->len - extra + 63) / 64;
    for (unsigned i = 0; i < LANES; i++)
        blocks += (jobs[i]->len - extra + 63) / 64;
    return (longest * LANES - blocks) * 16 <= blocks;
}

/* Enciphers or deciphers the text of the n packets at jobs; extra bytes of src (the tag) are not text. */
TARGET static void chunk_text(struct batch *b, struct chacha_job *const *jobs, unsigned n, uint32_t extra)
{
    unsigned at = 0;
    for (; at + LANES <= n && alike(jobs + at, extra); at += LANES) {
        struct columns c;
        for (unsigned i = 0; i < LANES; i++) {
            const struct chacha_job *j = jobs[at + i];
            c.dst[i] = j->dst;
            c.src[i] = j->src;
            c.len[i] = j->len - extra;
            c.counter[i] = j->counter;
        }
        c.longest = c.len[0];
        c.shortest = c.len[LANES - 1];
        columns_run(&c, b->key);
    }
    for (; at < n; at++)
        lanes_add(&b->lanes, b->key, jobs[at]->dst, jobs[at]->src, jobs[at]->len - extra, 1, jobs[at]->counter);
    lanes_flush(&b->lanes, b->key);
}

static void chunk_seal(struct batch *b, struct chacha_job *const *jobs, unsigned n)
{
    chunk_keys(b, jobs, n, false);
    chunk_text(b, jobs, n, 0);
    chunk_tags(b, jobs, n, false);
    for (unsigned i = 0; i < n; i++) {
        store_le64(jobs[i]->dst + jobs[i]->len, b->low[i]);
        store_le64(jobs[i]->dst + jobs[i]->len + 8, b->high[i]);
    }
}

static unsigned chunk_open(struct batch *b, struct chacha_job *const *jobs, unsigned n)
{
    struct chacha_job *authentic[CHUNK];
    unsigned good = 0;
    chunk_keys(b, jobs, n, true);
    chunk_tags(b, jobs, n, true);
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *tag = jobs[i]->src + jobs[i]->len - CHACHA_TAG;
        jobs[i]->ok = ((load_le64(tag) ^ b->low[i]) | (load_le64(tag + 8) ^ b->high[i])) == 0;
        if (jobs[i]->ok)
            authentic[good++] = jobs[i];
    }
    chunk_text(b, authentic, good, CHACHA_TAG);
    return n - good;
}

static void seal_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    if (n < WORTH) {
        chacha_fallback()->seal_batch(key, jobs, n);
        return;
    }
    struct batch b;
    batch_init(&b, key);
    for (unsigned done = 0; done < n; done += SORT) {
        unsigned some = MIN(n - done, (unsigned)SORT);
        sort_jobs(b.jobs, jobs + done, some);
        for (unsigned at = 0; at < some; at += CHUNK)
            chunk_seal(&b, b.jobs + at, MIN(some - at, (unsigned)CHUNK));
    }
    batch_wipe(&b);
}

static unsigned open_batch(const uint8_t key[CHACHA_KEY], struct chacha_job *jobs, unsigned n)
{
    if (n < WORTH)
        return chacha_fallback()->open_batch(key, jobs, n);
    struct batch b;
    unsigned failed = 0;
    batch_init(&b, key);
    for (unsigned done = 0; done < n; done += SORT) {
        unsigned some = MIN(n - done, (unsigned)SORT);
        sort_jobs(b.jobs, jobs + done, some);
        for (; some > 0 && b.jobs[some - 1]->len < CHACHA_TAG; some--) { /* too short for a tag: the last ones */
            b.jobs[some - 1]->ok = false;
            failed++;
        }
        for (unsigned at = 0; at < some; at += CHUNK)
            failed += chunk_open(&b, b.jobs + at, MIN(some - at, (unsigned)CHUNK));
    }
    batch_wipe(&b);
    return failed;
}

/* Single messages with additional data are not what vectors across packets are for. */
static void seal_one(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                     const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    chacha_fallback()->seal(dst, src, n, ad, ad_len, nonce, key);
}

static bool open_one(uint8_t *dst, const uint8_t *src, size_t n, const uint8_t *ad, size_t ad_len,
                     const uint8_t nonce[CHACHA_NONCE], const uint8_t key[CHACHA_KEY])
{
    return chacha_fallback()->open(dst, src, n, ad, ad_len, nonce, key);
}
